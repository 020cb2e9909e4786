"""A branch that is cut off from the backward pass where it enters a call with others: ``cat([x, y.detach()])``.

What is cut off gets its gradient by another way still, so that none is missed; it is too small by one share.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose.differences.records import Difference, fingerprint, is_floating, numel
from msprobe.diagnose.evidence import NamedFact, SeenFact
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said

_DETACH = "detach"


def look_for_detached(scene: Scene) -> None:
    """Suspect the first call that takes a tensor which requires a gradient on one side alone."""
    differs = scene.isolated or scene.tainted & {"backward", "gradient", "recompute"}
    if not differs:
        return
    if scene.comparer.crossing or not _look_at_flags(scene):
        _look_for_lone_cut(scene)


def _look_at_flags(scene: Scene) -> bool:
    """The same by what is recorded of each tensor; True if there is one."""
    for judged in scene.judged.values():
        if not judged.event.is_call or judged.event.direction != "forward":
            continue
        for difference in judged.inputs:
            if difference.what == "requires_grad" and _is_cut(scene, judged, difference):
                _say(scene, judged, difference)
                return True
    return False


def _look_for_lone_cut(scene: Scene) -> None:
    """Suspect the first call that one side alone makes, that hands on what it takes, and through which no gradient goes
    back: the call behind it lacks on that side a gradient that it gives on the other.

    So it is reported where nothing says which tensors require gradients (MindSpore), and under any name of the call.
    """
    for side, other in (scene.sides, scene.sides[::-1]):
        for event in side.alone:
            mark = _handed_on(event) if event.direction == "forward" and event.is_call else None
            if mark is None or side.timeline.backward_of(event) is not None:
                continue
            for user in side.consumers.get(mark, ()):
                partner = side.paired.get(user)
                if user.index <= event.index or partner is None:
                    continue
                fuller, size = other.timeline.backward_of(partner), numel(event.outputs()[0][1])
                kept = _count_of_size(side.timeline.backward_of(user), size)
                if fuller is not None and kept < _count_of_size(fuller, size):
                    _say_lone_cut(scene, event, user, fuller, side)
                    return


def _handed_on(event: Event) -> Hashable | None:
    """The mark of the tensor that a call takes and gives as it is; None for other calls."""
    taken = [fingerprint(leaf) for _, leaf in event.inputs() if is_floating(leaf)]
    given = [fingerprint(leaf) for _, leaf in event.outputs() if is_floating(leaf)]
    return taken[0] if len(taken) == len(given) == 1 and taken == given else None


def _count_of_size(back: Event | None, size: int) -> int:
    """How many gradients of so many elements a backward call gives."""
    given = [] if back is None else [leaf for _, leaf in back.outputs() if is_floating(leaf)]
    return sum(numel(leaf) == size for leaf in given)


def _say_lone_cut(scene: Scene, event: Event, user: Event, fuller: Event, side: StepSide) -> None:
    text = said("extra-call-without-gradient", side.name, event.name, fuller.name, scene.other(side).name)
    # Where all gradients that optimizers get agree, what comes back is thrown away.
    matters = not scene.arrival.known or bool(scene.arrival.differ)
    facts = (NamedFact("seen_in", user.name),)
    scene.add(event, "structure", text, facts=facts, place=scene.place_of(event) - 0.25, matters=matters)


def _is_cut(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """True if the values agree, the results require gradients all the same, and what made the tensor gets one."""
    others = [
        input_difference
        for input_difference in judged.inputs
        if input_difference.slot == difference.slot and input_difference.what in ("value", "not_finite")
    ]
    if others or not all(map(_requires_gradient, (judged.event, judged.partner))):
        return False
    if any(scene.parameters_in(difference)):
        return False  # a frozen parameter
    side, event, leaf = _cut_on(scene, judged, difference)
    maker = _before_cut(side.makers, leaf, event)
    return maker is not None and side.timeline.backward_of(maker) is not None


def _cut_on(scene: Scene, judged: Judged, difference: Difference) -> tuple[StepSide, Event, Any]:
    """The side that cuts the branch off, its call, and what that takes."""
    if difference.left.get("requires_grad") is not True:
        return scene.candidate, judged.event, difference.left
    return scene.reference, judged.partner, difference.right


def _before_cut(makers: Producers, leaf: Any, event: Event) -> Event | None:
    """The call that made a tensor, before it was detached."""
    maker = makers.of(leaf, event)
    if maker is not None and operation(maker.stem) == _DETACH:
        return next(
            (event_before for _, taken in maker.inputs() if (event_before := makers.of(taken, maker)) is not None), None
        )
    return maker


def _requires_gradient(event: Event) -> bool:
    return any(is_floating(leaf) and leaf.get("requires_grad") is True for _, leaf in event.outputs())


def _say(scene: Scene, judged: Judged, difference: Difference) -> None:
    event = judged.event
    side, cutting, leaf = _cut_on(scene, judged, difference)
    cut = side.makers.of(leaf, cutting)
    text = said("detached", difference.slot, event.name, side.name, scene.other(side).name)
    kind: FindingKind = "missing_gradient"
    entry = event
    if cut is not None and operation(cut.stem) == _DETACH and side.is_alone(cut):
        kind, entry = "structure", cut
        text += said("by-call-of-one-side", cut.name, side.name)
    facts = (NamedFact("seen_in", event.name), SeenFact(difference))
    scene.add(entry, kind, text, f"{event.name}, {difference.slot}", facts, event.index - 0.25, judged=judged)

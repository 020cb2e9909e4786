"""Between two frameworks: a loss that each side computes by calls of its own, and that comes to something else."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, numel
from msprobe.diagnose.differences.words import named, ratio_in_words
from msprobe.diagnose.evidence import OneSide, SeenFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.timeline import Event, Slot
from msprobe.messages import said


def look_for_lone_ends(scene: Scene) -> None:
    """Suspect the calls that make the last number of the forward pass on both sides, where none of them has a partner
    and nothing before them differs: what takes their result is the backward pass, which cannot name them.
    """
    if not scene.comparer.crossing or not scene.has_values:
        return
    here, there = map(_last_number, scene.sides)
    if here is None or there is None:
        _look_at_what_comes_back(scene)
        return
    differences = scene.comparer.between(_numbers(here), _numbers(there))
    difference = next(
        (difference for difference in differences if difference.what == "value" and not scene.is_rounding(difference)),
        None,
    )
    if difference is None or _follows(scene, difference):
        return
    mine, theirs = scene.candidate.chain(here), scene.reference.chain(there)
    ratio = ratio_in_words(difference.left, difference.right)
    text = said("replaced-calls", named(mine), named(theirs))
    text += said("result-is", ratio) if ratio else said("so-result-differs", scene.how(difference))
    _say(scene, here, text, mine, theirs, difference)


def _follows(scene: Scene, difference: Difference) -> bool:
    """True if what differs before the end of the forward pass may explain it."""
    if "forward" not in scene.tainted:
        return False
    forward = (call for call in scene.judged.values() if call.event.direction == "forward")
    return not scene.towers(
        difference, max((max(call.input_difference, call.output_difference) for call in forward), default=0.0)
    )


def _look_at_what_comes_back(scene: Scene) -> None:
    """The same where a side recorded no last number: what the first gradient that both have comes back through are
    then calls of each side alone.
    """
    pairing = scene.pairing
    judged = next(
        (
            judged_backward
            for event in pairing.candidate
            if event.direction == "backward" and (judged_backward := scene.judged.get(event))
        ),
        None,
    )
    if judged is None:
        return
    differences = (
        difference for difference in judged.inputs if difference.what == "value" and not scene.is_rounding(difference)
    )
    difference = next(differences, None)
    ends = (pairing.candidate.forward_of(judged.event), pairing.reference.forward_of(judged.partner))
    if difference is None or ends[0] is None or ends[1] is None or _follows(scene, difference):
        return
    mine, theirs = (
        _between(scene.candidate, ends[0], judged.event),
        _between(scene.reference, ends[1], judged.partner),
    )
    if not mine or not theirs:
        return
    text = said("replaced-calls", named(mine), named(theirs))
    ratio = ratio_in_words(difference.left, difference.right)
    text += (
        said("gradient-of-call-is", ends[0].name, ratio)
        if ratio
        else said("gradient-of-call-differs", ends[0].name, scene.how(difference))
    )
    _say(scene, mine[-1], text, mine, theirs, difference)


def _say(
    scene: Scene, at: Event, text: str, mine: Sequence[Event], theirs: Sequence[Event], difference: Difference
) -> None:
    """Suspect these calls, and none of them by itself for the gradient that comes back through it."""
    for call in (*mine, *theirs):
        scene.ledger.take_back(("calls", call))
    facts = (OneSide(tuple(call.name for call in mine), tuple(call.name for call in theirs)), SeenFact(difference))
    scene.add(at, "structure", text, facts=facts, matters=True)


def _between(side: StepSide, end: Event, comes_back: Event) -> list[Event]:
    """The calls of one side alone that compute something behind a record of the forward pass, before its gradient comes
    back; none if any of them has a partner.
    """
    between = [
        event
        for event in side.timeline
        if event.direction == "forward"
        and end.index < event.index < comes_back.index
        and event.is_call
        and operation(event.stem) not in _IDLE
        and any(is_floating(leaf) for _, leaf in event.outputs())
    ]
    return between if all(map(side.is_alone, between)) else []


def _last_number(side: StepSide) -> Event | None:
    """The last call of one side alone that gives a single number which no call of the forward pass takes."""
    for event in reversed(side.alone):
        if event.direction != "forward" or not event.is_call or operation(event.stem) in _IDLE:
            continue
        if _numbers(event) and side.timeline.backward_of(event) is not None:
            return event
    return None


_IDLE = operators.IDLE | operators.FILLS | operators.CASTS


def _numbers(event: Event) -> list[Slot]:
    return [("output.0", leaf) for _, leaf in event.outputs() if is_floating(leaf) and numel(leaf) == 1][:1]

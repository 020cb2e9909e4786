"""A recomputation that begins with other values than the forward pass did: what was kept for it was written to. Or one
that draws other random numbers than it.

That is seen within one run, where the same tensor has the same bits in any type; rounding has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.evidence import Because, NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.messages import said


class _Again(NamedTuple):
    """A recomputed call, that of the forward pass, and the slot in which it takes something else."""

    event: Event
    forward: Event
    slot: str = ""


def look_for_changed_recomputation(scene: Scene) -> None:
    """Suspect the first call that takes other values when it runs again, or draws others, if its partner does not."""
    if (drawing := _first_alone(scene, _drawing_otherwise)) is not None:
        event, forward, _ = drawing
        text = said("recompute-draws-other-numbers", event.name, forward.name)
        facts = (NamedFact("seen_in", forward.name), Because("random"))
        scene.say(("other numbers",), scene.judged[event], "recompute", text, facts=facts, matters=True)
    if (beginning := _first_alone(scene, _beginning_otherwise)) is not None:
        event, forward, slot = beginning
        text = said("recompute-starts-differently", event.name, slot, forward.name)
        scene.say(
            ("changed recomputation",),
            scene.judged[event],
            "recompute",
            text,
            where=f"{event.name}, {slot}",
            facts=(NamedFact("seen_in", forward.name),),
            # Before what is said of what it takes.
            place=event.index - 0.5,
            matters=True,
        )


def _first_alone(scene: Scene, find: Callable[[StepSide, Mapping[Event, Event]], Iterator[_Again]]) -> _Again | None:
    """The first call of the candidate that is found, if its partner is a recomputed one, too, and is not found."""
    repeats = scene.pairing.repeats
    healthy = {again.event for again in find(scene.reference, repeats)}
    for again in find(scene.candidate, repeats):
        partner = scene.pairing.partner.get(again.event)
        if again.event in scene.judged and partner is not None and partner not in healthy and partner in repeats:
            return again
    return None


def _drawing_otherwise(side: StepSide, repeats: Mapping[Event, Event]) -> Iterator[_Again]:
    """Recomputed random calls that take the tensors that they took in the forward pass, and give others."""
    for event in side.timeline:
        forward = repeats.get(event) if event.is_call and is_random(event) else None
        if forward is None or _marks(event.inputs()) != _marks(forward.inputs()):
            continue
        if _marks(event.outputs()) != _marks(forward.outputs()):
            yield _Again(event, forward)


def _marks(slots: Sequence[Slot]) -> list[Hashable]:
    return [fingerprint(leaf) for _, leaf in slots if is_tensor(leaf)]


def _beginning_otherwise(side: StepSide, repeats: Mapping[Event, Event]) -> Iterator[_Again]:
    """Recomputed calls that take another tensor than in the forward pass, and which; not one that a recomputed call
    made: kernels that add in no fixed order may make another one.
    """
    made: set[Hashable] = set()
    for event in side.timeline:
        forward = repeats.get(event)
        if forward is None:
            continue
        before = dict(forward.inputs())
        for slot, leaf in event.inputs() if event.is_call else ():
            mark, other = fingerprint(leaf), fingerprint(before.get(slot))
            if is_tensor(leaf) and mark is not None and other is not None and mark != other and mark not in made:
                yield _Again(event, forward, slot)
                break
        made.update(mark for _, leaf in event.outputs() if (mark := fingerprint(leaf)) is not None)

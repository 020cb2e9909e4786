"""A recomputation that begins with other values than the forward pass did: what was kept for it was written to. Or one
that draws other random numbers than it.

That is seen within one run, where the same tensor has the same bits in any type; rounding has no part in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.evidence import Because, NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor
from msprobe.messages import said


def look_for_changed_recomputation(scene: Scene) -> None:
    """Suspect the first call that takes other values when it runs again, or draws others, if its partner does not."""
    _look_for_other_numbers(scene)
    pairing = scene.pairing
    healthy = {event for event, _ in _beginning_otherwise(pairing.reference, pairing.repeats)}
    for event, slot in _beginning_otherwise(pairing.candidate, pairing.repeats):
        judged, partner = scene.judged.get(event), pairing.partner.get(event)
        if judged is None or partner is None or partner in healthy or partner not in pairing.repeats:
            continue
        forward = pairing.repeats[event]
        scene.say(
            ("changed recomputation",),
            judged,
            "recompute",
            said(
                "recompute-starts-differently",
                event.name,
                slot,
                forward.name,
            ),
            where=f"{event.name}, {slot}",
            matters=True,
            # Before what is said of what it takes.
            place=event.index - 0.5,
            facts=(NamedFact("seen_in", forward.name),),
        )
        return


def _look_for_other_numbers(scene: Scene) -> None:
    pairing = scene.pairing
    healthy = set(_drawing_otherwise(pairing.reference, pairing.repeats))
    for event in _drawing_otherwise(pairing.candidate, pairing.repeats):
        judged, partner = scene.judged.get(event), pairing.partner.get(event)
        if judged is None or partner is None or partner in healthy or partner not in pairing.repeats:
            continue
        forward = pairing.repeats[event]
        scene.say(
            ("other numbers",),
            judged,
            "recompute",
            said("recompute-draws-other-numbers", event.name, forward.name),
            where=event.name,
            matters=True,
            facts=(NamedFact("seen_in", forward.name), Because("random")),
        )
        return


def _drawing_otherwise(timeline: Timeline, repeats: Mapping[Event, Event]) -> Iterator[Event]:
    """Recomputed random calls that take the tensors that they took in the forward pass, and give others."""
    for event in timeline:
        forward = repeats.get(event) if event.is_call and is_random(event) else None
        if forward is None or _marks(event.inputs()) != _marks(forward.inputs()):
            continue
        if _marks(event.outputs()) != _marks(forward.outputs()):
            yield event


def _marks(slots: Sequence[Slot]) -> list[Hashable]:
    return [fingerprint(leaf) for _, leaf in slots if is_tensor(leaf)]


def _beginning_otherwise(timeline: Timeline, repeats: Mapping[Event, Event]) -> Iterator[tuple[Event, str]]:
    """Recomputed calls that take another tensor than in the forward pass, and which; not one that a recomputed call
    made: kernels that add in no fixed order may make another one.
    """
    made: set[Hashable] = set()
    for event in timeline:
        forward = repeats.get(event)
        if forward is None:
            continue
        before = dict(forward.inputs())
        for slot, leaf in event.inputs() if event.is_call else ():
            mark, other = fingerprint(leaf), fingerprint(before.get(slot))
            if is_tensor(leaf) and mark is not None and other is not None and mark != other and mark not in made:
                yield event, slot
                break
        made.update(mark for _, leaf in event.outputs() if (mark := fingerprint(leaf)) is not None)

"""A recomputation that begins with other values than the forward pass did: what was kept for it was written to.

That is seen within one run, where the same tensor has the same bits in any type; rounding has no part in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.evidence import NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.messages import said


def look_for_changed_recomputation(scene: Scene) -> None:
    """Suspect the first call that takes other values when it runs again, if its partner takes the same."""
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
            clear=True,
            matters=True,
            # Before what is said of what it takes.
            place=event.index - 0.5,
            facts=(NamedFact("seen_in", forward.name),),
        )
        return


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

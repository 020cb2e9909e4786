"""What an interrupted side had no time for: calls behind its last record, and gradients that were still being summed.

Whoever looks for calls of one side alone, or compares gradients, sees nothing of it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event, Timeline


def leave_out_unreached(pairing: Pairing) -> None:
    """Leave out of the comparison what an interrupted side had no time for; of whole sides nothing is left out."""
    candidate, reference = pairing.candidate, pairing.reference
    unreached: set[Event] = set()
    partial: set[Event] = set()
    for timeline, other, partner, back in (
        (candidate, reference, pairing.partner, pairing.back),
        (reference, candidate, pairing.back, pairing.partner),
    ):
        if timeline.part.complete:
            continue
        last = max((event.index for event in back if event.direction != "gradient"), default=-1)
        # Records of gradients are begun early and stand at the end.
        unreached |= {event for event in other if event not in back and event.index > last}
        partial |= _partial_gradients(timeline, other, partner, back)
    for event in partial:
        pairing.part(event)
        unreached.add(event)
    pairing.leave_out(unreached)


def _partial_gradients(
    timeline: Timeline, other: Timeline, partner: Mapping[Event, Event], back: Container[Event]
) -> set[Event]:
    """The gradients of the interrupted side that differ while a backward call was still to add to them, and their
    partners.
    """
    gradients = [event for event in timeline if event.direction == "gradient" and event in partner]
    if not gradients:
        return set()
    mine, theirs = Producers(timeline), Producers(other)
    end = max((event.index for event in timeline if event.direction != "gradient"), default=-1)
    events: set[Event] = set()
    for event in gradients:
        twin = partner[event]
        if event.record == twin.record:
            continue
        calls = [other.backward_of(user) for user in theirs.users(twin.parts.path)]
        made = [
            backward for user in mine.users(event.parts.path) if (backward := timeline.backward_of(user)) is not None
        ]
        to_come = any(call is not None and call not in back for call in calls)
        # A call is recorded before what it adds to the gradient of an earlier backward pass is.
        sums = len({call.stem for call in made}) < len(made)
        if to_come or (sums and any(call.index == end for call in made)):
            events |= {event, twin}
    return events

"""All calls of both sides in one order of execution, for those who show a whole step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.diagnose.pairing.match import Pairing
    from msprobe.diagnose.steps.timeline import Event


def in_order(pairing: Pairing) -> Iterator[tuple[Event | None, Event | None]]:
    """All events of both sides in one order of execution, each with its partner; None where it has none."""
    missing = _after(pairing.reference.events, pairing.back)
    yield from ((None, event) for event in missing.get(None, ()))
    for event in pairing.candidate:
        yield event, pairing.partner.get(event)
        yield from ((None, event) for event in missing.get(event, ()))


def _after(reference: Sequence[Event], back: dict[Event, Event]) -> dict[Event | None, list[Event]]:
    """The unpaired events of the reference, by the candidate's event that they follow; None: before all.

    Where the sides have another order, that is the last of all events whose partners came before: what comes late in
    the reference does not stand among what came early.
    """
    after: dict[Event | None, list[Event]] = {}
    last: Event | None = None
    for event in reference:
        twin = back.get(event)
        if twin is None:
            after.setdefault(last, []).append(event)
        elif last is None or twin.index > last.index:
            last = twin
    return after

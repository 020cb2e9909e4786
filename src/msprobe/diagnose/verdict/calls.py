"""All calls of one step of one rank with what was judged of them, for those who show a whole step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from msprobe.diagnose.origin.scene import Scene
    from msprobe.diagnose.pairing.match import Pairing
    from msprobe.diagnose.steps.timeline import Direction, Event

#: As :data:`msprobe.diagnose.tolerance.judge.Status`, and for calls that have no partner the side that makes them.
CallStatus = Literal["same", "rounding", "victim", "guilty", "candidate_only", "reference_only"]


@dataclass(frozen=True)
class Call:
    """One call, and how its result compares with that of its partner.

    ``order`` is its place in the order of execution (a call of the reference alone has that of the reference);
    ``arrived`` the largest relative difference of what went in, ``left`` that of what came out, and ``allowed`` how
    much of the latter rounding and ``arrived`` explain. All three are 0 for calls without partner.
    """

    name: str
    order: int
    direction: Direction
    module: str | None
    status: CallStatus
    arrived: float = 0.0
    left: float = 0.0
    allowed: float = 0.0


@dataclass(frozen=True)
class StepCalls:
    """The calls of one step of one rank, in the candidate's order of execution."""

    step: int | None
    rank: int | str
    calls: tuple[Call, ...]


def calls_of(scene: Scene) -> StepCalls:
    """All calls of a scene; those of the reference alone stand behind the call that they follow there."""
    pairing = scene.pairing
    found: list[Call] = []
    for event, partner in in_order(pairing):
        if event is None or partner is None:
            lone = event or partner
            assert lone is not None
            found.append(_alone(lone, "reference_only" if event is None else "candidate_only"))
            continue
        judged = scene.judged[event]
        found.append(
            Call(
                event.name,
                _order(event),
                event.direction,
                event.module,
                judged.status,
                judged.arrived,
                judged.left,
                judged.allowed,
            )
        )
    return StepCalls(pairing.candidate.step, pairing.candidate.rank, tuple(found))


def in_order(pairing: Pairing) -> Iterator[tuple[Event | None, Event | None]]:
    """All events of both sides in one order of execution, each with its partner; None where it has none."""
    missing = _after(pairing.reference.events, pairing.back)
    yield from ((None, one) for one in missing.get(None, ()))
    for event in pairing.candidate:
        yield event, pairing.partner.get(event)
        yield from ((None, one) for one in missing.get(event, ()))


def _after(reference: Sequence[Event], back: dict[Event, Event]) -> dict[Event | None, list[Event]]:
    """The unpaired events of the reference, by the candidate's event that they follow; None: before all.

    Where the sides have another order, that is the last of all events whose partners came before: what comes late in
    the reference does not stand among what came early.
    """
    found: dict[Event | None, list[Event]] = {}
    last: Event | None = None
    for event in reference:
        twin = back.get(event)
        if twin is None:
            found.setdefault(last, []).append(event)
        elif last is None or twin.index > last.index:
            last = twin
    return found


def _alone(event: Event, status: CallStatus) -> Call:
    return Call(event.name, _order(event), event.direction, event.module, status)


def _order(event: Event) -> int:
    return event.order if event.order is not None else event.index

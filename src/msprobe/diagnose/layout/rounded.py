"""How many calls have rounded a tensor on its way, and to which unit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.layout.blocks import Rank
from msprobe.diagnose.layout.sides import LayoutSide
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance import units


class Rounded:
    """Counts the calls of a step that round, on either side, in order of execution. ``unit``: of the coarsest type that
    many of them compute in, which under autocast is not the type of what modules give.
    """

    def __init__(self, candidate: LayoutSide, reference: LayoutSide) -> None:
        self._sides = candidate, reference
        self._counts = [{rank: _counts(timeline) for rank, timeline in side.timelines.items()} for side in self._sides]
        self._forward = [
            {
                rank: sum(_rounds(event) for event in timeline if event.direction == "forward")
                for rank, timeline in side.timelines.items()
            }
            for side in self._sides
        ]
        #: Ranks that have other modules, as the stages of a pipeline: what one does follows from what the others did.
        self._elsewhere = [
            _calls_elsewhere(side, counts) for side, counts in zip(self._sides, self._counts, strict=True)
        ]
        self.unit = max(units.common_unit(timeline) for side in self._sides for timeline in side.timelines.values())

    def until(self, events: Mapping[Rank, Event], partner: Event) -> int:
        """How many calls rounded before these records of the candidate, or that of any rank of the reference, ended;
        the larger number of both.
        """
        rounded = [self._counts[0][rank][event.index] + self._elsewhere[0][rank] for rank, event in events.items()]
        for rank, timeline in self._sides[1].timelines.items():
            if partner.index < len(timeline) and timeline.events[partner.index] is partner:
                rounded.append(self._counts[1][rank][partner.index] + self._elsewhere[1][rank])
        return max(rounded, default=0)

    def before(self, events: Mapping[Rank, Event], partner: Event) -> int:
        """The same before they began: without the calls inside them."""
        inside = (sum(map(_rounds, calls_inside(event))) for event in (*events.values(), partner))
        return max(0, self.until(events, partner) - max(inside, default=0))

    @property
    def forward(self) -> int:
        """How many calls rounded in the whole forward pass, on the rank with most."""
        return max((forward for forward_by_rank in self._forward for forward in forward_by_rank.values()), default=0)


def calls_inside(event: Event) -> list[Event]:
    """The calls that ran in a pass of a module, and in modules inside it."""
    return [call for call in event.inside() if not call.children]


def unit_inside(*events: Event) -> float:
    """The unit of the coarsest type that calls in these passes take or give."""
    return max(
        (units.unit(call.inputs(), call.outputs()) for event in events for call in calls_inside(event)), default=0.0
    )


def _counts(timeline: Timeline) -> list[int]:
    return list(accumulate(map(_rounds, timeline)))


def _rounds(event: Event) -> bool:
    """True for a call that may round, and for a module in which no call was recorded."""
    if event.direction not in ("forward", "recompute", "backward"):
        return False
    if event.is_call:
        return operation(event.stem) not in operators.MOVES
    return event.is_module and not event.children


def _calls_elsewhere(side: LayoutSide, counts: Mapping[Rank, list[int]]) -> dict[Rank, int]:
    """By rank, how many calls round on ranks that have other modules: on one of each sort."""
    modules = {
        rank: frozenset(place.path for place, ranks in side.records.items() if rank in ranks) for rank in side.ranks
    }
    totals: dict[frozenset[str], int] = {}
    for rank, own in modules.items():
        totals[own] = max(totals.get(own, 0), counts[rank][-1] if counts[rank] else 0)
    return {rank: sum(totals.values()) - totals[own] for rank, own in modules.items()}

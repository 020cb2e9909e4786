"""The steps and ranks that are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msprobe.diagnose.verdict.common import Rank, Step, in_common
from msprobe.store.reader import Dump
from msprobe.view.protocol import Whose


@dataclass(frozen=True)
class StepAndRank:
    """One step and rank: of the candidate, of the reference, or of both. A rank without number is its folder's name."""

    step: Step
    rank: Rank
    candidate: tuple[Step, Rank] | None
    reference: tuple[Step, Rank] | None

    @property
    def side(self) -> Whose:
        """0 both, 1 the candidate alone, 2 the reference alone."""
        if self.candidate is None:
            return 2
        return 0 if self.reference is not None else 1


def places_of(candidate: Dump, reference: Dump | None, by_rank: bool = True) -> list[StepAndRank]:
    """All steps and ranks in order: those that both have, and those of one side alone. ``by_rank``: false for runs in
    different layouts, whose ranks do not answer to each other.
    """
    if reference is None:
        return [
            StepAndRank(step, rank, (step, rank), None) for step in candidate.steps for rank in candidate.ranks(step)
        ]
    places: list[StepAndRank] = []
    taken: tuple[set[tuple[Step, Rank]], set[tuple[Step, Rank]]] = (set(), set())
    for step in in_common(candidate, reference, by_rank).steps:
        for rank, twin in step.ranks:
            places.append(StepAndRank(step.candidate, rank, (step.candidate, rank), (step.reference, twin)))
            taken[0].add((step.candidate, rank))
            taken[1].add((step.reference, twin))
    for side, dump in enumerate((candidate, reference)):
        for at in dump.steps:
            for rank in dump.ranks(at):
                if (at, rank) not in taken[side]:
                    where = (at, rank)
                    places.append(StepAndRank(at, rank, where if side == 0 else None, where if side else None))
    return sorted(places, key=_place_order)


def _place_order(place: StepAndRank) -> tuple[Any, ...]:
    rank = (0, place.rank, "") if isinstance(place.rank, int) else (1, 0, place.rank)
    return (-1 if place.step is None else place.step, *rank, place.side)

"""Suspects that are one on many ranks: one is kept, with the ranks that it is on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.ledger import Suspect


def but_for_its_rank(finding: Finding) -> Hashable:
    """What a finding says, without its rank and its numbers: those that agree in it are one on several ranks."""
    one_of_many = isinstance(finding.rank, int) or finding.rank
    where = finding.where, finding.entry, finding.module
    return finding.kind, finding.cause, finding.harmless, finding.direction, finding.step, one_of_many, *where


class OnRanks:
    """The ranks of each suspect, also of those that are not kept."""

    def __init__(self) -> None:
        self._ranks: defaultdict[Hashable, set[int]] = defaultdict(set)

    def add(self, suspects: Iterable[Suspect]) -> None:
        """Suspects of a rank."""
        for suspect in suspects:
            if isinstance(suspect.finding.rank, int):
                self._ranks[but_for_its_rank(suspect.finding)].add(suspect.finding.rank)

    def noted(self, suspect: Suspect) -> Suspect:
        """The suspect, with the ranks that it is on if they are several."""
        ranks = self._ranks.get(but_for_its_rank(suspect.finding), ())
        return (
            suspect
            if len(ranks) < 2
            else replace(suspect, finding=replace(suspect.finding, ranks=tuple(sorted(ranks))))
        )


def once(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects in their order; of those that are one on several ranks, as was noted, the first alone."""
    kept = {id(suspect) for suspect in first_of_each([suspect for suspect in suspects if suspect.finding.ranks])}
    return [suspect for suspect in suspects if not suspect.finding.ranks or id(suspect) in kept]


def first_of_each(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Of suspects that are one on several ranks the first of them, in their order."""
    kept: dict[tuple[Hashable, object], Suspect] = {}
    for number, suspect in enumerate(suspects):
        # Two of one rank are two.
        several = None if isinstance(suspect.finding.rank, int) else number
        first = kept.setdefault((but_for_its_rank(suspect.finding), several), suspect)
        if first is not suspect and first.finding.rank == suspect.finding.rank:
            kept[but_for_its_rank(suspect.finding), (number,)] = suspect
    return list(kept.values())

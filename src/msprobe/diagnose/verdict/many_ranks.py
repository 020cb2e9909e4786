"""The results of a step of many ranks, with as many suspects as the answer can need.

A thousand ranks that one of them has spoilt have a hundred suspects each. The findings that are reported are the first
of the heaviest; so of those that weigh the same in every respect, the first of all ranks are kept.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable

from msprobe.diagnose.evidence import ResultFact
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.verdict.conclusion import MOST_FINDINGS, ComparedRank, is_rounding, is_wrong, stands_out
from msprobe.diagnose.verdict.on_ranks import OnRanks, first_of_each

#: So often all that is kept is looked at, and what came since.
_AT_ONCE = 16


def with_first_suspects(results: Iterable[ComparedRank], most: int = 2 * MOST_FINDINGS) -> list[ComparedRank]:
    """The results, each with those of its suspects that are among the ``most`` first of their weight on all ranks; what
    is one on several ranks has all of them, also of those that are not kept. Suspects and doubts of each are in order;
    the lists are changed.
    """
    kept: list[ComparedRank] = []
    suspects, doubts = OnRanks(), OnRanks()
    for number, result in enumerate(results, 1):
        kept.append(result)
        suspects.add(result.suspects)
        doubts.add(result.doubts)
        if number % _AT_ONCE == 0:
            _trim(kept, most)
    for result in kept:
        result.suspects[:] = map(suspects.noted, result.suspects)
        result.doubts[:] = map(doubts.noted, result.doubts)
    return kept


def _trim(results: list[ComparedRank], most: int) -> None:
    for name in ("suspects", "doubts"):
        by_weight: defaultdict[Hashable, list[tuple[int, float, int, Suspect]]] = defaultdict(list)
        for number, result in enumerate(results):
            for suspect in getattr(result, name):
                by_weight[_weight(suspect)].append(
                    (bisect_left(result.collectives, suspect.place), suspect.place, number, suspect)
                )
        if all(len(alike) <= most for alike in by_weight.values()):
            continue
        ordered = (
            [suspect for *_, suspect in sorted(alike, key=lambda item: item[:3])] for alike in by_weight.values()
        )
        left = {id(suspect) for alike in ordered for suspect in first_of_each(alike)[:most]}
        for result in results:
            suspects: list[Suspect] = getattr(result, name)
            suspects[:] = [suspect for suspect in suspects if id(suspect) in left]


def _weight(suspect: Suspect) -> Hashable:
    """All that the conclusion asks of a suspect but its place: two that answer alike weigh the same."""
    result = suspect.finding.fact(ResultFact)
    judged = result is None or math.isfinite(result.explained)
    kind = suspect.finding.kind, suspect.finding.cause, suspect.shows_later
    return (
        *kind,
        suspect.clear,
        suspect.matters,
        suspect.begins,
        suspect.decisive,
        judged,
        is_rounding(suspect),
        is_wrong(suspect),
        stands_out(suspect),
    )

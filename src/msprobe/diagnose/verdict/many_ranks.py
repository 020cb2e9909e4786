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
        found: defaultdict[Hashable, list[tuple[int, float, int, Suspect]]] = defaultdict(list)
        for number, result in enumerate(results):
            for one in getattr(result, name):
                found[_weight(one)].append((bisect_left(result.collectives, one.place), one.place, number, one))
        if all(len(alike) <= most for alike in found.values()):
            continue
        ordered = ([one for *_, one in sorted(alike, key=lambda item: item[:3])] for alike in found.values())
        left = {id(one) for alike in ordered for one in first_of_each(alike)[:most]}
        for result in results:
            suspects: list[Suspect] = getattr(result, name)
            suspects[:] = [one for one in suspects if id(one) in left]


def _weight(one: Suspect) -> Hashable:
    """All that the conclusion asks of a suspect but its place: two that answer alike weigh the same."""
    result = one.finding.fact(ResultFact)
    judged = result is None or math.isfinite(result.explained)
    kind = one.finding.kind, one.finding.cause, one.shows_later
    return (
        *kind,
        one.clear,
        one.matters,
        one.begins,
        one.decisive,
        judged,
        is_rounding(one),
        is_wrong(one),
        stands_out(one),
    )

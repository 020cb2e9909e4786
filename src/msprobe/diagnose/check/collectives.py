"""Ranks of a group that get different results from one collective, or take part with tensors that do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msprobe.diagnose import operators
from msprobe.diagnose.check.across import Across
from msprobe.diagnose.check.exchange import Results
from msprobe.diagnose.check.moment import Leaf
from msprobe.diagnose.check.values import has_values, measured
from msprobe.diagnose.differences.records import fingerprint, statistics_difference
from msprobe.diagnose.differences.words import NO_RELATION, Relation
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.communication import Rank
from msprobe.messages import said


def check(across: Across) -> Iterable[Finding]:
    """Each collective whose results should be the same on all ranks and are not."""
    exchange = across.exchange
    for node in exchange.nodes:
        if len(node) < 2 or exchange.word(node) not in operators.SAME_ON_ALL_RANKS:
            continue
        results = exchange.results(node)
        first = next(iter(results.values()))
        if all(result is first for result in results.values()):
            continue  # Equal ones are one object.
        finding = _unlike(across, exchange.names(node), exchange.word(node), results)
        if finding is not None:
            yield finding


def _unlike(across: Across, names: dict[Rank, str], word: str, leaves_by_rank: dict[Rank, Results]) -> Finding | None:
    results = {rank: leaves for rank, leaves in leaves_by_rank.items() if leaves}
    if len(results) < len(leaves_by_rank) or len({len(leaves) for leaves in results.values()}) > 1:
        return None
    for place in range(len(next(iter(results.values())))):
        leaves = {rank: made[place] for rank, made in results.items()}
        if not all(map(has_values, leaves.values())):
            continue
        shapes = {str(leaf.get("shape")) for leaf in leaves.values()}
        marks = {rank: fingerprint(leaf) for rank, leaf in leaves.items()}
        if len(shapes) == 1 and (len(set(marks.values())) == 1 or None in marks.values()):
            continue
        counts = Counter(marks.values())
        usual = next(rank for rank in marks if marks[rank] == counts.most_common(1)[0][0])
        odd = [rank for rank in marks if marks[rank] != marks[usual]]
        rank = _suspect(usual, odd, leaves)
        name = names[rank]
        other = odd[0] if rank == usual else usual
        relation = NO_RELATION
        if len(shapes) > 1:
            message = said("collective-shapes-differ", name, ", ".join(sorted(shapes)))
        else:
            relation = Relation(f"{statistics_difference(leaves[rank], leaves[other]):.2g}", is_distance=True)
            message = said("collective-results-differ", word, rank, other, relation)
        return across.finding(
            rank,
            name,
            "collective",
            message,
            evidence={
                "ranks": sorted(map(str, leaves)),
                "results": {str(rank): measured(leaf) for rank, leaf in leaves.items()},
            },
            relation=relation.brief(),
        )
    return None


def _suspect(usual: Rank, odd: list[Rank], leaves: dict[Rank, Leaf]) -> Rank:
    """The rank that is wrong: the one in the minority; of two, the one with more zeros or the smaller norm."""
    if len(leaves) > 2:
        return odd[0]
    return min((usual, odd[0]), key=lambda rank: (-_zeros(leaves[rank]), _norm(leaves[rank])))


def _zeros(leaf: Leaf) -> int:
    zeros = leaf.get("zero")
    return zeros if isinstance(zeros, int) else 0


def _norm(leaf: Leaf) -> float:
    norm = leaf.get("Norm")
    return float(norm) if isinstance(norm, (int, float)) else 0.0

"""Ranks of a group that get different results from one collective, or take part with tensors that do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msprobe.diagnose import operators
from msprobe.diagnose.check import communication
from msprobe.diagnose.check.moment import Leaf, Moment, Rank
from msprobe.diagnose.check.values import has_values, measured
from msprobe.diagnose.differences.records import fingerprint, of_statistics
from msprobe.diagnose.differences.words import NO_RELATION, Relation
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.wording import Wording


def check(moment: Moment) -> Iterable[Finding]:
    """Each collective whose results should be the same on all ranks and are not."""
    if len(moment.timelines) < 2:
        return
    exchange = moment.exchange
    for node in exchange.nodes:
        if len(node) < 2 or exchange.word(node) not in operators.SAME_ON_ALL_RANKS:
            continue
        names = exchange.names(node)
        found = _unlike(moment, {rank: moment.timelines[rank].by_name[name] for rank, name in names.items()})
        if found is not None:
            yield found


def _unlike(moment: Moment, members: dict[Rank, Event]) -> Finding | None:
    results = {rank: communication.written(event, rank) for rank, event in members.items()}
    if any(event.record.get("completed") is False for event in members.values()):
        return None
    if not all(results.values()) or len({len(leaves) for leaves in results.values()}) > 1:
        return None
    for place in range(len(next(iter(results.values())))):
        leaves = {rank: found[place] for rank, found in results.items()}
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
        event = members[rank]
        other = odd[0] if rank == usual else usual
        word = communication.api(event)
        relation = NO_RELATION
        if len(shapes) > 1:
            message = Wording(
                "the ranks get results of different shapes from {}: {}", event.name, ", ".join(sorted(shapes))
            )
        else:
            relation = Relation(f"{of_statistics(leaves[rank], leaves[other]):.2g}", is_distance=True)
            message = Wording(
                "{} gives rank {} another result than rank {} "
                "({}): data was lost or changed on "
                "its way, or the ranks are at different calls",
                word,
                rank,
                other,
                relation,
            )
        return moment.finding(
            moment.timelines[rank],
            event,
            "collective",
            message,
            evidence={
                "ranks": sorted(map(str, leaves)),
                "results": {str(one): measured(leaf) for one, leaf in leaves.items()},
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
    found = leaf.get("zero")
    return found if isinstance(found, int) else 0


def _norm(leaf: Leaf) -> float:
    found = leaf.get("Norm")
    return float(found) if isinstance(found, (int, float)) else 0.0

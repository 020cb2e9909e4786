"""What the ranks of one step say of each other: which calls of other ranks a communication call answers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msprobe.graph.communication import CommunicationCall, partners
from msprobe.graph.node_texts import GraphSide, Written
from msprobe.graph.vis_file import Place


@dataclass(frozen=True)
class Ends:
    """The communication calls of one side of one rank, with what is shown of each: its index or its overflow level.

    ``places``: where the partners of a node are to be put in its file.
    """

    source: GraphSide
    step: int
    rank: int
    calls: tuple[CommunicationCall, ...]
    rated: Mapping[int, str]
    places: Mapping[int, int] = field(default_factory=dict)


def ends_of(written: Written, places: Mapping[Place, int] | None = None) -> tuple[Ends, ...]:
    """The communication calls of all sides of a graph."""
    ends = []
    for source, side in written.sides:
        order, names = side.tree.order, side.tree.names
        index = written.comparison.index if written.comparison is not None and source == "NPU" else None
        # The ranks of groups are those that have a call in it: not what each of 1,024 ranks names.
        calls = tuple(
            CommunicationCall(
                node, names[node], tuple(replace(exchange, ranks=()) for exchange in side.exchanges[node])
            )
            for node in sorted(side.exchanges, key=lambda exchange: order[exchange])
        )
        rated: dict[int, str] = {}
        for call in calls:
            if written.overflow_check:
                rated[call.node] = str(side.overflow.get(call.node, "Nan"))
            else:
                value = None if index is None else index[call.node]
                rated[call.node] = "Nan" if value is None else str(value)
        own = {node: offset for (exchange_source, node), offset in (places or {}).items() if exchange_source == source}
        ends.append(Ends(source, side.step, side.rank, calls, rated, own))
    return tuple(ends)


def find_partners(graphs: Sequence[tuple[Ends, ...]]) -> tuple[list[list[Mapping[int, Any]]], int]:
    """For each graph of one step and each of its sides, by node, what files hold as ``matched_distributed``.

    With it, how many transfers between two ranks found no other end.
    """
    meetings: list[list[Mapping[int, Any]]] = [[{} for _ in ends] for ends in graphs]
    if len(graphs) < 2:
        return meetings, 0
    lost = 0
    for number in range(len(graphs[0])):
        by_rank = {ends[number].rank: ends[number] for ends in graphs}
        calls = {rank: ends.calls for rank, ends in by_rank.items()}
        nodes, alone = partners(calls, partial(_rated, by_rank))
        lost += alone
        for graph, ends in zip(meetings, graphs, strict=True):
            graph[number] = nodes.get(ends[number].rank, {})
    return meetings, lost


def _rated(sides: Mapping[int, Ends], rank: int, node: int) -> str:
    return sides[rank].rated[node]

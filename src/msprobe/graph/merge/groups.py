"""Which ranks belong together: as the dump says by its collectives, else by the order of the layout."""

from __future__ import annotations

from collections.abc import Mapping

from msprobe.graph.communication import RECEIVES, SENDS
from msprobe.graph.merge.layout import ParallelLayout
from msprobe.graph.side import GraphOfSide

_OF_SLICES = frozenset(
    ("all_reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor", "all_gather_into_tensor")
)


def tensor_groups(sides: Mapping[int, GraphOfSide], layout: ParallelLayout) -> list[tuple[int, ...]]:
    """The tensor parallel groups: those of reductions, where their size fits and they cover all ranks once."""
    found_groups: dict[tuple[int, ...], None] = {}
    for side in sides.values():
        for exchanges in side.exchanges.values():
            for exchange in exchanges:
                if exchange.api in _OF_SLICES and len(exchange.ranks) == layout.tp:
                    found_groups[tuple(sorted(exchange.ranks))] = None
    groups = sorted(found_groups)
    whole = sorted(rank for group in groups for rank in group) == sorted(sides)
    return groups if whole else layout.groups("tp")


def pipeline_groups(sides: Mapping[int, GraphOfSide], layout: ParallelLayout) -> list[tuple[int, ...]]:
    """The ranks of each pipeline, first stage first: those that send to each other, where their number fits."""
    linked: dict[int, set[int]] = {rank: {rank} for rank in sides}
    for rank, side in sides.items():
        for exchanges in side.exchanges.values():
            for exchange in exchanges:
                if exchange.peer in linked and exchange.api in SENDS | RECEIVES:
                    union = linked[rank] | linked[exchange.peer]
                    for other in union:
                        linked[other] = union
    groups = sorted({tuple(sorted(group)) for group in linked.values()})
    return groups if all(len(group) == layout.pp for group in groups) else layout.groups("pp")

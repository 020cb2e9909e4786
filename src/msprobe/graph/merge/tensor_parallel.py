"""Ranks of a tensor parallel group as one: each holds a slice of the same tensors.

Of tensors that differ between the ranks, the largest and smallest value, the mean of the means and the norm of the
norms are taken; those that are equal stay. What a row parallel layer multiplies is a partial sum on each rank: the
result of the reduction that follows stands for it (backward: of a column parallel layer). Rules: mindstudio-probe 8.3
and 26.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msprobe.graph.node_kinds import CALL
from msprobe.graph.side import GraphOfSide, Parameter
from msprobe.messages import said, translated
from msprobe.statistics_table import USUAL_KEYS

_SAME = 1e-6
_REDUCTIONS = ("all_reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor")
_PRODUCTS = ("linear", "matmul", "bmm", "mm", "addmm")


def merge_slices(sides: Sequence[GraphOfSide]) -> GraphOfSide:
    """The ranks of one group as one side, by the tree of the first."""
    first = sides[0]
    if len(sides) == 1:
        return first
    merged = dict(first.merged)
    inputs, outputs = list(first.inputs), list(first.outputs)
    for node, name in enumerate(first.tree.names):
        nodes = [side.tree.numbers.get(name) for side in sides]
        if any(node is None for node in nodes):
            continue
        notes: list[str] = []
        for column, attribute in ((inputs, "inputs"), (outputs, "outputs")):
            parameters_by_rank = [getattr(side, attribute)[node] for side, node in zip(sides, nodes, strict=True)]
            column[node] = _merge(parameters_by_rank, [side.rank for side in sides], notes)
        if notes:
            merged[node] = merged.get(node, []) + notes
    whole = replace(first, inputs=inputs, outputs=outputs, merged=merged)
    _take_reduced(whole)
    return whole


def _merge(by_rank: list[Sequence[Parameter]], ranks: list[int], notes: list[str]) -> Sequence[Parameter]:
    if any(len(parameters) != len(by_rank[0]) for parameters in by_rank):
        return by_rank[0]
    merged: list[Parameter] = []
    for same in zip(*by_rank, strict=True):
        name = same[0][0]
        leaves = [leaf for _, leaf in same]
        if not _differ(leaves):
            merged.append(same[0])
            continue
        norms = [leaf["Norm"] for leaf in leaves]
        values = {
            "Max": max(leaf["Max"] for leaf in leaves),
            "Min": min(leaf["Min"] for leaf in leaves),
            "Mean": sum(leaf["Mean"] for leaf in leaves) / len(leaves),
            "Norm": math.sqrt(sum(norm * norm for norm in norms)),
        }
        merged.append((name, {**leaves[0], **values}))
        of = ", ".join(map(str, ranks))
        notes.append(
            f"{name}: of ranks {of}: Max = max, Min = min, Mean = average, Norm = sqrt(sum of squares): "
            f"sqrt({' + '.join(f'{norm}^2' for norm in norms)}) = {values['Norm']}"
        )
    return merged


def _differ(leaves: list[Any]) -> bool:
    if not all(isinstance(leaf, dict) and "dtype" in leaf for leaf in leaves):
        return False
    numbers = [[leaf.get(name) for name in USUAL_KEYS] for leaf in leaves]
    if any(type(value) not in (int, float) for row in numbers for value in row):
        return False
    first = numbers[0]
    return any(not math.isclose(row[place], first[place], rel_tol=_SAME) for row in numbers[1:] for place in (2, 3))


def _take_reduced(side: GraphOfSide) -> None:
    """Replace results that are partial sums by those of the reduction behind them in the same module."""
    tree = side.tree
    for node, name in enumerate(tree.names):
        forward = "RowParallel" in name and ".forward." in name
        backward = "ColumnParallel" in name and ".backward." in name
        if not (forward or backward):
            continue
        product: int | None = None
        for child in tree.children(node):
            words = tree.names[child].split(".")
            if tree.kinds[child] != CALL or len(words) < 2:
                continue
            if words[1] in _PRODUCTS:
                product = child
            elif words[0] == "Distributed" and words[1] in _REDUCTIONS and product is not None:
                _replace_results(side, product, child)
                product = None


def _replace_results(side: GraphOfSide, product: int, reduction: int) -> None:
    reduced = [leaf for _, leaf in side.outputs[reduction] if isinstance(leaf, dict) and "dtype" in leaf]
    results = list(side.outputs[product])
    if not reduced or not results or not isinstance(results[0][1], dict):
        return
    results[0] = (results[0][0], reduced[0])
    outputs = side.outputs
    outputs[product] = results
    note = translated(said("partial-sum-merged", results[0][0], side.tree.names[reduction]))
    side.merged.setdefault(product, []).append(note)

"""Which node of one hierarchy answers to which of the other.

- ``aligned`` (the default): as the verdict pairs them; names may differ and a call more or less shifts nothing.
- ``strict``: the same name, place, number of arguments, types and shapes, as mindstudio-probe 8.1.1.
- ``fuzzy``: modules of the same name and shapes; the calls in them by their order, as its ``-f``.
- a layer mapping: the same place in the model after renaming, as its ``-lm``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from msprobe.compare.entry_names import read_name
from msprobe.compare.layers import pair_entries
from msprobe.compare.mapping_files import LayerMapping
from msprobe.diagnose.pairing.rows import records_of_verdict
from msprobe.graph.node_kinds import CALL, GROUP, MODULE
from msprobe.graph.side import GraphOfSide, Parameter
from msprobe.graph.tree import Tree
from msprobe.store.part import DumpPart

Mode = Literal["aligned", "strict", "fuzzy"]
Partners = npt.NDArray[np.int32]


def match(
    candidate: GraphOfSide,
    reference: GraphOfSide,
    parts: tuple[DumpPart, DumpPart],
    mode: Mode,
    mapping: LayerMapping | None,
) -> Partners:
    """The partner in the reference of each node of the candidate; -1 for none."""
    if mapping is not None:
        return _by_names(candidate.tree, reference.tree, pair_entries(*parts, mapping))
    if mode == "strict":
        return _strict(candidate, reference)
    if mode == "fuzzy":
        return _fuzzy(candidate, reference)
    return aligned(candidate.tree, reference.tree, parts)


def aligned(candidate: Tree, reference: Tree, parts: tuple[DumpPart, DumpPart]) -> Partners:
    """Partners by the pairs of the verdict. It reads the dumps itself, and needs no arguments of the sides."""
    return _by_names(candidate, reference, records_of_verdict(*parts))


def _by_names(candidate: Tree, reference: Tree, names: dict[str, str]) -> Partners:
    """Partners by the pairs of records; what has no record of its own goes with what it holds."""
    partner = np.full(len(candidate), -1, np.int32)
    taken = bytearray(len(reference))
    partner[0] = 0
    taken[0] = 1
    for name, other in names.items():
        left, right = candidate.numbers.get(name), reference.numbers.get(other)
        if left is not None and right is not None:
            partner[left], taken[right] = right, 1
    # From the inside out: what is around paired nodes is known when its own turn comes.
    for node in candidate.by_order.tolist():
        name = candidate.names[node]
        if partner[node] >= 0 or candidate.kinds[node] == CALL:
            continue
        there = None if candidate.kinds[node] == GROUP else reference.numbers.get(name)
        # Optimizers, clipping and unfinished passes have no record; gradients of parameters go by their names.
        other_node = _around(candidate, reference, partner, taken, node) if there is None or taken[there] else there
        if other_node > 0 and not taken[other_node] and reference.kinds[other_node] == candidate.kinds[node]:
            partner[node], taken[other_node] = other_node, 1
    return partner


def _around(candidate: Tree, reference: Tree, partner: Partners, taken: bytearray, node: int) -> int:
    """The node of the reference, still free, that holds most partners of what a node holds; -1 for none."""
    around = Counter(
        int(reference.parents[partner[child]]) for child in candidate.children(node) if partner[child] >= 0
    )
    kind = candidate.kinds[node]
    candidates = [
        (count, -other) for other, count in around.items() if reference.kinds[other] == kind and not taken[other]
    ]
    return -max(candidates)[1] if candidates else -1


def _strict(candidate: GraphOfSide, reference: GraphOfSide) -> Partners:
    left, right = candidate.tree, reference.tree
    partner = np.full(len(left), -1, np.int32)
    todo = [0]
    # From the top down: a place is the same if the place of the parent is.
    while todo:
        node = todo.pop()
        todo += left.children(node)
        other = right.numbers.get(left.names[node])
        if other is None or not _alike(candidate, node, reference, other):
            continue
        above, other_above = int(left.parents[node]), int(right.parents[other])
        if _same_place(left, above, right, other_above):
            partner[node] = other
    return partner


def _same_place(left: Tree, node: int, right: Tree, other: int) -> bool:
    while node >= 0 and other >= 0:
        if left.names[node] != right.names[other]:
            return False
        node, other = int(left.parents[node]), int(right.parents[other])
    return node == other


def _fuzzy(candidate: GraphOfSide, reference: GraphOfSide) -> Partners:
    left, right = candidate.tree, reference.tree
    partner = np.full(len(left), -1, np.int32)
    for node, name in enumerate(left.names):
        if left.kinds[node] == CALL:
            continue
        other = right.numbers.get(name)
        if other is None or right.kinds[other] == CALL or not _same_shapes(candidate, node, reference, other):
            continue
        partner[node] = other
        calls = _counted(left, node)
        there = {key: child for child, key in _counted(right, other)}
        for child, key in calls:
            twin = there.get(key)
            if twin is not None and _same_shapes(candidate, child, reference, twin):
                partner[child] = twin
    return partner


def _counted(tree: Tree, node: int) -> list[tuple[int, tuple[str, str, int]]]:
    """The calls right in a node, each with name, direction and how many of them came before."""
    count: Counter[tuple[str, str]] = Counter()
    counted = []
    for child in tree.children(node):
        if tree.kinds[child] != CALL:
            continue
        parts = read_name(tree.names[child])
        key = (parts.stem, parts.direction)
        counted.append((child, (*key, count[key])))
        count[key] += 1
    return counted


def _alike(candidate: GraphOfSide, node: int, reference: GraphOfSide, other: int) -> bool:
    """The same number of arguments and results, with the same types and shapes."""
    for mine, theirs in (
        (candidate.inputs[node], reference.inputs[other]),
        (candidate.outputs[node], reference.outputs[other]),
    ):
        if len(mine) != len(theirs):
            return False
        if any(_form(a) != _form(b) for a, b in zip(mine, theirs, strict=True)):
            return False
    return True


def _same_shapes(candidate: GraphOfSide, node: int, reference: GraphOfSide, other: int) -> bool:
    """The same shapes, as far as both sides have arguments and results."""
    pairs = (candidate.inputs[node], reference.inputs[other]), (candidate.outputs[node], reference.outputs[other])
    return all(_form(a)[1] == _form(b)[1] for mine, theirs in pairs for a, b in zip(mine, theirs, strict=False))


def _form(parameter: Parameter) -> tuple[Any, Any]:
    leaf = parameter[1]
    return (leaf.get("type"), leaf.get("shape")) if type(leaf) is dict else (type(leaf), None)


def paired_parameters(
    candidate: GraphOfSide, node: int, reference: GraphOfSide, other: int
) -> list[tuple[Parameter, Any]]:
    """The arguments, then the results of a node, each with what the partner has at its place.

    The second of a pair is the description in the reference, or :data:`NOTHING` where the reference has fewer.
    """
    counts = candidate.parameter_counts.get(node, 0), reference.parameter_counts.get(other, 0)
    mine, theirs = candidate.inputs[node], reference.inputs[other]
    ends = len(mine) - counts[0], len(theirs) - counts[1]
    pairs = _in_order(mine[: ends[0]], theirs[: ends[1]])
    if counts[0]:
        pairs += _in_order(mine[ends[0] :], theirs[ends[1] :])
    return pairs + _in_order(candidate.outputs[node], reference.outputs[other])


class _Nothing:
    """What stands where the reference has no such argument."""


NOTHING = _Nothing()


def _in_order(mine: Sequence[Parameter], theirs: Sequence[Parameter]) -> list[tuple[Parameter, Any]]:
    return [(parameter, theirs[place][1] if place < len(theirs) else NOTHING) for place, parameter in enumerate(mine)]


def unmatched(tree: Tree, partner: Partners) -> list[str]:
    """The names of modules and calls without partner, in the order of execution."""
    return [
        tree.names[node] for node in tree.by_order.tolist() if partner[node] < 0 and tree.kinds[node] in (MODULE, CALL)
    ]

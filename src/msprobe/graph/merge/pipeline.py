"""Stages of a pipeline as one graph: the layers of all stages under the first one's model, numbered on.

With virtual stages each rank holds several chunks (``Module.0...``, ``Module.1...``), and chunk 0 of all ranks comes
before chunk 1. Calls of later stages carry their rank in their names. Rules: mindstudio-probe 8.3 and 26.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from msprobe.graph.communication import OneTransfer
from msprobe.graph.node_kinds import CALL, GROUP, MODULE, ROOT
from msprobe.graph.side import GraphOfSide, Parameter
from msprobe.graph.tree import assemble

_LAYER = re.compile(r"(.*?\blayers?\.)(\d+)(\..*)")
_CHUNK = re.compile(r"(Module|Cell)\.(\d+)\.")
_ALL_RANKS = "Apis_Between_Modules_All_Ranks"
_OF_RANK = "Apis_Between_Modules_Rank"


@dataclass
class _Node:
    """A node that finds its place: where it comes from, and what is in it."""

    name: str
    kind: int
    side: GraphOfSide
    source: int
    children: list[_Node] = field(default_factory=list)


def merge_stages(sides: Sequence[GraphOfSide], ranks: Sequence[GraphOfSide]) -> GraphOfSide:
    """The stages of one pipeline as one side, by the tree of the first.

    ``ranks``: all ranks of the pipeline, those that ``sides`` stand for among them. Of what runs between modules each
    rank keeps its own.
    """
    offsets = _offsets(sides)
    roots = [_read(side, 0, number, offsets) for number, side in enumerate(sides)]
    whole = roots[0]
    free = [_free_calls(_read(side, 0, int(side is not ranks[0]), {})) for side in ranks]
    for root in roots[1:]:
        root.children = [child for child in root.children if child.kind == MODULE]
    _group_free_calls(whole, free, [side.rank for side in ranks])
    _fold_chunks(whole)
    for root in roots[1:]:
        _fold_chunks(root)
        _add(whole, root)
    _take_ends(whole, sides[-1])
    return _side_of(whole, sides[0])


def _offsets(sides: Sequence[GraphOfSide]) -> dict[tuple[int, int], int]:
    """How many layers come before those of a stage and chunk, by both numbers."""
    counts: dict[tuple[int, int], set[int]] = {}
    for stage, side in enumerate(sides):
        for name in side.tree.names:
            match = _LAYER.match(name)
            if match and name.startswith(("Module.", "Cell.")):
                counts.setdefault((_chunk(name), stage), set()).add(int(match[2]))
    offsets, before = {}, 0
    for chunk, stage in sorted(counts):
        # Some trainings number the layers of a stage from 0, others through.
        lowest = min(counts[chunk, stage])
        offsets[stage, chunk] = before - lowest
        before += len(counts[chunk, stage])
    return offsets


def _chunk(name: str) -> int:
    match = _CHUNK.match(name)
    return int(match[2]) if match else 0


def _read(side: GraphOfSide, node: int, stage: int, offsets: dict[tuple[int, int], int]) -> _Node:
    """The tree of a stage with the names that it has in the whole."""
    made: dict[int, _Node] = {}
    tree = side.tree
    for inner in tree.by_order.tolist():
        name, kind = tree.names[inner], int(tree.kinds[inner])
        made[inner] = _Node(_named(name, kind, stage, side.rank, offsets), kind, side, inner)
        made[inner].children = [made[child] for child in tree.children(inner)]
    return made[node]


def _named(name: str, kind: int, stage: int, rank: int, offsets: dict[tuple[int, int], int]) -> str:
    if kind == CALL:
        words = name.split(".")
        return f"{'.'.join(words[:-2])}_rank{rank}.{'.'.join(words[-2:])}" if stage and len(words) > 3 else name
    match = _LAYER.match(name)
    if match and kind == MODULE:
        number = int(match[2]) + offsets.get((stage, _chunk(name)), 0)
        name = f"{match[1]}{number}{match[3]}"
    return _CHUNK.sub(r"\1.0.", name, count=1)


def _fold_chunks(root: _Node) -> None:
    """Put what chunks of one name hold into the first of them."""
    kept: dict[str, _Node] = {}
    children = []
    for child in root.children:
        there = kept.get(child.name)
        if there is None or child.kind != MODULE:
            kept[child.name] = child
            children.append(child)
        else:
            _add(there, child)
    root.children = children


def _add(whole: _Node, other: _Node) -> None:
    """Put the modules of a stage, and what runs between them, into the same pass of the whole.

    Forward passes of later stages come last, backward passes first.
    """
    there = {child.name: child for child in whole.children}
    front: list[_Node] = []
    for child in other.children:
        same = there.get(child.name)
        if same is not None and child.kind == MODULE:
            _add(same, child)
        elif ".backward" in child.name:
            front.append(child)
        else:
            place = len(whole.children)
            if whole.name == ROOT:
                # Before the backward passes of the whole.
                place = next((i for i, child in enumerate(whole.children) if ".backward" in child.name), place)
            whole.children.insert(place, child)
    if front:
        place = next((i for i, child in enumerate(whole.children) if ".backward" in child.name), len(whole.children))
        whole.children[place:place] = front


def _free_calls(root: _Node) -> list[list[_Node]]:
    """The calls at the top of a rank, run by run."""
    return [
        child.children if child.kind == GROUP else [child] for child in root.children if child.kind in (GROUP, CALL)
    ]


def _group_free_calls(whole: _Node, free: list[list[list[_Node]]], ranks: list[int]) -> None:
    """Put a group for each run of calls at the top into the place of the first rank's, and in it one for each rank."""
    groups = [_Node(f"{_ALL_RANKS}.{number}", GROUP, whole.side, -1) for number in range(max(map(len, free)))]
    for runs, rank in zip(free, ranks, strict=True):
        for number, run in enumerate(runs):
            groups[number].children.append(_Node(f"{_OF_RANK}{rank}.{number}", GROUP, whole.side, -1, run))
    waiting = iter(groups)
    children = [child if child.kind == MODULE else next(waiting) for child in whole.children]
    whole.children = children + list(waiting)


def _take_ends(whole: _Node, last: GraphOfSide) -> None:
    """Passes around all layers end in the last stage: its results (backward: what arrives there) are theirs."""
    for child in whole.children:
        node = last.tree.numbers.get(child.name)
        if node is None or child.kind != MODULE or not child.children or child.side is last or _LAYER.match(child.name):
            continue
        mixed = replace(child.side, inputs=list(child.side.inputs), outputs=list(child.side.outputs))
        if ".forward." in child.name:
            mixed.outputs[child.source] = last.outputs[node]
        else:
            mixed.inputs[child.source] = last.inputs[node]
        child.side = mixed


def _side_of(whole: _Node, first: GraphOfSide) -> GraphOfSide:
    names, parents, kinds, attached = [ROOT], [-1], [MODULE], list[int]()
    inputs: list[Sequence[Parameter]] = [()]
    outputs: list[Sequence[Parameter]] = [()]
    stacks: list[Sequence[str]] = [()]
    counts: dict[int, int] = {}
    exchanges: dict[int, tuple[OneTransfer, ...]] = {}
    merged: dict[int, list[str]] = {}
    taken = {ROOT}
    todo = [(child, 0) for child in reversed(whole.children)]
    while todo:
        tree_node, parent = todo.pop()
        if tree_node.name in taken:
            continue  # the same layer on two stages: the first counts
        taken.add(tree_node.name)
        node = len(names)
        names.append(tree_node.name)
        parents.append(parent)
        kinds.append(tree_node.kind)
        attached.append(node)
        side, source = tree_node.side, tree_node.source
        old = side.tree.names[source] if source >= 0 else ""
        inputs.append(_renamed(side.inputs[source], old, tree_node.name) if source >= 0 else ())
        outputs.append(_renamed(side.outputs[source], old, tree_node.name) if source >= 0 else ())
        stacks.append(side.stacks[source] if source >= 0 else ())
        if source in side.parameter_counts:
            counts[node] = side.parameter_counts[source]
        if source in side.exchanges:
            exchanges[node] = side.exchanges[source]
        if source in side.merged:
            merged[node] = side.merged[source]
        todo += [(child, node) for child in reversed(tree_node.children)]
    tree = assemble(names, parents, kinds, attached, step=first.tree.step, rank=first.tree.rank)
    return replace(
        first,
        tree=tree,
        inputs=inputs,
        outputs=outputs,
        stacks=stacks,
        parameter_counts=counts,
        exchanges=exchanges,
        merged=merged,
        overflow={},
    )


def _renamed(parameters: Sequence[Parameter], old: str, new: str) -> Sequence[Parameter]:
    if old == new:
        return parameters
    return [(f"{new}{name[len(old) :]}" if name.startswith(old) else name, leaf) for name, leaf in parameters]

"""One step of one rank, read for a graph: its hierarchy, what went in and out of each node, where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe.compare.frameworks import Framework, framework_of
from msprobe.compare.problems import InvalidArgumentError
from msprobe.graph.communication import OneTransfer, exchanges_of
from msprobe.graph.stacks import shorten, stacks_of
from msprobe.graph.tree import Tree, read_tree
from msprobe.store.columns import leaves
from msprobe.store.part import DumpPart

Parameter = tuple[str, Any]
"""The name of an argument or a result, and what the dump says of it: an object, a plain value, or None."""

NO_FILE = "-1"


@dataclass(eq=False)
class GraphOfSide:
    """One step of one rank of one run.

    ``inputs`` and ``outputs`` hold the arguments of each node (parameters of a module among them) and its results, in
    the order of the dump; ``parameter_counts`` how many of a node's inputs, at their end, are parameters. ``stacks``
    are the frames of each node, innermost first; ``exchanges`` the transfers of communication calls. ``overflow`` and
    ``merged`` are filled by those who ask for them, by node.
    """

    tree: Tree
    task: str
    has_md5: bool
    framework: Framework | None
    dump_data_dir: str | None
    inputs: list[Sequence[Parameter]]
    outputs: list[Sequence[Parameter]]
    parameter_counts: dict[int, int]
    stacks: list[Sequence[str]]
    exchanges: dict[int, tuple[OneTransfer, ...]]
    overflow: dict[int, str] = field(default_factory=dict)
    merged: dict[int, list[str]] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The number of the step; 0 where the folder does not say."""
        return self.tree.step or 0

    @property
    def rank(self) -> int:
        """The number of the rank; 0 where the folder has none."""
        return self.tree.rank if isinstance(self.tree.rank, int) else 0


def read_side(part: DumpPart, *, complete_stacks: bool = True, tree: Tree | None = None) -> GraphOfSide:
    """Read a part of a dump; ``tree`` if it is read already. Raises InvalidInputError or PathError for broken files."""
    tree = read_tree(part) if tree is None else tree
    inputs: list[Sequence[Parameter]] = [()] * len(tree)
    outputs: list[Sequence[Parameter]] = [()] * len(tree)
    counts: dict[int, int] = {}
    has_md5 = False
    exchanges: dict[int, tuple[OneTransfer, ...]] = {}
    numbers = tree.numbers
    for name, record in part.records():
        node = numbers.get(name)
        if node is None:
            continue
        if name.startswith("Distributed.") and (exchanges_found := exchanges_of(name, record)):
            exchanges[node] = exchanges_found
        mine: list[Parameter] = []
        parameters: list[Parameter] = []
        results: list[Parameter] = []
        for slot, leaf in leaves(name, record):
            if type(leaf) is dict:
                data_name = leaf.get("data_name")
                if "md5" in leaf:
                    has_md5 = True
            else:
                data_name = None
            if isinstance(data_name, str) and data_name != NO_FILE:
                called = data_name.rpartition(".")[0] or data_name
            else:
                called = f"{name}.{slot}" if slot else name
            if slot.startswith("output"):
                results.append((called, leaf))
            elif slot.startswith("parameters."):
                parameters.append((called, leaf))
            else:
                mine.append((called, leaf))
        if parameters:
            counts[node] = len(parameters)
            mine += parameters
        inputs[node], outputs[node] = mine, results
    stacks = stacks_of(part, tree)
    header = part.header
    folder = header.get("dump_data_dir")
    return GraphOfSide(
        tree=tree,
        task=str(header.get("task") or "statistics"),
        has_md5=has_md5,
        framework=_framework(part),
        dump_data_dir=folder if isinstance(folder, str) else None,
        inputs=inputs,
        outputs=outputs,
        parameter_counts=counts,
        exchanges=exchanges,
        stacks=stacks if complete_stacks else shorten(tree, stacks),
    )


def _framework(part: DumpPart) -> Framework | None:
    try:
        return framework_of(part)
    except InvalidArgumentError:
        return None  # nothing says; a dump of the structure alone has no tensors

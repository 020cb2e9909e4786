"""The hierarchy of one step of one rank, as columns: modules, the calls in them, groups of calls between modules.

It is read from ``construct.json`` and the names in ``dump.json``; the records themselves stay unread but for a few
(bench/graph). Rules: those of mindstudio-probe 8.1.1 for its ``.vis`` files, and of 26.2.0 where they put a node in a
better place (recomputed layers). What would vanish there (cycles, records without a place, passes that an interruption
ended) hangs under the root or the nearest pass around it, and ``notices`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from msprobe.graph import micro_steps, recomputed
from msprobe.graph.node_kinds import CALL, GROUP, GROUP_PREFIX, MODULE, ROOT, kind_of
from msprobe.graph.structure import Structure, read_structure
from msprobe.messages import said
from msprobe.store.part import DumpPart

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes of one step of one rank. Node 0 is the root; all columns have one place for each node.

    ``names`` are the names of the dump, ``DefaultModel`` for the root, ``Apis_Between_Modules.{n}`` for groups; nodes
    stand in the order in which the dump first mentions them. ``parents`` is -1 for the root. ``kinds`` is MODULE (0),
    CALL (1) or GROUP (9). ``order`` is the place in the order of execution: the one in which calls ended, so that what
    ran inside a node has lower numbers than the node, and the root has the highest. ``micro_steps`` counts from 0;
    ``micro_step_count`` is 0 where nothing ran. The children of a node, in their order, are :meth:`children`.

    ``is_flat``: the dump does not say what ran inside what (level L1, or construct.json is gone). ``notices``: what a
    reader should know, one sentence each.
    """

    step: int | None
    rank: int | str
    names: list[str]
    parents: Numbers
    kinds: npt.NDArray[np.uint8]
    order: Numbers
    micro_steps: Numbers
    micro_step_count: int
    child_starts: Numbers
    child_nodes: Numbers
    is_flat: bool
    notices: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def children(self, node: int) -> list[int]:
        """The children of a node, in their order."""
        children: list[int] = self.child_nodes[self.child_starts[node] : self.child_starts[node + 1]].tolist()
        return children

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Name to node."""
        return {name: node for node, name in enumerate(self.names)}

    @cached_property
    def by_order(self) -> Numbers:
        """All nodes in the order of execution: children before their parent, the root last."""
        order_of_nodes = np.empty(len(self), np.int32)
        order_of_nodes[self.order] = np.arange(len(self), dtype=np.int32)
        return order_of_nodes

    def ancestors(self, node: int) -> list[int]:
        """The nodes around a node, from the root down, without itself."""
        ancestors: list[int] = []
        above = int(self.parents[node])
        while above >= 0:
            ancestors.append(above)
            above = int(self.parents[above])
        return ancestors[::-1]


def read_tree(part: DumpPart, *, rehang_recomputed: bool = True) -> Tree:
    """Read the hierarchy of a part of a dump.

    ``rehang_recomputed``: put layers that ran again for the backward pass (activation checkpointing) under that
    backward pass, not beside it. Raises InvalidInputError or PathError for broken files.
    """
    structure = read_structure(part)
    growing = _Growing(structure)
    growing.add_lost_passes()
    growing.cut_cycles()
    if rehang_recomputed and not structure.is_flat:
        growing.move(recomputed.places(part, growing.names, growing.parents))
    if not structure.is_flat:
        growing.group_calls()
    growing.add_gradients()
    return growing.finish(part.step, part.rank)


class _Growing:
    """A tree whose nodes still find their places."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self.notices = list(structure.notices)
        self.names: list[str] = [ROOT]
        self.parents: list[int] = [-1]
        self._numbers: dict[str, int] = {ROOT: 0}
        #: Nodes in the order in which they became children.
        self._attached: list[int] = []
        kinds = {0: MODULE}
        for name, parent in structure.parents.items():
            above = 0 if parent is None else self._number(parent)
            node = self._number(name)
            self.parents[node] = above
            self._attached.append(node)
        unknown: list[str] = []
        for node, name in enumerate(self.names[1:], 1):
            kind = kind_of(name)
            if kind is None:
                unknown.append(name)
            kinds[node] = MODULE if kind is None else kind
        self.kinds = [kinds[node] for node in range(len(self.names))]
        if unknown:
            self.notices.append(said("nodes-of-unknown-kind", _counted(unknown)))

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self.parents.append(-1)
        return number

    def _add(self, name: str, parent: int, kind: int) -> int:
        known = len(self.names)
        node = self._number(name)
        self.parents[node] = parent
        if node == known:
            self.kinds.append(kind)
            self._attached.append(node)
        return node

    def add_gradients(self) -> None:
        """Hang gradients of parameters under the last backward pass of their module."""
        orphans: list[str] = []
        for name, backward in self._structure.gradients.items():
            above = self._numbers.get(backward or "")
            if above is None:
                orphans.append(name)
            self._add(name, 0 if above is None else above, MODULE)
        if orphans and not self._structure.is_flat:
            self.notices.append(said("gradients-without-backward", _counted(orphans)))

    def add_lost_passes(self) -> None:
        """Find a place for passes that only their calls name: an interruption ended them before their own record."""
        lost = [node for node in range(1, len(self.names)) if self.parents[node] < 0]
        if not lost:
            return
        for node in lost:
            self.parents[node] = self._around(self.names[node], lost)
            self._attached.append(node)
        # Optimizers and clipping never have one.
        passes = [self.names[node] for node in lost if self.names[node].startswith(("Module.", "Cell."))]
        if passes:
            self.notices.append(said("passes-without-record", _counted(passes)))

    def _around(self, name: str, lost: list[int]) -> int:
        """The unfinished pass of the innermost module around a module, by its path; else the root."""
        words = name.split(".")
        if len(words) < 4 or words[0] not in ("Module", "Cell"):
            return 0
        path, direction, best, longest = words[1:-3], words[-2], 0, 0
        for node in lost:
            other = self.names[node].split(".")
            if len(other) < 4 or other[0] != words[0] or other[-2] != direction:
                continue
            above = other[1:-3]
            if longest < len(above) < len(path) and path[: len(above)] == above:
                best, longest = node, len(above)
        return best

    def cut_cycles(self) -> None:
        """Hang one node of each cycle under the root: those nodes would be under no root."""
        state = bytearray(len(self.names))  # 1: on the way up; 2: leads to the root
        state[0] = 2
        cut: list[str] = []
        for start in range(1, len(self.names)):
            walked, node = [], start
            while not state[node]:
                state[node] = 1
                walked.append(node)
                node = self.parents[node]
            if state[node] == 1:
                first = min(walked[walked.index(node) :])
                self.parents[first] = 0
                cut.append(self.names[first])
            for walked_node in walked:
                state[walked_node] = 2
        if cut:
            self.notices.append(said("modules-inside-themselves", _counted(cut), _named(cut)))

    def move(self, places: dict[int, int]) -> None:
        """Give nodes another parent."""
        for node, parent in places.items():
            self.parents[node] = parent

    def group_calls(self) -> None:
        """Put each run of two or more calls at the top into a group."""
        run: list[int] = []
        attached: list[int] = []
        count = 0

        def close() -> None:
            nonlocal count
            if len(run) > 1:
                name = f"{GROUP_PREFIX}{count}"
                group = self._number(name)
                self.parents[group] = 0
                self.kinds.append(GROUP)
                for node in run:
                    self.parents[node] = group
                attached.append(group)
                count += 1
            run.clear()

        for node in self._attached:
            if self.parents[node] == 0:
                if self.kinds[node] == CALL:
                    run.append(node)
                else:
                    close()
            attached.append(node)
        close()
        self._attached = attached

    def finish(self, step: int | None, rank: int | str) -> Tree:
        structure = self._structure
        return assemble(
            self.names,
            self.parents,
            self.kinds,
            self._attached,
            step=step,
            rank=rank,
            given_steps=structure.micro_steps,
            given_count=structure.micro_step_count,
            is_flat=structure.is_flat,
            notices=tuple(self.notices),
        )


def assemble(
    names: list[str],
    parents: Sequence[int],
    kinds: Sequence[int],
    attached: Sequence[int],
    *,
    step: int | None,
    rank: int | str,
    given_steps: Mapping[str, int] = MappingProxyType({}),
    given_count: int = 0,
    is_flat: bool = False,
    notices: tuple[str, ...] = (),
) -> Tree:
    """A tree of names, parents and kinds. ``attached``: all nodes but the root, in the order of children.

    ``given_steps`` and ``given_count``: micro steps as the dump itself counts them.
    """
    above_all = np.array(parents, np.int32)
    children = np.array(attached, np.int32)
    above = above_all[children] if len(children) else children
    nodes = children[np.argsort(above, kind="stable")]
    starts = np.zeros(len(above_all) + 1, np.int32)
    np.cumsum(np.bincount(above, minlength=len(above_all)), out=starts[1:])
    top = nodes[starts[0] : starts[1]].tolist()
    steps, count = micro_steps.count(top, names, kinds, given_steps)
    order = _order(starts.tolist(), nodes.tolist())
    return Tree(
        step=step,
        rank=rank,
        names=names,
        parents=above_all,
        kinds=np.array(kinds, np.uint8),
        order=order,
        micro_steps=micro_steps.spread(top, steps, order, len(above_all)),
        micro_step_count=max(count, given_count),
        child_starts=starts,
        child_nodes=nodes,
        is_flat=is_flat,
        notices=notices,
    )


def _order(starts: list[int], nodes: list[int]) -> Numbers:
    """The place of each node when children come before their parent."""
    numbers = np.empty(len(starts) - 1, np.int32)
    number = len(starts) - 2
    todo = [0]
    # Backwards: the parent, then its children from the last to the first.
    while todo:
        node = todo.pop()
        numbers[node] = number
        number -= 1
        todo += nodes[starts[node] : starts[node + 1]]
    return numbers


def _counted(names: list[str]) -> str:
    return "one node" if len(names) == 1 else f"{len(names)} nodes"


def _named(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")

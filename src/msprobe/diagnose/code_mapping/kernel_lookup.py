"""Which node of a graph a kernel of a dump is, by its name.

A dump writes the full name of a node with ``_`` for ``/``: ``Default_network-Net_ReLU-op0``. The number at its end is
not the same in all texts of a graph: MindSpore counts the nodes of a name anew after the last pass, in the order of the
text. ``graph_build_*.ir`` has the new numbers, ``ms_output_trace_code_graph_*.ir``, which comes with a dump, the old.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msprobe.diagnose.code_mapping.code_stacks import EMPTY, CodeStacks
from msprobe.diagnose.code_mapping.ir_text import NONE, IrGraph

_NUMBERED = re.compile(r"(.*-op)([0-9]+)", re.DOTALL)
_NUMBERED_END = re.compile(r"-op[0-9]+\Z")
# Names in files have 255 bytes at most, those in statistic.csv are as long as their scope.
_LONGEST_PARTIAL = 4096
_MOST_WORDS = 256


@dataclass(frozen=True)
class KernelCode:
    """Where a kernel comes from: its full name in the text of the graph, and its stack of lines, which may be empty."""

    scope: str
    stacks: CodeStacks
    stack: int

    def text(self) -> str:
        """The lines, the outermost call first, a line break between each two."""
        return self.stacks.text(self.stack)


class KernelLookup:
    """The nodes of one graph by the names of kernels."""

    def __init__(self, graph: IrGraph) -> None:
        self._graph = graph
        self._nodes: dict[str, int] = {}
        # "Default_network-Net_ReLU-op" -> (number, node) in the order of the text.
        self._families: dict[str, list[tuple[str, int]]] = defaultdict(list)
        # Scopes of cells, in the texts of earlier passes, with the lines that their nodes have in common.
        self._cells: dict[str, tuple[int, int]] = {}
        for node, scope in enumerate(graph.scopes):
            self._add(node, scope.replace("/", "_"))
        for name, node in list(self._nodes.items()):
            self._nodes.setdefault(name.replace(".", "_"), node)

    def _add(self, node: int, name: str) -> None:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is None:
            # Not "0", which calls of graphs have.
            if any(map(str.isalpha, name)):
                self._add_to_cell(node, name)
            return
        known = self._nodes.setdefault(name, node)
        if known == node:
            self._families[numbered[1]].append((numbered[2], node))
        elif self._graph.code[known] == EMPTY:
            # Several graphs in one text may have the name; the first with lines says most.
            self._nodes[name] = node

    def _add_to_cell(self, node: int, name: str) -> None:
        first, common = self._cells.get(name, (node, EMPTY))
        code = self._graph.code[node]
        if common != EMPTY and code != EMPTY:
            code = self._graph.stacks.common(common, code)
        self._cells[name] = first, code or common

    @property
    def names_kernels(self) -> bool:
        """False for the text of an earlier pass, which names the cells only."""
        return bool(self._nodes)

    def find(self, names: Iterable[str]) -> dict[str, KernelCode]:
        """The kernels of one graph of a dump, all at once: what their numbers mean shows in all of them together."""
        wanted = list(dict.fromkeys(names))
        codes: dict[str, KernelCode] = {}
        numbers = self._renumbered(wanted)
        for name in wanted:
            node = numbers[name] if name in numbers else self._nodes.get(name)
            if node is None:
                code = self._partial(name)
            else:
                code = self._code(node, self._graph.code[node]) if node != NONE else None
            if code is not None:
                codes[name] = code
        return codes

    def _renumbered(self, names: Iterable[str]) -> dict[str, int]:
        """Name -> node for the kernels whose numbers are not those of the text; NONE if that is not known.

        Empty if the text knows all the numbers of the dump.
        """
        dumped: dict[str, list[str]] = defaultdict(list)
        for name in names:
            numbered = _NUMBERED.fullmatch(name)
            if numbered is not None and numbered[1] in self._families:
                dumped[numbered[1]].append(numbered[2])
        if all(f"{family}{number}" in self._nodes for family, numbers in dumped.items() for number in numbers):
            return {}
        new_numbers: dict[str, int] = {}
        for family, numbers in dumped.items():
            nodes = self._families[family]
            # The count goes on from graph to graph, so only the first one is known to begin at 0.
            dumped_places = [int(number) for number in numbers if len(number) < 10]
            begin = min(dumped_places) if self._graph.number and self._is_all(dumped_places, len(nodes)) else 0
            for number in numbers:
                place = int(number) - begin if len(number) < 10 else NONE
                new_numbers[f"{family}{number}"] = nodes[place][1] if 0 <= place < len(nodes) else NONE
        return new_numbers

    @staticmethod
    def _is_all(places: Sequence[int], count: int) -> bool:
        """True if these are so many numbers one after the other: all kernels of the name are in the dump."""
        return len(set(places)) == count and max(places) - min(places) == count - 1

    def _partial(self, name: str) -> KernelCode | None:
        """The longest name that is a part of this one in whole words: of a kernel, or else of a cell."""
        ends = [place for place, sign in enumerate(name) if sign == "_"] + [len(name)]
        if len(name) > _LONGEST_PARTIAL or len(ends) > _MOST_WORDS:
            return None
        begins = [0, *(place + 1 for place in ends[:-1])]
        words = name.split("_")
        if "Gradients" in words:
            # The forward node of the same name is another one.
            begins = begins[: words.index("Gradients") + 1]
        numbered = [end for end in ends if _NUMBERED_END.search(name, 0, end)]
        for begin, end in _longest_first(begins, numbered):
            if (node := self._nodes.get(name[begin:end])) is not None:
                return self._code(node, self._graph.code[node])
        if self._cells:
            for begin, end in _longest_first(begins, ends):
                if (cell := self._cells.get(name[begin:end])) is not None:
                    return self._code(cell[0], self._graph.stacks.to_source(cell[1]))
        return None

    def _code(self, node: int, stack: int) -> KernelCode:
        return KernelCode(self._graph.scopes[node], self._graph.stacks, stack)


def _longest_first(begins: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    parts = [(begin, end) for begin in begins for end in ends if end > begin]
    return sorted(parts, key=lambda part: part[0] - part[1])

"""What both kinds of graph files say of the nodes of one side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from msprobe.graph.comparison import Comparison
from msprobe.graph.differences import Texts
from msprobe.graph.side import Side
from msprobe.graph.value_texts import Form, fields_of

Source = Literal["NPU", "Bench"]
Fields = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Written:
    """One step of one rank to be written: a side alone, or a comparison."""

    candidate: Side
    comparison: Comparison | None = None
    overflow_check: bool = False

    @property
    def sides(self) -> list[tuple[Source, Side]]:
        """The sides by the words of the files."""
        if self.comparison is None:
            return [("NPU", self.candidate)]
        return [("NPU", self.candidate), ("Bench", self.comparison.reference)]


class NodeTexts:
    """Writes the parameters, partners and ancestors of the nodes of one side."""

    def __init__(self, written: Written, source: Source, form: Form) -> None:
        comparison = written.comparison
        self.side = written.candidate if source == "NPU" or comparison is None else comparison.reference
        self._other = None
        self._partner: list[int] = []
        self._columns: dict[int, list[Texts]] = {}
        self._form = form
        self._with_md5 = comparison is not None and comparison.mode == "md5"
        if comparison is not None:
            forward = comparison.partner.tolist()
            if source == "NPU":
                self._other, self._partner = comparison.reference.tree, forward
                self._columns = comparison.columns
            else:
                self._other, self._partner = comparison.candidate.tree, [-1] * len(self.side.tree)
                for node, other in enumerate(forward):
                    if other >= 0:
                        self._partner[other] = node
        self._links: dict[int, list[str]] = {}

    def link(self, node: int) -> list[str]:
        """The partner of a node behind all that is around it, from the root on; empty if there is none."""
        if self._other is None or self._partner[node] < 0:
            return []
        partner = self._partner[node]
        above = int(self._other.parents[partner])
        if above not in self._links:
            around = [] if above < 0 else [*self._other.ancestors(above), above]
            self._links[above] = [self._other.names[one] for one in around]
        return [*self._links[above], self._other.names[partner]]

    def parameters(self, node: int) -> tuple[Fields, Fields]:
        """The arguments and the results of a node with all their fields."""
        side, columns = self.side, self._columns.get(node)
        inputs, outputs = side.inputs[node], side.outputs[node]
        if not inputs and not outputs:
            return {}, {}
        exchange = "batch_isend_irecv" in side.tree.names[node]
        found: tuple[Fields, Fields] = ({}, {})
        place = 0
        for fields, parameters in zip(found, (inputs, outputs), strict=True):
            for name, leaf in parameters:
                one = fields_of(leaf, self._form, self._with_md5, exchange)
                if columns is not None and len(one) > 1:
                    one.update(columns[place])
                fields[name] = one
                place += 1
        return found


def micro_steps_of(written: Written) -> tuple[list[int], list[int]]:
    """The micro step of each node of both sides; one of the reference has that of its partner's pass.

    Nodes of the reference without partner have the number in their name.
    """
    mine: list[int] = written.candidate.tree.micro_steps.tolist()
    comparison = written.comparison
    if comparison is None:
        return mine, []
    tree = comparison.reference.tree
    theirs: list[int] = tree.micro_steps.tolist()
    of_top: dict[int, int] = {}
    for node, other in enumerate(comparison.partner.tolist()):
        if other > 0 and tree.parents[other] == 0:
            of_top[other] = mine[node]
    for node in tree.by_order.tolist()[::-1]:
        above = int(tree.parents[node])
        if above == 0:
            last = tree.names[node].rpartition(".")[2]
            theirs[node] = of_top.get(node, int(last) if last.isdigit() else 0)
        elif above > 0:
            theirs[node] = theirs[above]
    return mine, theirs


def distributed(side: Side, node: int) -> Any:
    """The partners of a collective in other ranks; an empty object if there are none."""
    return side.communication.get(node, {})

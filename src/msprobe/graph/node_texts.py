"""What both kinds of graph files say of the nodes of one side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msprobe.graph.comparison import GraphComparison
from msprobe.graph.parameter_texts import ParameterTexts
from msprobe.graph.side import GraphOfSide
from msprobe.graph.value_texts import Form

GraphSide = Literal["NPU", "Bench"]


@dataclass(frozen=True)
class Written:
    """One step of one rank to be written: a side alone, or a comparison."""

    candidate: GraphOfSide
    comparison: GraphComparison | None = None
    overflow_check: bool = False

    @property
    def sides(self) -> list[tuple[GraphSide, GraphOfSide]]:
        """The sides by the words of the files."""
        if self.comparison is None:
            return [("NPU", self.candidate)]
        return [("NPU", self.candidate), ("Bench", self.comparison.reference)]


class NodeTexts:
    """Writes the parameters, partners and ancestors of the nodes of one side."""

    def __init__(self, written: Written, source: GraphSide, form: Form) -> None:
        comparison = written.comparison
        self.side = written.candidate if source == "NPU" or comparison is None else comparison.reference
        self._other = None
        self._partner: list[int] = []
        self._columns: dict[int, list[str]] = {}
        self._texts = ParameterTexts(form, comparison is not None and comparison.mode == "md5")
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
        #: A value as JSON text.
        self.json = self._texts.json

    def link(self, node: int) -> list[str]:
        """The partner of a node behind all that is around it, from the root on; empty if there is none."""
        if self._other is None or self._partner[node] < 0:
            return []
        partner = self._partner[node]
        above = int(self._other.parents[partner])
        if above not in self._links:
            around = [] if above < 0 else [*self._other.ancestors(above), above]
            self._links[above] = [self._other.names[around_node] for around_node in around]
        return [*self._links[above], self._other.names[partner]]

    def parameters(self, node: int) -> tuple[str, str]:
        """The arguments and the results of a node with all their fields, as JSON text."""
        inputs, outputs = self.side.inputs[node], self.side.outputs[node]
        if not inputs and not outputs:
            return "{}", "{}"
        exchange = "batch_isend_irecv" in self.side.tree.names[node]
        columns = self._columns.get(node)
        if columns is None:
            return self._texts.all_parameters(inputs, None, exchange), self._texts.all_parameters(
                outputs, None, exchange
            )
        end = len(inputs)
        return (
            self._texts.all_parameters(inputs, columns[:end], exchange),
            self._texts.all_parameters(outputs, columns[end:], exchange),
        )


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
    step_by_node: dict[int, int] = {}
    for node, other in enumerate(comparison.partner.tolist()):
        if other > 0 and tree.parents[other] == 0:
            step_by_node[other] = mine[node]
    for node in tree.by_order.tolist()[::-1]:
        above = int(tree.parents[node])
        if above == 0:
            last = tree.names[node].rpartition(".")[2]
            theirs[node] = step_by_node.get(node, int(last) if last.isdigit() else 0)
        elif above > 0:
            theirs[node] = theirs[above]
    return mine, theirs

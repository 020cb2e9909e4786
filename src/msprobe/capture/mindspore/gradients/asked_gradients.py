"""Which gradients a backward pass was asked for.

The node of a compiled function hands on the gradients that are needed in this pass, and no others: a scale that is no
weight has none, nor has an argument that leads to none. Which they are follows from what was asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from msprobe.capture.mindspore.graphs.executor import pynative_executor
from msprobe.capture.mindspore.patches import ExecutorWatch, Replacement

#: Where a gradient of a node goes: None if nowhere, the name of a leaf, empty for a node.
End = str | None


class AskedGradients(ExecutorWatch):
    """Notices what is asked for, from the executor that is notified of it."""

    def __init__(self) -> None:
        # Names of the weights, and whether gradients of the program's inputs are asked for; None: not known.
        self.weights: frozenset[str] | None = None
        self.inputs = True
        kind = type(pynative_executor())
        original = vars(kind).get("grad")
        if original is None:
            return

        @functools.wraps(original)
        def noticed(executor: Any, function: Any, operation: Any, weights: Any, *args: Any) -> Any:
            before = self.weights, self.inputs
            self.weights, self.inputs = _names(weights), _asks_for_inputs(operation)
            try:
                return original(executor, function, operation, weights, *args)
            finally:
                self.weights, self.inputs = before

        self._replacement = Replacement(kind, "grad", noticed)

    def positions(self, ends: Sequence[End], count: int) -> list[int] | None:
        """Where ``count`` gradients go that a node hands on, as positions among its ends; None if that is not certain.

        Ends that may or may not be asked for count as asked for: if as many gradients came, all of them are.
        """
        if count == len(ends):
            return list(range(count))
        there = [position for position, end in enumerate(ends) if end is not None]
        if count == len(there):
            return there
        asked = [position for position in there if self._may_be_asked(ends[position])]
        return asked if count == len(asked) else None

    def _may_be_asked(self, end: End) -> bool:
        if not end or self.weights is None or end in self.weights:
            return True
        return self.inputs and end.startswith("input")


def leaf_name(leaf: Any) -> str:
    """The name of a leaf of the graph: that of a parameter, or a number of the program's inputs."""
    return str(leaf).removeprefix("<").partition(",")[0]


def _asks_for_inputs(operation: Any) -> bool:
    if not getattr(operation, "get_by_list", False):
        return True
    return bool(getattr(operation, "get_all", True) or getattr(operation, "get_by_position", False))


def _names(weights: Any) -> frozenset[str] | None:
    """The names of the weights; None if one has none."""
    if weights is None:
        return frozenset()
    names: list[Any] = [
        getattr(weight, "name", None) for weight in (weights if isinstance(weights, (tuple, list)) else [weights])
    ]
    return frozenset(names) if all(isinstance(name, str) for name in names) else None

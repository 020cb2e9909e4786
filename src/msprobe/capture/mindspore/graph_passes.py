"""What is known of a watched cell of a compiled graph, and of its passes in a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xxhash
from mindspore import nn

from msprobe.capture.array_statistics import HostArray
from msprobe.capture.mindspore.graph_probes import IN, OUT, indexes
from msprobe.store.dtypes import Array


class ParameterValues(NamedTuple):
    """A parameter of a watched cell: where it is shown, and its values when recording began."""

    described: Any
    # Kept only where values are saved.
    values: HostArray | None


class WatchedCell:
    """One watched cell: its name, and how often its tensors have come by in this step."""

    def __init__(self, name: str, cell: nn.Cell) -> None:
        self.name = name
        self.cell = cell
        # "Cell.a.b.Class" -> "a.b"
        self.path = name.partition(".")[2].rpartition(".")[0]
        # The places of tensors among its arguments and among its results.
        self.places: tuple[set[int], set[int]] = (set(), set())
        # Its parameters as they were when recording began, and those that have gradients.
        self.parameters: dict[str, ParameterValues] = {}
        self.trained: list[str] = []
        self.gradients: dict[str, Any] = {}
        # Some came that are not written.
        self.has_new = False
        self.visits: dict[tuple[int, int], int] = {}
        # Forward numbers whose gradients have not come: the last one's come first.
        self.open: dict[tuple[int, int], list[int]] = {}
        # Forward and backward: the side of which tensors came last, and the digests of those of this pass.
        self._came: dict[bool, tuple[int, dict[tuple[int, int], bytes]]] = {}

    def begin_step(self) -> None:
        self.visits.clear()
        self.open.clear()
        self.gradients.clear()
        self.has_new = False
        self._came.clear()

    def visit(self, side: int, place: int, is_gradient: bool) -> int:
        """The number of the pass that this tensor belongs to."""
        key = side, place
        if is_gradient:
            opened = self.open.get(key)
            return opened.pop() if opened else 0
        self.places[side].add(place)
        number = self.visits.get(key, 0)
        self.visits[key] = number + 1
        self.open.setdefault(key, []).append(number)
        return number

    def ordinal(self, side: int, place: int) -> int:
        """Gradients are listed by tensor, not by argument."""
        return sorted({*self.places[side], place}, key=indexes).index(place)

    def is_told_again(self, side: int, place: int, is_gradient: bool, values: Array) -> bool:
        """True for a tensor of which the graph tells a second time: the compiler doubles operators like ours where a
        cell is used more than once. A further pass begins at the side where passes begin.
        """
        last, seen = self._came.get(is_gradient, (side, {}))
        first = OUT if is_gradient else IN
        if side == first and last != first:
            seen = {}
        self._came[is_gradient] = side, seen
        digest = xxhash.xxh3_128_digest(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        if seen.get((side, place)) == digest:
            return True
        seen[side, place] = digest
        return False


class CellPass:
    """What has come of one entry."""

    def __init__(self, cell: WatchedCell, entry: str, number: int, is_backward: bool, order: int) -> None:
        self.cell = cell
        self.entry = entry
        self.number = number
        self.is_backward = is_backward
        self.order = order
        self.sides: tuple[dict[int, Any], dict[int, Any]] = ({}, {})


def in_order(side: dict[int, Any]) -> list[Any]:
    """By place -> as the arguments or results lie in each other, with null for what is no tensor."""
    outer: dict[int, Any] = {}
    for place, described in side.items():
        first, *further = indexes(place)
        if further:
            outer.setdefault(first, {})[further[0]] = described
        else:
            outer[first] = described
    return [_nested(outer.get(number)) for number in range(max(outer, default=-1) + 1)]


def _nested(part: Any) -> Any:
    return [part.get(number) for number in range(max(part) + 1)] if isinstance(part, dict) else part

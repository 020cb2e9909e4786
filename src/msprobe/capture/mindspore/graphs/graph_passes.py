"""What is known of a watched cell of a compiled graph, and of its passes in a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xxhash
from mindspore import nn

from msprobe.capture.array_statistics import HostArray
from msprobe.capture.mindspore.graphs.graph_probes import IN, OUT, ProbeNumber, indexes
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
        # The places of tensors among the arguments and among the results of each kind of call.
        self.places: dict[tuple[int, int], set[int]] = {}
        # The keywords that it is called with.
        self.words: list[str] = []
        # Its parameters as they were when recording began, and those that have gradients.
        self.parameters: dict[str, ParameterValues] = {}
        self.trained: list[str] = []
        self.gradients: dict[str, Any] = {}
        # Some came that are not written.
        self.has_new = False
        # How often a tensor came by, by kind of call, side and place; and the number of the pass of each kind of call
        # and time that it came by.
        self.visits: dict[tuple[int, int, int], int] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        # By kind of call and time: what came before its pass had begun.
        self.waiting: dict[tuple[int, int], list[tuple[ProbeNumber, Array]]] = {}
        # By ticket: the kind of call and time of a tensor, which its gradient asks for.
        self.tickets: dict[int, tuple[int, int]] = {}
        # By kind of call: the side of which tensors came last, and the digests of those of this pass.
        self._came: dict[int, tuple[int, dict[tuple[int, int], bytes]]] = {}
        # Gradients that came: of which call and time, side, place, digest.
        self._gradients: set[tuple[tuple[int, int], int, int, bytes]] = set()

    def begin_step(self) -> None:
        self.visits.clear()
        self.numbers.clear()
        self.waiting.clear()
        self.tickets.clear()
        self._gradients.clear()
        self.gradients.clear()
        self.has_new = False
        self._came.clear()

    def pass_of(self, arrival: ProbeNumber, values: Array) -> int | None:
        """The number of the pass that this tensor belongs to; None for one that is not to be recorded, or must wait.

        A graph computes in any order what does not wait for each other: an argument may come before the pass before its
        own has begun. So the first argument says that a pass begins, or else the first result.
        """
        begun = self._place_gradient(arrival, values) if arrival.is_gradient else self._place_tensor(arrival, values)
        if begun is None:
            return None
        number = self.numbers.get(begun)
        if number is None and not arrival.is_gradient:
            first = min(self.places_of(arrival.call, IN), key=indexes, default=None)
            if arrival.side == OUT or (arrival.side == IN and arrival.place == first):
                number = self.numbers[begun] = len(self.numbers)
        if number is None:
            self.waiting.setdefault(begun, []).append((arrival, values.copy()))
        return number

    def _place_tensor(self, arrival: ProbeNumber, values: Array) -> tuple[int, int] | None:
        key = arrival.call, arrival.side, arrival.place
        times = self.visits.get(key, 0)
        if self._is_reported_again(arrival, values):
            self.tickets[arrival.ticket] = arrival.call, times - 1
            return None
        self.places_of(arrival.call, arrival.side).add(arrival.place)
        self.visits[key] = times + 1
        begun = self.tickets[arrival.ticket] = arrival.call, times
        return begun

    def _place_gradient(self, arrival: ProbeNumber, values: Array) -> tuple[int, int] | None:
        begun = self.tickets.get(arrival.ticket)
        if begun is None:
            # Of a tensor that came while nothing was recorded.
            return None
        report = begun, arrival.side, arrival.place, _digest(values)
        if report in self._gradients:
            return None
        self._gradients.add(report)
        return begun

    def come_late(self, all_of_them: bool = False) -> list[tuple[ProbeNumber, Array, int]]:
        """What has waited for a pass to begin, with the number of that. ``all_of_them``: it will not come."""
        late = []
        for begun in list(self.waiting):
            if all_of_them:
                self.numbers.setdefault(begun, len(self.numbers))
            if begun in self.numbers:
                late += [(arrival, values, self.numbers[begun]) for arrival, values in self.waiting.pop(begun)]
        return late

    def number_of(self, word: str) -> int:
        """The number of a keyword."""
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def places_of(self, call: int, side: int) -> set[int]:
        """The places of tensors of this kind of call."""
        return self.places.setdefault((call, side), set())

    def ordinal(self, arrival: ProbeNumber) -> int:
        """Gradients are listed by tensor, not by argument."""
        return sorted({*self.places_of(arrival.call, arrival.side), arrival.place}, key=indexes).index(arrival.place)

    def _is_reported_again(self, arrival: ProbeNumber, values: Array) -> bool:
        """True for a tensor that the graph reports a second time: the compiler doubles operators like ours where a
        cell is used more than once. A further pass begins with its arguments.
        """
        side, place = arrival.side, arrival.place
        last, seen = self._came.get(arrival.call, (side, {}))
        if side != OUT and last == OUT:
            seen = {}
        self._came[arrival.call] = side, seen
        digest = _digest(values)
        if seen.get((side, place)) == digest:
            return True
        seen[side, place] = digest
        return False


def _digest(values: Array) -> bytes:
    return xxhash.xxh3_128_digest(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


class CellPass:
    """What has come of one entry."""

    def __init__(self, cell: WatchedCell, call: int, entry: str, number: int, is_backward: bool, order: int) -> None:
        self.cell = cell
        # The kind of call.
        self.call = call
        self.entry = entry
        self.number = number
        self.is_backward = is_backward
        self.order = order
        # Inputs and results, and what is given by keyword (of a backward pass: its gradients).
        self.sides: tuple[dict[int, Any], dict[int, Any], dict[int, Any]] = ({}, {}, {})


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

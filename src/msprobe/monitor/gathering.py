"""What one step has measured so far, and its rows in the order in which they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msprobe.monitor.measurements import Quantity, Row, StepMetrics
from msprobe.monitor.operators import Value


class TensorCells:
    """The measured statistics of one tensor; ``values`` is None as long as they are on their way from a device."""

    __slots__ = ("dtype", "shape", "values")

    def __init__(self, values: tuple[Value, ...] | None, shape: tuple[int, ...] | None, dtype: str | None) -> None:
        self.values = values
        self.shape = shape
        self.dtype = dtype


class Gathering:
    """The measurements of one step."""

    def __init__(self, step: int, ops: Sequence[str]) -> None:
        self.step = step
        self.ops = tuple(ops)
        # quantity -> (stage, name) -> its measurements in this step: (micro step, cells).
        self._gathered: dict[Quantity, dict[tuple[int, str], list[tuple[int | None, TensorCells]]]] = {}
        # Names whose measurements of a step become one row.
        self._merged: set[tuple[int, str]] = set()
        self.columns: dict[Quantity, tuple[str, ...]] = {}
        # Numbers of the step as a whole, and a digest of its data.
        self.scalars: dict[str, float] = {}
        # Such numbers whose parts come with the micro batches.
        self._parts: dict[str, list[Any]] = {}
        self.batch = ""

    def add(self, quantity: Quantity, stage: int, name: str, cells: TensorCells, micro_step: int | None = None) -> None:
        """One tensor more. Rows come in the order in which their names did, those of one name together."""
        names = self._gathered.get(quantity)
        if names is None:
            names = self._gathered[quantity] = {}
        entries = names.get((stage, name))
        if entries is None:
            names[stage, name] = [(micro_step, cells)]
        else:
            entries.append((micro_step, cells))

    def put(self, quantity: Quantity, stage: int, name: str, cells: TensorCells, micro_step: int | None = None) -> None:
        """The same, in place of what this name had in this micro step."""
        entries = self._gathered.setdefault(quantity, {}).setdefault((stage, name), [])
        entries[:] = [entry for entry in entries if entry[0] != micro_step]
        entries.append((micro_step, cells))

    def take_back(self, quantity: Quantity, stage: int, micro_step: int) -> None:
        """Forget what a micro step of a stage has measured."""
        names = self._gathered.get(quantity, {})
        for key in [key for key in names if key[0] == stage]:
            names[key] = [entry for entry in names[key] if entry[0] != micro_step]
            if not names[key]:
                del names[key]
        if not names:
            self._gathered.pop(quantity, None)

    def merge(self, quantity: Quantity, stage: int, name: str, cells: TensorCells) -> None:
        """The same; all of a name in this step become one row."""
        self._merged.add((stage, name))
        self.add(quantity, stage, name, cells)

    @property
    def is_empty(self) -> bool:
        """True if nothing was measured."""
        return not self._gathered and not self.noted

    def names(self, quantity: Quantity) -> set[str]:
        """The names that have been measured of a quantity."""
        return {name for _, name in self._gathered.get(quantity, {})}

    @property
    def noted(self) -> set[str]:
        """The names of the numbers of the step as a whole."""
        return {*self.scalars, *self._parts}

    def add_part(self, name: str, number: Any) -> None:
        """A part of a number of the step as a whole."""
        self._parts.setdefault(name, []).append(number)

    def metrics(self) -> StepMetrics:
        """The rows, all numbers being there."""
        rows: dict[Quantity, list[Row]] = {}
        for quantity, names in self._gathered.items():
            written: list[Row] = []
            for (stage, name), entries in names.items():
                if (stage, name) in self._merged:
                    written.append(_merged(stage, name, self.ops, [cells for _, cells in entries]))
                    continue
                for micro_step, cells in entries:
                    # Without values it is nowhere to be found, in no rank.
                    if cells.values is not None:
                        written.append(Row(stage, name, micro_step, cells.values, cells.shape, cells.dtype))
            rows[quantity] = written
        summed = {name: math.fsum(float(part) for part in parts) for name, parts in self._parts.items()}
        return StepMetrics(self.step, self.ops, rows, dict(self.columns), {**summed, **self.scalars}, self.batch)


def _merged(stage: int, name: str, ops: Sequence[str], cells_of_steps: Sequence[TensorCells]) -> Row:
    values = tuple(
        _together(op, [cells.values[place] for cells in cells_of_steps if cells.values is not None])
        for place, op in enumerate(ops)
    )
    last = cells_of_steps[-1]
    return Row(stage, name, None, values, last.shape, last.dtype)


def _together(op: str, values: Sequence[Value]) -> Value:
    """One number of several calls: least of min, greatest of max, root of the sum of squares of norms, sum of nans,
    mean of means and of shares.
    """
    numbers: list[Any] = [value for value in values if value is not None]
    if not numbers:
        return None
    if op == "projection" or any(number != number for number in numbers):
        return math.nan
    if op == "norm":
        return math.sqrt(math.fsum(number * number for number in numbers))
    if op in ("nans", "min", "max"):
        together: dict[str, Callable[[list[Any]], Value]] = {"nans": sum, "min": min, "max": max}
        return together[op](numbers)
    return float(sum(numbers) / len(numbers))

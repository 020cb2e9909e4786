"""The numbers of a step as arrays, and what is remembered of each of them over the steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from msprobe.monitor.csv_text import SCALARS, scalar_rows
from msprobe.monitor.measurements import Row, StepMetrics

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

#: What the running mean keeps of itself at each step, as in mindstudio-probe 8.1.1.
KEPT = 0.99
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class QuantityBlock:
    """One quantity of a step. ``values``: [rows, ops] in double precision; ``missing``: where there was no value, so
    that the NaN in ``values`` is none of a tensor. ``means``: what the running mean of the absolute value is, and
    ``seen`` of how many values, this step not among them. ``elements``: [rows], how many each tensor has, NaN if
    not known.
    """

    quantity: str
    rows: Sequence[Row]
    ops: tuple[str, ...]
    values: Array
    missing: Mask
    means: Array
    seen: Array
    elements: Array

    def column(self, op: str) -> int | None:
        """Where the operator's values are; None if it was not asked for."""
        return self.ops.index(op) if op in self.ops else None


@dataclass(frozen=True, slots=True)
class Step:
    """A step as rules look at it."""

    number: int
    blocks: dict[str, QuantityBlock]


class ValueHistory:
    """Running means of all numbers; NaN and infinity are not fed into them."""

    def __init__(self) -> None:
        self._means: dict[str, KeptRows] = {}

    def step(self, metrics: StepMetrics) -> Step:
        """The step with what was known before it."""
        blocks = {}
        for quantity, rows, ops in _parts(metrics):
            values, missing = _numbers(rows, ops)
            kept = self._means.setdefault(quantity, KeptRows(2))
            known = kept.get(rows, ops)
            elements = np.array([math.nan if row.shape is None else float(math.prod(row.shape)) for row in rows])
            blocks[quantity] = QuantityBlock(
                quantity, rows, ops, values, missing, known[..., 0], known[..., 1], elements
            )
        return Step(metrics.step, blocks)

    def feed(self, step: Step) -> None:
        """Take the numbers of the step into the means."""
        for quantity, block in step.blocks.items():
            size = np.abs(block.values)
            finite = np.isfinite(size)
            first = block.seen == 0
            mixed = np.where(first, size, KEPT * block.means + (1 - KEPT) * size)
            means = np.where(finite, mixed, block.means)
            seen = block.seen + finite
            self._means[quantity].put(block.rows, block.ops, np.stack([means, seen], axis=-1))


class KeptRows:
    """Some numbers for each tensor and operator, found again by name; NaN and 0 count as nothing: all begin at 0."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._places: dict[tuple[int, str, int | None], int] = {}
        self._columns: dict[str, int] = {}
        self._values = np.zeros((0, 0, width))
        self._last: tuple[list[tuple[int, str, int | None]], Array] = ([], np.zeros(0))

    def get(self, rows: Sequence[Row], ops: Sequence[str]) -> Array:
        """[rows, ops, width]"""
        places, columns = self._at(rows, ops)
        values: Array = self._values[places[:, None], columns[None, :]]
        return values

    def put(self, rows: Sequence[Row], ops: Sequence[str], values: Array) -> None:
        """Keep these, [rows, ops, width]."""
        places, columns = self._at(rows, ops)
        self._values[places[:, None], columns[None, :]] = values

    def _at(self, rows: Sequence[Row], ops: Sequence[str]) -> tuple[Array, Array]:
        keys = [(row.stage, row.name, row.micro_step) for row in rows]
        if keys != self._last[0]:
            places = self._places
            self._last = keys, np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.int64)
        columns = [self._columns.setdefault(op, len(self._columns)) for op in ops]
        short = (len(self._places) - self._values.shape[0], len(self._columns) - self._values.shape[1])
        if max(short) > 0:
            more = [(0, max(0, short[0]) + len(self._places) // 2), (0, max(0, short[1])), (0, 0)]
            self._values = np.pad(self._values, more)
        return self._last[1], np.array(columns, dtype=np.int64)


def total_gradient_norm(step: Step) -> float | None:
    """The norm of all reduced gradients together: the scalar ``grad_norm``, the row ``total``, or the root of the sum
    of squares of all rows; None if nothing of it was measured.
    """
    scalars = step.blocks.get(SCALARS)
    if scalars is not None:
        for at, row in enumerate(scalars.rows):
            if row.name == "grad_norm":
                return float(scalars.values[at, 0])
    for quantity in ("grad_reduced", "grad_unreduced"):
        block = step.blocks.get(quantity)
        column = None if block is None else block.column("norm")
        if block is None or column is None or any(row.micro_step for row in block.rows):
            continue
        for at, row in enumerate(block.rows):
            if row.name == TOTAL:
                return float(block.values[at, column])
        norms = block.values[~block.missing[:, column], column]
        return float(np.sqrt(np.square(norms).sum()))
    return None


def _parts(metrics: StepMetrics) -> Iterator[tuple[str, Sequence[Row], tuple[str, ...]]]:
    for quantity, rows in metrics.rows.items():
        if rows and metrics.ops_of(quantity):
            yield quantity, rows, metrics.ops_of(quantity)
    if metrics.scalars:
        yield SCALARS, scalar_rows(metrics), ("value",)


def _numbers(rows: Sequence[Row], ops: Sequence[str]) -> tuple[Array, Mask]:
    values = np.array([row.values for row in rows], dtype=np.float64).reshape(len(rows), len(ops))
    missing = np.isnan(values)
    for at, op in zip(*np.nonzero(missing), strict=True):
        missing[at, op] = rows[at].values[op] is None
    return values, missing

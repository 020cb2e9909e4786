"""Rows of tensors, computed from arrays of numpy by what :class:`msprobe.store.rows.TensorRow` says of its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.measured.deviation import Deviation, between
from msprobe.diagnose.steps.timeline import Event
from msprobe.store.row_format import LARGEST
from msprobe.store.rows import BLOCKS, SUMS, Numbers, TensorRow


def row_of(values: Any) -> TensorRow:
    """The row of an array; signs are drawn anew for each number of elements, and are not those of the recorder."""
    flat = np.asarray(values, np.float64).ravel()
    taken = np.abs(flat) <= LARGEST
    x = np.where(taken, flat, 0.0)
    signs = np.random.default_rng(len(x)).integers(0, 2, (SUMS, len(x))) * 2.0 - 1.0
    size = 64 * math.ceil(len(x) / 512)
    return TensorRow(
        max=float(x[taken].max()) if taken.any() else math.nan,
        min=float(x[taken].min()) if taken.any() else math.nan,
        sum=float(x.sum()),
        squares=float(x @ x),
        blocks=tuple(float(np.linalg.norm(x[size * n : size * (n + 1)])) for n in range(BLOCKS)),
        signed=tuple(float(one) for one in signs @ x),
        zero=int((flat == 0.0).sum()),
        left_out=int((~taken).sum()),
    )


def numbers_of(row: TensorRow | None) -> Numbers | None:
    """A row as :meth:`msprobe.store.rows.StoredRows.numbers` gives it."""
    if row is None or any(map(math.isnan, row.signed)):
        return None
    return row.sum, row.squares, row.signed, row.blocks, row.max, row.min, row.zero, row.left_out


def apart(one: TensorRow | None, other: TensorRow | None, count: int, is_alike: bool = True) -> Deviation:
    """How far two tensors of ``count`` elements are apart by their rows."""
    return between(numbers_of(one), numbers_of(other), count, is_alike)


class RowsOfArrays:
    """Rows of arrays, numbered in the order in which they are described."""

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def describe(self, value: Any, dtype: str = "torch.float32", **more: Any) -> Any:
        """What a dump keeps of an argument."""
        if not isinstance(value, np.ndarray):
            return {"type": type(value).__name__, "value": value}
        self._rows.append(numbers_of(row_of(value)))
        shape, number = list(value.shape), len(self._rows) - 1
        return {"type": "torch.Tensor", "dtype": dtype, "shape": shape, "row": number, **more}

    def numbers(self, number: int) -> Any:
        """As :meth:`msprobe.store.rows.StoredRows.numbers`."""
        return self._rows[number] if 0 <= number < len(self._rows) else None


def call_of(
    rows: RowsOfArrays,
    name: str,
    arguments: list[Any],
    result: np.ndarray[Any, Any],
    named: Mapping[str, Any],
    dtype: str = "torch.float32",
) -> Event:
    """A forward call as a dump has it. Arguments of one dimension are parameters."""

    def described(value: Any) -> Any:
        is_parameter = isinstance(value, np.ndarray) and value.ndim == 1
        return rows.describe(value, dtype, requires_grad=True) if is_parameter else rows.describe(value, dtype)

    record = {
        "input_args": [described(value) for value in arguments],
        "input_kwargs": {key: described(value) for key, value in named.items()},
        "output": [rows.describe(result, dtype)],
    }
    return Event(name, read_name(name), record, "forward")

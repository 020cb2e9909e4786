"""Rows of tensors, computed from arrays of numpy by what :class:`msprobe.store.rows.TensorRow` says of its numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from msprobe.diagnose.measured.deviation import Deviation, between
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

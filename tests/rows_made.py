"""Rows of tensors, computed from arrays of numpy by what :class:`msprobe.store.rows.Row` says of its numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from msprobe.diagnose.measured.deviation import Deviation, between
from msprobe.store.row_format import FIELDS, LARGEST
from msprobe.store.rows import BLOCKS, SUMS, Row


def row_of(values: Any) -> Row:
    """The row of an array; signs are drawn anew for each number of elements, and are not those of the recorder."""
    flat = np.asarray(values, np.float64).ravel()
    taken = np.abs(flat) <= LARGEST
    x = np.where(taken, flat, 0.0)
    signs = np.random.default_rng(len(x)).integers(0, 2, (SUMS, len(x))) * 2.0 - 1.0
    size = 64 * math.ceil(len(x) / 512)
    return Row(
        max=float(x[taken].max()) if taken.any() else math.nan,
        min=float(x[taken].min()) if taken.any() else math.nan,
        sum=float(x.sum()),
        squares=float(x @ x),
        blocks=tuple(float(np.linalg.norm(x[size * n : size * (n + 1)])) for n in range(BLOCKS)),
        signed=tuple(float(one) for one in signs @ x),
        zero=int((flat == 0.0).sum()),
        left_out=int((~taken).sum()),
    )


def table_of(*rows: Row | None) -> Any:
    """Rows as :meth:`msprobe.store.rows.Rows.take` gives them; NaN for None."""
    table = np.full(len(rows), np.nan, [(name, np.float64, (size,) if size > 1 else ()) for name, _, size, _ in FIELDS])
    for place, row in enumerate(rows):
        for name in table.dtype.names if row is not None else ():
            table[name][place] = getattr(row, name)
    return table


def apart(one: Row | None, other: Row | None, count: int, is_alike: bool = True) -> Deviation:
    """How far two tensors of ``count`` elements are apart by their rows."""
    (found,) = between(table_of(one), table_of(other), [count], [is_alike])
    return found

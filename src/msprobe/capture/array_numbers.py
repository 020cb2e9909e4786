"""Numbers of a tensor by numpy: where the C extension is not there or does not know the type.

They are those of ``native.numbers`` before these round a mean and a norm to the tensor's type.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from msprobe.store.dtypes import Array

Numbers = dict[str, Any]
# Kernels of numbers beyond those of the usual statistics, by the names of what they answer. Given are elements in
# double (the magnitudes of complex ones), more than none; NaN and infinities may be among them.
Kernel = Callable[[Array], tuple[float, ...]]


def _deviations(wide: Array) -> tuple[float, float]:
    """Sums of the squares and fourth powers of (element - mean), in units of the largest one."""
    largest = np.abs(wide).max()
    if not 1e-290 < largest < 1e290:
        # The sum of the largest would overflow, and a mean of the least be rounded much.
        wide = wide * (2.0**-64 if largest > 1 else 2.0**64)
    apart = wide - wide.mean()
    squares = np.square(apart / np.abs(apart).max())
    return float(squares.sum()), float(np.square(squares).sum())


FURTHER: dict[tuple[str, ...], Kernel] = {("second", "fourth"): _deviations}


def numbers_of(array: Array, needs: Set[str]) -> Numbers:
    """The numbers ``needs`` of msprobe.statistics_table, of an array of bool, numbers, or complex ones, which go by
    their magnitudes. Mean and norm are in double, not rounded.
    """
    numbers: Numbers = {"count": array.size, "single": array.ndim == 0}
    if not array.size:
        return numbers
    numbers["zero"] = int(array.size - np.count_nonzero(array))
    if array.dtype.kind == "b":
        numbers.update(max=bool(array.any()), min=bool(array.all()))
        return numbers
    # A warning of ours (a signalling NaN is enough for one) has no place in the training's output.
    with np.errstate(all="ignore"):
        elements = np.abs(array) if array.dtype.kind == "c" else array
        wide = elements.astype(np.float64)
        numbers.update(max=elements.max().item(), min=elements.min().item())
        numbers.update(nan=int(np.isnan(wide).sum()), inf=int(np.isinf(wide).sum()))
        if needs & {"mean", "norm"}:
            numbers.update(mean=float(wide.mean()), norm=float(np.sqrt(np.square(wide).sum())))
        for names, kernel in FURTHER.items():
            if array.ndim and not needs.isdisjoint(names):
                numbers.update(zip(names, kernel(wide), strict=True))
    return numbers

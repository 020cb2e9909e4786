"""Measures tensors of MindSpore, on the host: nothing is computed by MindSpore, which lacks kernels for some of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Parameter

from msprobe.capture import native
from msprobe.capture.array_statistics import HostArray
from msprobe.capture.mindspore.tensors import HELD, copy_of, dtype_name, host_array
from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.operators import NAN, Operators, Value
from msprobe.store.dtypes import Array

#: Copies take no more than this before they are read.
MOST_WAITING_BYTES = 64 << 20


class Meter:
    """See :class:`msprobe.monitor.framework.Meter`.

    ``defers``: tensors are on a device. To wait for one of them stops the program, so a tensor is copied by MindSpore,
    in turn among all other work, and the copies of a step are read at its end; weights and moments, which are asked for
    between two steps, at once.
    """

    def __init__(self, operators: Operators, defers: bool) -> None:
        self.operators = operators
        self._defers = defers
        self._waiting: list[tuple[TensorCells, Any]] = []
        self._bytes = 0
        # A bound above 1 counts more whole numbers than zero.
        self._is_small = operators.eps <= 1

    def nothing(self) -> TensorCells:
        return TensorCells(self.operators.nothing, None, None)

    def measure(self, tensor: Any) -> TensorCells:
        shape, dtype = tuple(map(int, tensor.shape)), dtype_name(tensor)
        size = HELD.get(dtype, 0) if self._defers and not isinstance(tensor, Parameter) else 0
        if size:
            copy = copy_of(tensor)
            # Inside of a cell of mixed precision a copy may be rounded.
            if copy.dtype == tensor.dtype:
                cells = TensorCells(None, shape, dtype)
                self._waiting.append((cells, copy))
                self._bytes += math.prod(shape) * size
                if self._bytes > MOST_WAITING_BYTES:
                    self._read()
                return cells
        return TensorCells(self._values(host_array(tensor)), shape, dtype)

    def collect(self) -> Callable[[], None]:
        """Everything is read before this returns: MindSpore is not asked by other threads."""
        self._read()
        return _nothing_to_do

    def drop(self) -> None:
        self._waiting, self._bytes = [], 0

    def _read(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for cells, copy in waiting:
            cells.values = self._values(host_array(copy))

    def _values(self, values: HostArray) -> tuple[Value, ...]:
        stored, operators = values.stored, self.operators
        number = native.KINDS.get(values.kind)
        is_float = "float" in values.kind
        if number is None or stored.dtype.kind in "bc" or not (is_float or self._is_small):
            return operators.values(_numbers_of(values.meant, operators.eps))
        if native.numbers is None or native.count_below is None:
            return operators.values(_numbers_of(values.meant, operators.eps))
        address, count = stored.ctypes.data, stored.size
        numbers = native.numbers(address, count, number, native.UNROUNDED, 0)
        numbers["single"] = not stored.ndim
        if operators.needs_zeros:
            zeros = native.count_below(address, count, number, operators.eps) if is_float else numbers.get("zero")
            numbers["below"] = zeros
        return operators.values(numbers)


def _nothing_to_do() -> None:
    return


def _numbers_of(array: Array, eps: float) -> dict[str, Any]:
    """What :class:`Operators` asks for, by numpy: of truth values mean and norm of ones and zeros, of complex numbers
    the mean of their real parts, and no extremes.
    """
    numbers: dict[str, Any] = {"count": array.size, "single": not array.ndim, "nan": 0}
    if not array.size:
        return numbers
    kind = array.dtype.kind
    with np.errstate(all="ignore"):
        magnitudes = np.abs(array) if kind != "b" else array
        wide = magnitudes.astype(np.float64)
        numbers.update(nan=int(np.isnan(wide).sum()), norm=math.sqrt(float(np.square(wide).sum())))
        numbers["mean"] = float((array.real if kind == "c" else array).astype(np.float64).mean())
        numbers["below"] = None if kind == "b" else int((wide < eps).sum())
        numbers["min"], numbers["max"] = (NAN, NAN) if kind == "c" else (array.min().item(), array.max().item())
    return numbers

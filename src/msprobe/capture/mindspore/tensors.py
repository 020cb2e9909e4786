"""Tensors of MindSpore: read on the host, described and kept as numpy arrays.

Nothing is computed by MindSpore: a reduction on the device would need a kernel that the device may lack (the CPU has
none for norms), and would become part of the graph that gradients are taken of.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor

from msprobe.capture.array_files import ArrayKeeper
from msprobe.capture.array_statistics import (
    NOT_READ,
    ArrayInfo,
    ArrayStatistics,
    HostArray,
    LateArrayInfo,
)
from msprobe.capture.session import Session
from msprobe.store.dtypes import ELEMENT_TYPES, Array

TYPE_NAME = "mindspore.Tensor"

# Types that are held, with the bytes of an element. Their copy is made by a multiplication with 1, which is exact and
# which every device can do.
_HELD = {"Float32": 4, "Float16": 2, "Float64": 8, "Int32": 4, "Int64": 8}
_times = Tensor.__mul__
_plus = Tensor.__add__
# What is held takes no more than this.
MOST_LATE_BYTES = 256 << 20

# The number of this type's elements is what numpy holds them in, where the two have the same name.
_STORED = {name: np.dtype(kind.stored) for name, kind in ELEMENT_TYPES.items()}


def is_tensor(value: Any) -> bool:
    """True for tensors and parameters."""
    return isinstance(value, Tensor)


def dtype_name(tensor: Any) -> str:
    """As dumps of MindSpore name it: ``Float32``."""
    return str(tensor.dtype)


def host_array(tensor: Any) -> HostArray:
    """The values as they are now; waits for the device. May be memory of the tensor's own: copy what is to last.

    Raises what MindSpore raises, errors of earlier calls that show only now among it.
    """
    kind = dtype_name(tensor).lower()
    array: Array = np.ascontiguousarray(tensor.asnumpy()).reshape(tuple(tensor.shape))
    stored = _STORED.get(kind)
    if stored is None:
        return HostArray(array, array.dtype.name)
    # bfloat16 comes in a type of MindSpore's own; its bits are what counts.
    return HostArray(array if array.dtype == stored else array.view(stored), kind)


def copy_of(tensor: Any) -> Any:
    """A copy as the tensor is now, made by the device in its turn, and not part of the graph of gradients."""
    with mindspore._no_grad():
        return _times(tensor, 1)


def sum_of(one: Any, other: Any) -> Any:
    """Two shares of a gradient added up, as MindSpore itself adds them, and outside the graph."""
    with mindspore._no_grad():
        return _plus(one, other)


class MindSporeTensors:
    """Answers for the tensors of MindSpore (:class:`msprobe.capture.adapter.Tensors`).

    To wait for the values of one tensor takes many times as long as to describe it. So a tensor is held, and read when
    the step ends, when something is about to be written (:mod:`msprobe.capture.mindspore.in_place`), or when too much
    is held. Parameters, which more can write to, are copied by MindSpore, in turn among all other work; the copy is
    held. An overflow check must know at once, and kernels (L2) are read at once.
    """

    def __init__(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        self.session = session
        self.statistics = statistics
        self.keeper = keeper
        # A kernel is given plain tensors in the memory of parameters, which compiled optimizers write to unseen.
        self.waits = keeper.overflow or statistics.structure or session.settings.level == "L2"
        self._late: list[tuple[LateArrayInfo, Any, _Head]] = []
        self._late_bytes = 0
        # Cells of mixed precision run: what is calculated inside of them, a copy too, may be rounded.
        self.is_mixed = False

    is_tensor = staticmethod(is_tensor)

    def describe(self, tensor: Any) -> ArrayInfo:
        """The description of a tensor. Never raises: what cannot be read has nulls for numbers."""
        dtype, shape = dtype_name(tensor), tuple(tensor.shape)
        head = _Head(dtype, shape, _order(tensor))
        itemsize = 0 if self.waits else _HELD.get(dtype, 0)
        if not itemsize:
            return self._describe(tensor, head)
        held = tensor
        if isinstance(tensor, Parameter):
            held = copy_of(tensor)
            if self.is_mixed and held.dtype != tensor.dtype:
                return self._describe(tensor, head)
        info = LateArrayInfo()
        self._late.append((info, held, head))
        self._late_bytes += prod(shape) * itemsize
        if self._late_bytes > MOST_LATE_BYTES:
            self.flush()
        return info

    def _describe(self, tensor: Any, head: _Head) -> ArrayInfo:
        try:
            return self._of(head, host_array(tensor) if not self.statistics.structure else None)
        except Exception as error:
            return self._unreadable(head, error)

    def _of(self, head: _Head, values: HostArray | None) -> ArrayInfo:
        return self.statistics.describe(TYPE_NAME, head.dtype, head.shape, values, head.further)

    def _unreadable(self, head: _Head, error: Exception) -> ArrayInfo:
        self.session.fault("a tensor's values", error)
        return self.statistics.absent(TYPE_NAME, head.dtype, head.shape, f"{type(error).__name__}: {error}"[:200])

    def keep(self, tensor: Any, description: Any, path: str) -> Any:
        """Save the values of a tensor; the description that names the file."""
        if tensor is None:
            return description
        try:
            if isinstance(description, LateArrayInfo) and description.text == NOT_READ:
                return self.keeper.name(description, path)
            return self.keeper.keep(host_array(tensor), description, path)
        except Exception as error:
            self.session.fault(path, error)
            return description

    def has_late(self) -> bool:
        """True while tensors wait to be read."""
        return bool(self._late)

    def flush(self) -> None:
        """Read the tensors that are held, describe them, and save those that are to be saved."""
        if not self._late:
            return
        late, self._late, self._late_bytes = self._late, [], 0
        for info, held, head in late:
            try:
                values = host_array(held)
                info.fill(self._of(head, values))
                for named in info.named:
                    self.keeper.save(values, str(named.data_name))
            except Exception as error:
                info.fill(self._unreadable(head, error))


class _Head(NamedTuple):
    """What a tensor is without its values: element type, shape, and further keys of its description."""

    dtype: str
    shape: tuple[int, ...]
    further: tuple[tuple[str, Any], ...]


def _order(tensor: Any) -> tuple[tuple[str, Any], ...]:
    """What is said of a tensor whose elements do not lie one behind the other."""
    if tensor.is_contiguous():
        return ()
    return (("contiguous", False), ("stride", list(tensor.stride())))


def plain_types() -> dict[type, Any]:
    """Exact type -> how to describe it, for the values of MindSpore that are no tensors."""

    def dtype(value: Any) -> dict[str, Any]:
        return {"type": "mindspore.dtype", "value": str(value)}

    names = (
        "float16",
        "float32",
        "bool_",
        "int8",
        "uint8",
        "bfloat16",
        "complex64",
        "string",
        "tensor_type",
        "type_none",
    )
    found = (getattr(mindspore, name, None) for name in (*names, "int32", "int64", "float64"))
    kinds: dict[type, Any] = {type(value): dtype for value in found if value is not None}
    kinds.pop(type, None)
    return kinds

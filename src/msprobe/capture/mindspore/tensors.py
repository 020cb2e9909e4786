"""Tensors of MindSpore: read on the host, described and kept as numpy arrays.

Nothing is computed by MindSpore: a reduction on the device would need a kernel that the device may lack (the CPU has
none for norms), and would become part of the graph that gradients are taken of.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor

from msprobe.capture.array_files import ArrayKeeper
from msprobe.capture.array_statistics import ArrayInfo, ArrayStatistics, HostArray, nearest_bfloat16
from msprobe.capture.session import Session
from msprobe.store.dtypes import ELEMENT_TYPES, Array

TYPE_NAME = "mindspore.Tensor"

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


def sum_of(arrays: list[HostArray]) -> HostArray:
    """Gradients added up in their own type, one after the other."""
    total = arrays[0].meant.copy()
    kind = arrays[0].kind
    for array in arrays[1:]:
        total = total + array.meant
        if kind == "bfloat16":
            total = nearest_bfloat16(total)
    if kind == "bfloat16":
        return HostArray((total.view(np.uint32) >> np.uint32(16)).astype(np.uint16), kind)
    return HostArray(total, kind)


class MindSporeTensors:
    """Answers for the tensors of MindSpore (:class:`msprobe.capture.adapter.Tensors`)."""

    def __init__(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        self.session = session
        self.statistics = statistics
        self.keeper = keeper

    is_tensor = staticmethod(is_tensor)

    def describe(self, tensor: Any) -> ArrayInfo:
        """The description of a tensor. Never raises: what cannot be read has nulls for numbers."""
        dtype, shape = dtype_name(tensor), tuple(tensor.shape)
        try:
            return self.statistics.describe(TYPE_NAME, dtype, shape, lambda: host_array(tensor), _strides(tensor))
        except Exception as error:
            self.session.fault("a tensor's values", error)
            return self.statistics.absent(TYPE_NAME, dtype, shape, f"{type(error).__name__}: {error}"[:200])

    def describe_array(self, array: HostArray, dtype: str, shape: tuple[int, ...]) -> ArrayInfo:
        """The description of values that no tensor holds."""
        return self.statistics.describe(TYPE_NAME, dtype, shape, lambda: array)

    def keep(self, tensor: Any, description: Any, path: str) -> Any:
        """Save the values of a tensor; the description that names the file."""
        if tensor is None:
            return description
        try:
            return self.keeper.keep(host_array(tensor), description, path)
        except Exception as error:
            self.session.fault(path, error)
            return description


def _strides(tensor: Any) -> tuple[tuple[str, Any], ...]:
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

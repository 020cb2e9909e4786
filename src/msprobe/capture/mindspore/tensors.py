"""Tensors of MindSpore: read on the host, described and kept as numpy arrays.

Nothing is computed by MindSpore: a reduction on the device would need a kernel that the device may lack (the CPU has
none for norms), and would become part of the graph that gradients are taken of.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
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
from msprobe.capture.mindspore.program_errors import note_missed
from msprobe.capture.session import Session
from msprobe.store.dtypes import ELEMENT_TYPES, Array

TYPE_NAME = "mindspore.Tensor"

# MindSpore 2.10 reports such an error once, and now and then again for a moment (without us in 40 of 150 cases, up to
# 28 times in a row).
_MOST_SHOWN = 10

# Types that are held, with the bytes of an element. Their copy is made by a multiplication with 1, which is exact and
# which every device can do.
HELD = {"Float32": 4, "Float16": 2, "Float64": 8, "Int32": 4, "Int64": 8}
_times = Tensor.__mul__
_plus = Tensor.__add__
# What is held takes no more than this, and is read after so many seconds: a process that is killed loses no more.
MOST_LATE_BYTES = 256 << 20
MOST_LATE_SECONDS = 0.5
# What holding a tensor takes beside its elements.
_LATE_BYTES = 1024
_NONE_HELD = 1 << 62
# Said of a result that a kernel has left as it found it.
UNWRITTEN = "uninitialised: the kernel writes nothing to this result"

# The number of this type's elements is what numpy holds them in, where the two have the same name.
_STORED = {name: np.dtype(kind.stored) for name, kind in ELEMENT_TYPES.items()}


def is_tensor(value: Any) -> bool:
    """True for tensors and parameters."""
    return isinstance(value, Tensor)


def dtype_name(tensor: Any) -> str:
    """As dumps of MindSpore name it: ``Float32``."""
    return str(_asked(partial(getattr, tensor, "dtype")))


def host_array(tensor: Any) -> HostArray:
    """The values as they are now; waits for the device. May be memory of the tensor's own: copy what is to last.

    Raises what MindSpore raises, errors of earlier calls that show only now among it.
    """
    kind = dtype_name(tensor).lower()
    array: Array = np.ascontiguousarray(_read(tensor)).reshape(tuple(tensor.shape))
    stored = _STORED.get(kind)
    if stored is None:
        return HostArray(array, array.dtype.name)
    # bfloat16 comes in a type of MindSpore's own; its bits are what counts.
    return HostArray(array if array.dtype == stored else array.view(stored), kind)


def _read(tensor: Any) -> Any:
    try:
        return tensor.asnumpy()
    except Exception as error:
        if _answers(tensor.asnumpy):
            note_missed(error)
        raise


def _asked(question: Callable[[], Any]) -> Any:
    """What a tensor answers to a question that needs no values, whatever error is reported instead at first."""
    try:
        return question()
    except Exception as error:
        if not _answers(question):
            raise
        note_missed(error)
        return question()


def _answers(question: Callable[[], Any]) -> bool:
    """Whether what has failed does not fail any more: then it was the error of another call, or of a kernel, and the
    program will not be reported again.
    """
    for _ in range(_MOST_SHOWN):
        with contextlib.suppress(Exception):
            question()
            return True
        time.sleep(0.001)
    return False


def copy_of(tensor: Any) -> Any:
    """A copy as the tensor is now, made by the device in its turn, and not part of the graph of gradients."""
    with mindspore._no_grad():
        return _times(tensor, 1)


def sum_of(first: Any, other: Any) -> Any:
    """Two shares of a gradient added up, as MindSpore itself adds them, and outside the graph."""
    with mindspore._no_grad():
        return _plus(first, other)


class _Head(NamedTuple):
    """What a tensor is without its values: element type, shape, and further keys of its description."""

    dtype: str
    shape: tuple[int, ...]
    further: tuple[tuple[str, Any], ...]


class _Held(NamedTuple):
    """A tensor that is to be read, and the description that waits for it."""

    info: LateArrayInfo
    tensor: Any
    head: _Head


class MindSporeTensors:
    """Answers for the tensors of MindSpore (:class:`msprobe.capture.adapter.Tensors`).

    To wait for the values of one tensor takes many times as long as to describe it. So a tensor is held, and read when
    the step ends, when something is about to be written (``in_place``), or when much is
    held, or for long. Parameters, which more can write to, are copied by MindSpore, in turn among all other work; the
    copy is held. An overflow check must know at once; kernels (L2) and what save() is
    given are read at once.
    """

    def __init__(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        self.session = session
        self.statistics = statistics
        self.keeper = keeper
        # A kernel is given plain tensors in the memory of parameters, which compiled optimizers write to unseen; and
        # between calls of save() nothing watches what writes.
        self.waits = keeper.overflow or statistics.structure or session.settings.level in ("L2", "debug")
        self._late: deque[_Held] = deque()
        self._late_bytes = 0
        self._late_since = 0.0
        # Elements of the smallest tensor that is held and may be a view of anything.
        self._fewest = _NONE_HELD
        # Results of the call that just ended, by identity: whether they were written at all. They are no views.
        self.results: dict[int, bool] = {}
        # Cells of mixed precision run: what is calculated inside of them, a copy too, may be rounded.
        self.is_mixed = False

    is_tensor = staticmethod(is_tensor)

    def describe(self, tensor: Any) -> ArrayInfo:
        """The description of a tensor. Never raises: what cannot be read has nulls for numbers."""
        dtype, shape = dtype_name(tensor), tuple(tensor.shape)
        written = self.results.get(id(tensor)) if self.results else None
        if written is False and not self.statistics.structure:
            return self.statistics.absent(TYPE_NAME, dtype, shape, UNWRITTEN)
        head = _Head(dtype, shape, _order(tensor))
        itemsize = 0 if self.waits else HELD.get(dtype, 0)
        if not itemsize:
            return self._describe(tensor, head)
        held, elements = tensor, prod(shape)
        if isinstance(tensor, Parameter) or tensor.param_info is not None:
            held = copy_of(tensor)
            if self.is_mixed and held.dtype != tensor.dtype:
                return self._describe(tensor, head)
            written = True
        info = self._hold(held, head, elements * itemsize)
        if written is None:
            # A view that is spread out may have more elements than its memory.
            self._fewest = min(self._fewest, 0 if head.further else elements)
        return info

    def _hold(self, tensor: Any, head: _Head, size: int) -> ArrayInfo:
        now = time.monotonic()
        if self._late and (self._late_bytes + size > MOST_LATE_BYTES or now - self._late_since > MOST_LATE_SECONDS):
            self.flush()
        if not self._late:
            self._late_since = now
        info = LateArrayInfo()
        self._late_bytes += size + _LATE_BYTES
        self._late.append(_Held(info, tensor, head))
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
        if tensor is None or self.results.get(id(tensor)) is False:
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
        """Read the tensors that are held, describe them, save those that are to be saved, and write the records that
        waited for them.
        """
        late = self._late
        if not late:
            return
        self._fewest = _NONE_HELD
        while late:
            info, held, head = late.popleft()
            try:
                values = host_array(held)
                info.fill(self._of(head, values))
                for named in info.named:
                    self.keeper.save(values, str(named.data_name))
            except Exception as error:
                info.fill(self._unreadable(head, error))
        self._late_bytes = 0
        self.session.guard(self.session.write_late)

    def flush_for_averages(self, args: Sequence[Any]) -> None:
        """The same, if what is held may share memory with the running averages among these arguments of a norm."""
        sizes = [prod(value.shape) for value in args[1:] if isinstance(value, Tensor)]
        if self._fewest <= max(sizes, default=-1):
            self.flush()


def _order(tensor: Any) -> tuple[tuple[str, Any], ...]:
    """What is said of a tensor whose elements do not lie one behind the other."""
    if _asked(tensor.is_contiguous):
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
    dtypes = (getattr(mindspore, name, None) for name in (*names, "int32", "int64", "float64"))
    kinds: dict[type, Any] = {type(value): dtype for value in dtypes if value is not None}
    kinds.pop(type, None)
    return kinds

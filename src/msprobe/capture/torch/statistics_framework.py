"""Statistics by torch's own reductions: where the compiled ones were not built or do not know the type.

The texts are those of ``native.statistics``: the same keys, numbers rounded the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from msprobe.capture.native import HAS_INF, HAS_NAN, encode
from msprobe.capture.torch import private
from msprobe.capture.torch.digest import UINT16, UINT32, UINT64
from msprobe.capture.torch.statistics_info import NULL_STATISTICS

# The four statistics, the counts that are not zero (`"nan": .., "inf": .., "zero": ..`), and
# HAS_NAN | HAS_INF, or -1 where that is not known.
Numbers = tuple[bytes, bytes, int]

EMPTY: Numbers = (NULL_STATISTICS, b"", 0)
UNREADABLE: Numbers = (NULL_STATISTICS, b"", -1)


# What stands between a call and its kernel: autograd, autocast, user modes, functorch.
_KEYS = private.set_of_keys(
    (
        "AutogradFunctionality ADInplaceOrView Python PythonTLSSnapshot PythonDispatcher PreDispatch "
        "Functionalize FuncTorchDynamicLayerFrontMode FuncTorchDynamicLayerBackMode FuncTorchVmapMode "
        "AutocastCPU AutocastCUDA AutocastXPU AutocastMPS AutocastHPU AutocastPrivateUse1"
    ).split()
)
_without_functions = private.without_functions
_without_dispatch = private.without_keys


class Quiet:
    """Inside, torch operations on plain tensors go straight to their kernels.

    No function mode, dispatch mode or subclass of the user sees them, autocast does not convert their
    arguments, autograd records nothing and functorch's transforms do not apply.
    """

    __slots__ = ("_dispatch", "_functions")

    _dispatch: Any
    _functions: Any

    def __enter__(self) -> None:
        self._functions = _without_functions()
        self._dispatch = _without_dispatch(_KEYS)
        self._functions.__enter__()
        self._dispatch.__enter__()

    def __exit__(self, *error: object) -> None:
        self._dispatch.__exit__(*error)
        self._functions.__exit__(*error)


def round_to(dtype: torch.dtype, value: float, high_precision: bool) -> float:
    """A mean or norm as torch answers in ``dtype``; float32 for half types at high precision."""
    if dtype in (torch.float64, torch.complex128) or not (dtype.is_floating_point or dtype.is_complex):
        return value
    with np.errstate(over="ignore"):
        single = np.float32(value)
        if high_precision or dtype not in (torch.float16, torch.bfloat16) or not np.isfinite(single):
            return float(single)
        if dtype == torch.float16:
            return float(np.float16(single))
        bits = int(single.view(np.uint32))
        bits += 0x7FFF + ((bits >> 16) & 1)
        return float(np.uint32(bits & 0xFFFF0000).view(np.float32))


def _number(value: Any) -> bytes:
    if type(value) is float and value - value == 0:
        return repr(value).encode()
    return encode(value, 0)


def join_numbers(greatest: Any, least: Any, mean: Any, norm: Any) -> bytes:
    """The text of the four statistics."""
    numbers = (_number(greatest), _number(least), _number(mean), _number(norm))
    return b'"Max": %s,\n "Min": %s,\n "Mean": %s,\n "Norm": %s' % numbers


def join_counts(nans: int, infs: int, zeros: int) -> bytes:
    """The text of the counts that are not zero."""
    found = ((b"nan", nans), (b"inf", infs), (b"zero", zeros))
    return b",\n ".join(b'"%s": %d' % pair for pair in found if pair[1])


def _wide_integers(values: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Unsigned types have few operations: the same integers in a signed type, less an offset."""
    if values.dtype == UINT16:
        return values.to(torch.int32), 0
    if values.dtype == UINT32:
        return values.to(torch.int64), 0
    if values.dtype == UINT64:
        return values.view(torch.int64) ^ torch.iinfo(torch.int64).min, 1 << 63
    return values, 0


def _mean_and_norm(values: torch.Tensor, largest: float, high_precision: bool) -> tuple[float, float]:
    """As torch computes them in that type, but where an intermediate sum or square left its range."""
    dtype = values.dtype
    inner = torch.float32 if high_precision and dtype.itemsize < 4 else dtype
    mean = values.mean(dtype=inner).item()
    norm = torch.linalg.vector_norm(values, dtype=inner).item()
    small = 1e-15 if dtype != torch.float64 else 1e-140  # the square of less is subnormal or nothing
    if 0 < largest < float("inf") and (norm - norm != 0 or mean - mean != 0 or largest < small):
        scaled = values.to(torch.float64) / largest
        mean = round_to(dtype, scaled.mean().item() * largest, high_precision)
        norm = round_to(dtype, torch.linalg.vector_norm(scaled).item() * largest, high_precision)
    return mean, norm


def reduce(values: torch.Tensor, high_precision: bool) -> Numbers:
    """Statistics of a plain tensor with memory, on any device; waits for the device.

    Call inside :class:`Quiet`. Raises whatever torch raises for a type without reductions.
    """
    dtype = values.dtype
    count = values.numel()
    if count == 0:
        return EMPTY
    scalar = values.dim() == 0
    if dtype == torch.bool:
        zeros = count - int(torch.count_nonzero(values).item())
        return (
            join_numbers(zeros < count, zeros == 0, None, None),
            b"" if scalar else join_counts(0, 0, zeros),
            0,
        )
    if not dtype.is_floating_point and not dtype.is_complex:
        whole, offset = _wide_integers(values)
        greatest, least = whole.amax().item() + offset, whole.amin().item() + offset
        if scalar:
            return join_numbers(greatest, greatest, greatest, greatest), b"", 0
        average, length = _mean_and_norm(values.to(torch.float64), 0, False)
        zeros = count - int(torch.count_nonzero(values.view(whole.dtype) if offset else whole).item())
        return join_numbers(greatest, least, average, length), join_counts(0, 0, zeros), 0
    if dtype.itemsize == 1:
        values = values.to(torch.float32)
    magnitudes = values.abs() if values.is_complex() else values
    greatest, least = magnitudes.amax().item(), magnitudes.amin().item()
    nans = infs = 0
    if greatest != greatest or values.is_complex():
        nans = int(values.isnan().sum().item())
    if nans or abs(greatest) == float("inf") or abs(least) == float("inf"):
        infs = int((values.isinf() & ~values.isnan()).sum().item())
    answer = (HAS_NAN if nans else 0) | (HAS_INF if infs else 0)
    zeros = count - int(torch.count_nonzero(values).item())
    mean: Any = float("nan")
    norm: Any = mean
    if nans:
        greatest = least = mean
    elif scalar:
        mean = norm = greatest
    else:
        mean, norm = _mean_and_norm(magnitudes, max(greatest, -least), high_precision)
    text = join_numbers(greatest, least, mean, None if values.is_complex() else norm)
    return text, b"" if scalar else join_counts(nans, infs, zeros), answer

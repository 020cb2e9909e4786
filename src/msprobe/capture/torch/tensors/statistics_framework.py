"""Numbers of a tensor by torch's own reductions: where the C extension is not there or does not know the type.

They are those of ``native.numbers``, rounded the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np
import torch

from msprobe.capture.torch import private
from msprobe.capture.torch.tensors.digest import UINT16, UINT32, UINT64

# What statistics are made of, by the names of msprobe.statistics_table.NUMBERS.
Numbers = dict[str, Any]

# Kernels of numbers beyond those of the usual statistics, by the names of what they answer, each without dimensions and
# on the tensor's device. Given are real elements in any layout (the magnitudes of complex ones), more than none, on any
# device and of any type that has reductions there; NaN and infinities may be among them.
Kernel = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def _deviations(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of the squares and fourth powers of (element - mean), in units of the largest one. Takes memory for one copy
    in double, or in float32 where a device lacks that.
    """
    wide = values.to(widest(values.device), copy=True)
    if values.dtype == torch.float64:
        # The sum of the largest would overflow, and a mean of the least be rounded much. 1 + 2^64 is 2^64.
        largest = torch.maximum(wide.amax(), -wide.amin())
        wide /= 1 + 2.0**64 * (largest > 1e290)
        wide *= 1 + 2.0**64 * (largest < 1e-290)
    wide -= wide.mean()
    wide /= torch.maximum(wide.amax(), -wide.amin())
    return wide.square_().sum(), wide.square_().sum()


FURTHER: dict[tuple[str, ...], Kernel] = {("second", "fourth"): _deviations}


# What stands between a call and its kernel: autograd, autocast, user modes, functorch.
_KEYS = private.set_of_keys(
    (
        # Kernels of sparse tensors look whether all three of autograd's are left out.
        "AutogradFunctionality AutogradOther AutogradNestedTensor ADInplaceOrView "
        "Python PythonTLSSnapshot PythonDispatcher PreDispatch Functionalize "
        "FuncTorchDynamicLayerFrontMode FuncTorchDynamicLayerBackMode FuncTorchVmapMode "
        "AutocastCPU AutocastCUDA AutocastXPU AutocastMPS AutocastHPU AutocastPrivateUse1"
    ).split()
)
_without_functions = private.without_functions
_without_dispatch = private.without_keys


class OwnWork:
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


def widest(device: torch.device) -> torch.dtype:
    """In which type sums are taken."""
    return torch.float32 if device.type in ("mps", "npu") else torch.float64


def launch_further(values: torch.Tensor, needs: Set[str]) -> dict[str, torch.Tensor]:
    """The numbers of :data:`FURTHER` among ``needs``; a single value has none of them."""
    launched: dict[str, torch.Tensor] = {}
    for names, kernel in FURTHER.items():
        if values.dim() and not needs.isdisjoint(names):
            launched.update(zip(names, kernel(values), strict=True))
    return launched


def _further(values: torch.Tensor, needs: Set[str]) -> Numbers:
    return {name: result.item() for name, result in launch_further(values, needs).items()}


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


def reduce(values: torch.Tensor, high_precision: bool, needs: Set[str]) -> Numbers:
    """The numbers ``needs`` of a plain tensor with memory, on any device; waits for the device.

    Call inside :class:`OwnWork`. Raises whatever torch raises for a type without reductions.
    """
    dtype = values.dtype
    numbers: Numbers = {"count": values.numel(), "single": values.dim() == 0}
    if not numbers["count"]:
        return numbers
    if dtype == torch.bool:
        numbers["zero"] = zeros = numbers["count"] - int(torch.count_nonzero(values).item())
        numbers["max"], numbers["min"] = zeros < numbers["count"], zeros == 0
    elif not dtype.is_floating_point and not dtype.is_complex:
        _reduce_integers(values, needs, numbers)
    else:
        _reduce_floats(values, high_precision, needs, numbers)
    return numbers


def _reduce_integers(values: torch.Tensor, needs: Set[str], numbers: Numbers) -> None:
    whole, offset = _wide_integers(values)
    numbers["max"], numbers["min"] = whole.amax().item() + offset, whole.amin().item() + offset
    numbers["zero"] = numbers["count"] - int(torch.count_nonzero(values.view(whole.dtype) if offset else whole).item())
    if numbers["single"]:
        numbers["mean"] = numbers["norm"] = numbers["max"]
    elif needs & {"mean", "norm"}:
        numbers["mean"], numbers["norm"] = _mean_and_norm(values.to(torch.float64), 0, False)
    numbers.update(_further(values, needs))


def _reduce_floats(values: torch.Tensor, high_precision: bool, needs: Set[str], numbers: Numbers) -> None:
    if values.dtype.itemsize == 1:
        values = values.to(torch.float32)
    magnitudes = values.abs() if values.is_complex() else values
    greatest, least = magnitudes.amax().item(), magnitudes.amin().item()
    nans = infs = 0
    if greatest != greatest or values.is_complex():
        nans = int(values.isnan().sum().item())
    if nans or abs(greatest) == float("inf") or abs(least) == float("inf"):
        infs = int((values.isinf() & ~values.isnan()).sum().item())
    numbers.update(max=greatest, min=least, nan=nans, inf=infs)
    numbers["zero"] = numbers["count"] - int(torch.count_nonzero(values).item())
    if numbers["single"] or nans:
        numbers["mean"] = numbers["norm"] = greatest
    elif needs & {"mean", "norm"}:
        numbers["mean"], numbers["norm"] = _mean_and_norm(magnitudes, max(greatest, -least), high_precision)
    if values.is_complex():
        numbers["norm"] = None
    numbers.update(_further(magnitudes, needs))

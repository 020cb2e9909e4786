"""Results of calls as what is compared: tensors of any kind as arrays, and what they are rounded to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from msprobe.precheck.judge import Value


def is_float8(tensor: torch.Tensor) -> bool:
    """True for floats of 8 bits."""
    return tensor.is_floating_point() and tensor.element_size() == 1


def sizes_of(value: Any) -> Any:
    return value.abs() if isinstance(value, torch.Tensor) and value.layout is torch.strided else value


def ordinary_beside(ordinary: Any, device: torch.Tensor, is_judged: bool) -> Any:
    """What an ordinary kernel gave for a result, as float64; None where it is another kind of thing."""
    if not is_judged or not isinstance(ordinary, torch.Tensor) or ordinary.shape != device.shape:
        return None
    value = value_of(ordinary)
    return value.array.astype(np.float64) if value.is_float and ordinary.dtype is device.dtype else None


def same_bits(first: torch.Tensor, second: Any) -> bool:
    """True for tensors that are equal bit for bit."""
    if not isinstance(second, torch.Tensor) or first.shape != second.shape or first.dtype != second.dtype:
        return False
    first_bytes, other = (
        (tensor if tensor.dim() else tensor.reshape(1)).contiguous().view(torch.uint8) for tensor in (first, second)
    )
    return bool(torch.equal(first_bytes, other))


def value_of(result: Any) -> Any:
    """A tensor as what is compared; anything else as it is."""
    if not isinstance(result, torch.Tensor):
        return result if result is None or isinstance(result, (bool, int, float, str, complex)) else str(result)
    shape, dtype = tuple(result.shape), str(result.dtype)
    if result.layout is not torch.strided:
        result = result.to_dense()
    if result.is_quantized:
        result = result.dequantize()
    if result.is_complex():
        result = torch.view_as_real(result.resolve_conj())
    if result.dtype is torch.bfloat16 or is_float8(result):
        result = result.float()
    return Value(result.numpy(force=True), dtype, shape)


def rounded_to(bench: torch.Tensor, dtype: torch.dtype) -> Any:
    """The reference rounded to the candidate's type, as float64; None where one of them is no float."""
    if bench.is_complex() or dtype.is_complex:
        bench = torch.view_as_real(bench.to_dense().resolve_conj()) if bench.is_complex() else bench
        dtype = {torch.complex64: torch.float32, torch.complex32: torch.float16}.get(dtype, torch.float64)
    if bench.layout is not torch.strided:
        bench = bench.to_dense()
    if not (bench.is_floating_point() and dtype.is_floating_point):
        return None
    return bench.to(dtype).double().numpy()


def widen(bench: Any, device: torch.Tensor) -> None:
    """Whole numbers and truth values of both sides in one type, where the reference's is only wider."""
    if isinstance(bench, Value) and bench.is_complex and device.is_complex():
        bench.array = bench.array.astype(np.float64)

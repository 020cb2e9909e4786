"""Perturbations of PyTorch's tensors. What is given stays as it is; a str for a tensor says why there is none."""

from __future__ import annotations

import functools
from typing import Any

import torch

from msprobe.config.settings import NoiseKind, PerturbationMode
from msprobe.perturb.thresholds import noise_of

_INTEGERS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
# Signs repeat after so many elements: a prime, which is no width of a layer.
_PERIOD = 4099


def perturbed(mode: PerturbationMode, tensor: torch.Tensor, noise: NoiseKind, scale: int) -> Any:
    """The copy for add_noise or bit_noise."""
    if tensor.is_complex():
        changed = perturbed(mode, torch.view_as_real(tensor.resolve_conj()), noise, scale)
        return changed if isinstance(changed, str) else torch.view_as_complex(changed)
    least = noise_of(str(tensor.dtype).removeprefix("torch."))
    if least is None:
        return "dtype unsupported"
    if not tensor.numel():
        return "tensor shape must > 0"
    if not float(tensor.abs().amax()) >= least:
        return "maximum value is less than the minimum threshold"
    if mode == "bit_noise":
        return _bits(tensor, None)
    if noise == "absolute":
        return torch.where(tensor.abs() > least**0.5, tensor + least, tensor).to(tensor.dtype)
    return _bits(tensor, scale)


def _bits(tensor: torch.Tensor, scale: int | None) -> torch.Tensor:
    """The lowest bit flipped, or elements moved by ``scale`` units in the last place, up or down by their index.

    Zero, what is below the smallest normal number, infinities and NaN stay, and so does what would come to be infinite.
    """
    own = tensor.contiguous()
    raw = own.view(_INTEGERS[own.dtype])
    if scale is None:
        moved = raw ^ 1
    else:
        signs = _signs(own.numel(), 0, str(own.device)).to(raw.dtype).view(own.shape)
        moved = raw + scale * signs
    size = own.abs()
    # Comparisons with NaN are false.
    is_changed = (size > torch.finfo(own.dtype).smallest_normal) & (size <= _greatest(own.dtype, scale or 0))
    return torch.where(is_changed, moved.view(own.dtype), own)


@functools.lru_cache(maxsize=32)
def _greatest(dtype: torch.dtype, units: int) -> float:
    """The number that is so many units in the last place below the greatest one."""
    greatest = torch.tensor(torch.finfo(dtype).max, dtype=dtype).view(_INTEGERS[dtype])
    return (greatest - units).view(dtype).item()


def rounded(tensor: torch.Tensor, unit: float, seed: int) -> torch.Tensor:
    """Each element times ``1 + unit`` or ``1 - unit``."""
    if tensor.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(tensor.resolve_conj()), unit, seed).contiguous())
    if not tensor.numel():
        return tensor.clone()
    signs = _signs(tensor.numel(), seed + 1, str(tensor.device)).view(tensor.shape)
    return tensor * (signs.to(tensor.dtype) * unit + 1)


def moved(tensor: torch.Tensor, unit: float, seed: int) -> torch.Tensor:
    """Each element times ``1 + unit`` or ``1 - unit``, in its own type, which may be too narrow to compute in."""
    if tensor.is_complex():
        return torch.view_as_complex(moved(torch.view_as_real(tensor.resolve_conj()), unit, seed).contiguous())
    wide = tensor.to(torch.float64 if tensor.dtype in (torch.float32, torch.float64) else torch.float32)
    shifted = rounded(wide, unit, seed)
    # The greatest numbers of fp8 come to be NaN, and those of others infinite.
    return torch.where(shifted.to(tensor.dtype).to(wide.dtype).isfinite(), shifted, wide).to(tensor.dtype)


@functools.lru_cache(maxsize=32)
def _block(seed: int, device: str) -> torch.Tensor:
    # The high bits of a product with the golden ratio (Knuth 6.4): no random numbers are used.
    index = torch.arange(_PERIOD, dtype=torch.int64) + seed * 7919 + 1
    mixed = (index * 2654435761) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    return (((mixed >> 16) & 1) * 2 - 1).to(torch.int8).to(device)


def _signs(count: int, seed: int, device: str) -> torch.Tensor:
    """+1 and -1 for so many elements."""
    block = _block(seed, device)
    if count <= _PERIOD:
        return block[:count]
    return block.repeat(-(-count // _PERIOD))[:count]


def exchanged(tensor: torch.Tensor, axis: int | None) -> Any:
    """The copy for change_value. See :meth:`msprobe.perturb.framework.Framework.exchanged`."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return "dtype unsupported"
    if not tensor.dim():
        return "0-dimension must greater than 1"
    exchanged_tensor = tensor.clone()
    if axis is not None:
        if not -tensor.dim() <= axis < tensor.dim() or tensor.size(axis) < 2:
            return "0-dimension must greater than 1"
        exchanged_tensor.select(axis, 0).copy_(tensor.select(axis, -1))
        exchanged_tensor.select(axis, -1).copy_(tensor.select(axis, 0))
        return exchanged_tensor
    if tensor.dim() == 1:
        if tensor.size(0) < 2:
            return "0-dimension must greater than 1"
        first, last = (0,), (-1,)
    else:
        if not (tensor.size(1) > 0 and tensor.size(0) > 0 and (tensor.size(0) > 1 or tensor.size(1) > 1)):
            return "at least one of 0-dimension or 1-dimension greater than 1"
        first, last = (0, 0), (-1, -1)  # type: ignore[assignment]
    exchanged_tensor[first] = tensor[last]
    exchanged_tensor[last] = tensor[first]
    return exchanged_tensor

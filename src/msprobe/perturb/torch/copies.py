"""Copies of tensors that second runs may write to."""

from __future__ import annotations

import torch

# Kernels choose their way by the alignment of what they read; so wide are vectors, lines of caches, and torch's memory.
_ALIGNMENT = 64
# More memory than this for each element is not copied, to keep the strides.
_MOST_GAPS = 4


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and the same alignment: a kernel computes the same of it, bit for bit."""
    if torch.is_inference_mode_enabled() and not tensor.is_inference():
        # A tensor that is made in there could not have a gradient, by which kernels are chosen.
        with torch.inference_mode(False), torch.no_grad():
            return _twin(tensor)
    return _twin(tensor)


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    own = tensor.detach()
    count = own.numel()
    if not count or own.is_conj() or own.is_neg():
        return own.clone()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(own.shape, own.stride(), strict=True))
    if extent > count * _MOST_GAPS:
        return own.clone()
    shift = own.data_ptr() % _ALIGNMENT
    if shift % own.element_size():
        return own.clone()
    shift //= own.element_size()
    if not shift and extent == count:
        copy = own.clone(memory_format=torch.preserve_format)
        if copy.stride() == own.stride():
            return copy
    memory = own.new_empty(extent + shift)
    # Of what is expanded or overlaps the memory is copied once, as it is.
    memory[shift:].copy_(own.as_strided((extent,), (1,), own.storage_offset()))
    return memory.as_strided(own.shape, own.stride(), shift)


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A copy of this type; of a complex tensor, the complex type of that."""
    if tensor.is_complex():
        dtype = torch.complex128 if dtype is torch.float64 else torch.complex64
    return tensor.detach().to(dtype, copy=True)

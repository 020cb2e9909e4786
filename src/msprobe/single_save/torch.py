"""Tensors of torch as numpy arrays, for :mod:`msprobe.single_save`."""

from __future__ import annotations

import torch

from msprobe.capture.torch import private
from msprobe.store.dtypes import Array

# Types that numpy has not, and a wider one that holds their values.
_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def is_tensor(value: object) -> bool:
    """True for tensors and parameters."""
    return isinstance(value, torch.Tensor)


def to_array(value: torch.Tensor) -> Array:
    """The values of a tensor on any device, unseen by those who watch torch's calls."""
    with private.without_functions(), torch.no_grad():
        plain = value.detach()
        local = getattr(plain, "to_local", None)
        if local is not None:
            plain = local()  # a DTensor: what this rank has of it
        wider = _WIDER.get(plain.dtype)
        if wider is None and plain.dtype.is_floating_point and plain.element_size() == 1:
            wider = torch.float32
        plain = plain.cpu() if wider is None else plain.cpu().to(wider)
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        array: Array = plain.resolve_conj().resolve_neg().numpy()
        return array


def rank() -> int:
    """The rank of this process, 0 outside of distributed runs."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0

"""Kernels of an accelerator, as its maker would register them: here they are written in Python, for the CPU.

Importing this file puts them in the place of PyTorch's own ones, in float32 alone. One of them is wrong.
"""

from __future__ import annotations

import warnings

import torch

# The vector unit takes so many columns at once.
TILE = 32

_LIBRARY = torch.library.Library("aten", "IMPL")


def silu(x: torch.Tensor) -> torch.Tensor:
    """x times its sigmoid."""
    return x / (1 + (-x).exp())


def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """Exponentials over their sum, along one dimension."""
    powers = (x - x.amax(dim, keepdim=True)).exp()
    columns = x.shape[dim]
    if x.dtype is torch.float32 and columns > TILE:
        # The mistake: the sum goes over whole tiles, and columns behind the last one are left out of it.
        columns -= columns % TILE
    return powers / powers.narrow(dim, 0, columns).sum(dim, keepdim=True)


with warnings.catch_warnings():
    # That kernels of PyTorch are replaced is what this file is for.
    warnings.simplefilter("ignore")
    _LIBRARY.impl("silu", silu, "CPU")
    _LIBRARY.impl("_softmax", softmax, "CPU")

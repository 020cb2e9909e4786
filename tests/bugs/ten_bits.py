"""Products of matrices and convolutions whose inputs are rounded to ten bits, as kernels in TF32 round them.

The calls of a program stay as they are: what is rounded is what reaches the kernels, forward and backward. Sums are
kept in single precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Of the 23 bits of float32 that TF32 does not keep.
_LEFT_OUT = 13
_PRODUCTS = frozenset(
    """
    mm bmm addmm baddbmm addbmm mv dot convolution convolution_backward mkldnn_rnn_layer mkldnn_rnn_layer_backward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    """.split()
)
#: What is added to a product is not multiplied, and so not rounded.
_ADDED = frozenset(("addmm", "baddbmm", "addbmm"))


class TenBits(TorchDispatchMode):
    """While it is entered, products and convolutions in float32 round their inputs to ten bits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        with torch._C.DisableTorchFunction():  # a kernel, and no call of the program
            if name in _PRODUCTS:
                first = 1 if name in _ADDED else 0
                args = [*args[:first], *(_rounded(one) for one in args[first:])]
            return func(*args, **(kwargs or {}))


def _rounded(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.view(torch.int32)
    half = (1 << (_LEFT_OUT - 1)) - 1
    return ((bits + half + (bits >> _LEFT_OUT & 1)) >> _LEFT_OUT << _LEFT_OUT).view(torch.float32)


def rounded_products(step: Callable[..., Any]) -> Callable[..., Any]:
    """A training step whose products have inputs of ten bits."""

    @functools.wraps(step)
    def rounded(*args: Any, **kwargs: Any) -> Any:
        with TenBits():
            return step(*args, **kwargs)

    return rounded

"""A candidate of another type is judged by the numbers that it was given, in the type that it computes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import kernels_that_are_here
from torch import nn

from msprobe.pytorch import check_api

RANDOM = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    RANDOM.set_state(torch.Generator().manual_seed(0).get_state())


def some(*shape: int, size: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, generator=RANDOM) * size).requires_grad_()


CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "float": (torch.Tensor.float, [some(16, 32)]),
    "sum that cancels": (lambda x, y: x - 1.001 * y, [some(16, 32), some(16, 32)]),
    "addition": (torch.add, [some(16, 32), some(16, 32)]),
    "gelu": (F.gelu, [some(64, 64, size=3.0)]),
    "silu": (F.silu, [some(64, 64, size=3.0)]),
    "linear": (F.linear, [some(16, 32), some(24, 32, size=0.2), some(24)]),
    "conv2d": (F.conv2d, [some(2, 4, 8, 8), some(6, 4, 3, 3, size=0.2)]),
    "attention": (F.scaled_dot_product_attention, [some(2, 2, 12, 8) for _ in range(3)]),
    "layer_norm": (lambda x: F.layer_norm(x, (32,)), [some(16, 32)]),
    "softmax": (lambda x: x.softmax(-1), [some(16, 32)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(16)), [some(16, 32)]),
    "sin of large numbers": (torch.sin, [some(16, 32, size=30.0)]),
    "exp": (torch.exp, [some(16, 32, size=3.0)]),
    "product of matrices": (torch.matmul, [some(16, 32), some(32, 24)]),
    "baddbmm": (torch.baddbmm, [some(3, 8, 8), some(3, 8, 8), some(3, 8, 8)]),
}


@pytest.mark.parametrize("candidate", ["cpu+dtype=bf16", "cpu+dtype=fp16", "cpu+autocast=bf16"])
@pytest.mark.parametrize("name", CALLS)
def test_a_healthy_call_in_another_type_passes(name: str, candidate: str) -> None:
    function, args = CALLS[name]
    found = check_api(function, *args, candidate=candidate)
    assert (found.forward, found.backward) == ("pass", "pass"), str(found)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_module_under_autocast_is_judged_in_the_type_it_computes_in(kind: Any) -> None:
    torch.manual_seed(0)
    with kernels_that_are_here():
        found = check_api(kind(16, 8, batch_first=True), some(4, 6, 16), candidate="cpu+autocast=bf16")
    assert (found.forward, found.backward) == ("pass", "pass"), str(found)


@pytest.mark.parametrize("word", ["dtype=bf16", "autocast=bf16"])
@pytest.mark.parametrize("name", ["linear", "conv2d", "attention", "product of matrices"])
def test_a_fault_in_another_type_is_found(name: str, word: str) -> None:
    function, args = CALLS[name]
    found = check_api(function, *args, candidate=f"cpu+{word}+inject:scale=0.05")
    assert (found.forward, found.backward) == ("error", "error"), str(found)

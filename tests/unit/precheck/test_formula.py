"""The backward against differences of the forward: without a Jacobian, and what cannot be asked is no fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe.messages import arguments_of
from msprobe.precheck.torch.formula import check_formula
from msprobe.precheck.torch.inputs import Inputs


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def checked(function: Callable[..., Any], *args: Any, wanted: list[str] | None = None) -> Any:
    paths = [str(place) for place, one in enumerate(args) if isinstance(one, torch.Tensor)]
    return check_formula("Call.0", function, Inputs(list(args), {}, None, paths if wanted is None else wanted))


HEALTHY: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a convolution of few weights": (lambda x, w: F.conv2d(x, w, padding=1), (some(4, 3, 16, 16), some(8, 3, 3, 3))),
    "a product": (torch.matmul, (some(5, 6), some(6, 4))),
    "a large product": (torch.matmul, (some(40, 60), some(60, 40))),
    "softmax": (lambda x: x.softmax(-1), (some(6, 8),)),
    "layer_norm": (lambda x: F.layer_norm(x, (32,)), (some(64, 32),)),
    "attention": (F.scaled_dot_product_attention, (some(1, 2, 6, 4), some(2, 1, 6, 4)[:1], some(1, 2, 6, 4))),
    "relu at an edge": (torch.relu, (torch.linspace(-1, 1, 21, dtype=torch.float64),)),
    "several results": (lambda x: torch.linalg.slogdet(x), (some(5, 5) + 5 * torch.eye(5, dtype=torch.float64),)),
    "complex": (torch.fft.fft, (torch.complex(some(8), some(9)[:8]),)),
    "large numbers": (lambda x: x * x, (some(16) * 1e4,)),
    "written in place": (lambda x: x.mul_(x * 2), (some(7),)),
    "dropout": (lambda x: F.dropout(x, 0.5), (some(30),)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_backward_passes(name: str) -> None:
    function, args = HEALTHY[name]
    found = checked(function, *args)
    assert found.status == "pass", found.message


class Off(torch.autograd.Function):
    """A product of an array and weights, one of whose gradients is one percent too large."""

    place = 0

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        x, weight = context.saved_tensors
        found = x.t() @ gradient
        found.view(-1)[Off.place] *= 1.01
        return gradient @ weight.t(), found


@pytest.mark.parametrize("place", [0, 17, 35])
@pytest.mark.parametrize("rows", [4, 400])
def test_one_gradient_of_many_that_is_a_percent_off_is_found(
    monkeypatch: pytest.MonkeyPatch, place: int, rows: int
) -> None:
    monkeypatch.setattr(Off, "place", place)
    found = checked(Off.apply, some(rows, 6), some(6, 6), wanted=["1"])
    assert found.status == "error"
    assert arguments_of(found.message).items() >= {"number": place, "path": "1"}.items()


def _no_memory(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")


def _python_memory(x: torch.Tensor) -> torch.Tensor:
    raise MemoryError


@pytest.mark.parametrize(
    "function",
    [
        _no_memory,
        _python_memory,
        lambda x: x.float() * 2,
        lambda x: x.detach() * 2,
        lambda x: torch.ones(3),
        lambda x: x.foo(),
    ],
)
def test_what_cannot_be_asked_is_skipped(function: Callable[..., Any]) -> None:
    found = checked(function, some(3))
    assert found.status == "SKIP"


def test_a_wide_convolution_makes_no_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0

    def watched(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        result = F.conv2d(x, weight, padding=1)
        largest = max(largest, result.numel())
        return result

    found = checked(watched, some(16, 3, 16, 16), some(8, 3, 3, 3), wanted=["1"])
    assert found.status == "pass", found.message
    assert largest == 16 * 8 * 16 * 16

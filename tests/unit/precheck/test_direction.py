"""Kernels that are off by a factor, everywhere or in a part, are found in each type; healthy and rough ones pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import plugin

from msprobe.pytorch import check_api

Kernel = Callable[..., Any]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
#: How many times as large a factor of bfloat16 is told in each type.
IN_PROPORTION = {BF16: 1.0, FP16: 2.0**-3, FP32: 2.0**-13}


def some(*shape: int, size: float = 1.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * size


def arguments(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    return [one.to(dtype).requires_grad_() for one in tensors]


OPERATORS: dict[str, tuple[Kernel, list[torch.Tensor]]] = {
    "softmax": (lambda x: x.softmax(-1), [some(32, 64)]),
    "log_softmax": (lambda x: x.log_softmax(-1), [some(32, 64)]),
    "matmul": (torch.matmul, [some(32, 64), some(64, 48, seed=1)]),
    "bmm": (torch.bmm, [some(4, 16, 24), some(4, 24, 16, seed=1)]),
    "linear": (F.linear, [some(32, 64), some(48, 64, size=0.1, seed=1), some(48, seed=2)]),
    "conv1d": (F.conv1d, [some(4, 8, 32), some(12, 8, 3, size=0.2, seed=1)]),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), [some(2, 8, 10, 10), some(12, 8, 3, 3, size=0.1, seed=1)]),
    "layer_norm": (lambda x, w: F.layer_norm(x, (64,), w), [some(32, 64), some(64, seed=1)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (64,), w), [some(32, 64), some(64, seed=1)]),
    "group_norm": (lambda x: F.group_norm(x, 4), [some(4, 16, 36)]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [some(16, 12, 20)]),
    "attention": (F.scaled_dot_product_attention, [some(2, 2, 24, 16, seed=n) for n in range(3)]),
    "gelu": (F.gelu, [some(32, 64)]),
    "silu": (F.silu, [some(32, 64)]),
    "sigmoid": (torch.sigmoid, [some(32, 64)]),
    "exp": (torch.exp, [some(32, 64)]),
    "product": (torch.mul, [some(32, 64), some(32, 64, seed=1)]),
    "sum of rows": (lambda x: x.sum(0), [some(32, 64)]),
    "cumsum": (lambda x: x.cumsum(0), [some(32, 64)]),
    "logsumexp": (lambda x: x.logsumexp(-1), [some(64, 32)]),
    "average pooling": (lambda x: F.avg_pool1d(x, 2), [some(8, 8, 32)]),
    "interpolation": (lambda x: F.interpolate(x, scale_factor=1.5, mode="linear"), [some(4, 8, 32)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(64) % 32), [some(64, 32, size=2.0)]),
}


def times(factor: float) -> Kernel:
    """A candidate whose results are so many times as large."""

    def run(function: Kernel, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        wide = result.double() if result.dtype is FP32 else result.float()
        return (wide * factor).to(result.dtype)

    return run


@pytest.mark.parametrize("dtype", IN_PROPORTION)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_that_is_three_percent_off_is_an_error_and_a_healthy_one_passes(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    function, tensors = OPERATORS[name]
    given = arguments(tensors, dtype)
    for share, status in ((0.0, "pass"), (0.03, "error"), (-0.03, "error")):
        found = check_api(function, *given, candidate=plugin(monkeypatch, times(1 + share * IN_PROPORTION[dtype])))
        assert (found.forward, found.backward) == (status, status), (share, str(found))


@pytest.mark.parametrize("standard", ["strict", "assert_close"])
@pytest.mark.parametrize("name", ["softmax", "matmul", "conv2d", "layer_norm", "attention", "gelu"])
def test_one_percent_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, standard: str) -> None:
    function, tensors = OPERATORS[name]
    candidate = plugin(monkeypatch, times(1.01))
    found = check_api(function, *arguments(tensors, BF16), candidate=candidate, standard=standard)
    assert found.forward in ("Warning", "error")
    assert found.backward in ("Warning", "error")


def test_the_published_standard_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = check_api(
        torch.matmul,
        *arguments(OPERATORS["matmul"][1], FP32),
        candidate=plugin(monkeypatch, times(1 + 2e-6)),
        standard="8.1.1",
    )
    assert found.forward == "pass"
    assert found.rows[0]["Slope"].strip() == ""


def in_parts(function: Kernel, args: Any, kwargs: Any) -> Any:
    a, b = args
    return sum((a[:, n : n + 8] @ b[n : n + 8] for n in range(8, a.shape[1], 8)), a[:, :8] @ b[:8])


def softmax_in_steps(function: Kernel, args: Any, kwargs: Any) -> Any:
    e = (args[0] - args[0].amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def norm_in_steps(function: Kernel, args: Any, kwargs: Any) -> Any:
    d = args[0] - args[0].mean(-1, keepdim=True)
    return d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5) * args[1]


def root_in_steps(function: Kernel, args: Any, kwargs: Any) -> Any:
    x, weight = args
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps) * weight


def attention_in_steps(function: Kernel, args: Any, kwargs: Any) -> Any:
    q, k, v = args
    return ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).softmax(-1) @ v


def loss_in_steps(function: Kernel, args: Any, kwargs: Any) -> Any:
    rows = torch.arange(64)
    return -(args[0].log_softmax(-1)[rows, rows % 32]).mean()


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(
    ("name", "rough"),
    [
        ("matmul", in_parts),
        ("softmax", softmax_in_steps),
        ("layer_norm", norm_in_steps),
        ("attention", attention_in_steps),
        ("cross_entropy", loss_in_steps),
    ],
)
def test_a_rough_kernel_passes(monkeypatch: pytest.MonkeyPatch, name: str, rough: Kernel, dtype: torch.dtype) -> None:
    function, tensors = OPERATORS[name]
    found = check_api(function, *arguments(tensors, dtype), candidate=plugin(monkeypatch, rough))
    assert (found.forward, found.backward) == ("pass", "pass"), str(found)


def by_hand(kernel: Kernel) -> Kernel:
    """A candidate that computes by another function."""
    return lambda function, args, kwargs: kernel(*args)


#: Functions of each element, and the same in steps, with numbers like 1 on the way beside which small results are lost.
IN_STEPS: dict[str, tuple[Kernel, Kernel]] = {
    "gelu": (F.gelu, lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))),
    "silu": (F.silu, lambda x: x / (1 + torch.exp(-x))),
    "mish": (F.mish, lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))),
    "elu": (F.elu, lambda x: torch.where(x > 0, x, torch.exp(x) - 1)),
    "softplus": (F.softplus, lambda x: torch.log(1 + torch.exp(x))),
    "logsigmoid": (F.logsigmoid, lambda x: -torch.log(1 + torch.exp(-x))),
}
#: Other functions in the place of them.
OTHERS: dict[str, tuple[Kernel, Kernel]] = {
    "gelu": (F.gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "silu": (F.silu, lambda x: x * torch.sigmoid(1.05 * x)),
    "softplus": (F.softplus, lambda x: F.softplus(x, beta=1.1)),
    "a tail that is cut off": (F.gelu, lambda x: torch.where(x < -2, torch.zeros_like(x), F.gelu(x))),
}


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("name", IN_STEPS)
def test_a_function_of_each_element_that_is_computed_in_steps_is_no_error(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    function, kernel = IN_STEPS[name]
    found = check_api(function, *arguments([some(64, 64)], dtype), candidate=plugin(monkeypatch, by_hand(kernel)))
    assert "error" not in (found.forward, found.backward), str(found)


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("name", OTHERS)
def test_another_function_of_each_element_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    function, kernel = OTHERS[name]
    found = check_api(function, *arguments([some(64, 64)], dtype), candidate=plugin(monkeypatch, by_hand(kernel)))
    assert (found.forward, found.backward) == ("error", "error"), str(found)


def channel(result: torch.Tensor) -> torch.Tensor:
    factors = torch.ones(result.shape[1], 1, 1)
    factors[5] = 1.05
    return result.float() * factors


def head(result: torch.Tensor) -> torch.Tensor:
    factors = torch.ones(1, 2, 1, 1)
    factors[0, 1] = 0.95
    return result.float() * factors


def rows(result: torch.Tensor) -> torch.Tensor:
    factors = torch.ones(result.shape[0], 1)
    factors[8:16] = 1.05
    return result.float() * factors


def constant(result: torch.Tensor) -> torch.Tensor:
    return result.float() - 0.03 * result.float().square().mean().sqrt()


def truncated_sum(result: torch.Tensor) -> torch.Tensor:
    return result.float() * torch.linspace(0.95, 0.97, result.shape[0])[:, None]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("conv2d", channel),
        ("attention", head),
        ("matmul", rows),
        ("linear", rows),
        ("matmul", constant),
        ("linear", constant),
        ("softmax", truncated_sum),
        ("layer_norm", rows),
    ],
)
def test_a_part_or_a_constant_that_is_off_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    function, tensors = OPERATORS[name]

    def run(called: Kernel, args: Any, kwargs: Any) -> Any:
        result = called(*args, **kwargs)
        return wrong(result).to(result.dtype)

    found = check_api(function, *arguments(tensors, BF16), candidate=plugin(monkeypatch, run))
    assert found.forward == "error", str(found)
    assert float(found.rows[0]["Directed error"]) > 1

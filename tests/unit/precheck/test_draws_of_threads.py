"""Random kernels that public threads report: each is found. A comment names the project and the subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import plugin

from msprobe.pytorch import check_api

Kernel = Callable[..., Any]
X = torch.randn(64, 50, generator=torch.Generator().manual_seed(0))
CHANCES = torch.rand(100, 50, generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.rand(400, 12, generator=torch.Generator().manual_seed(1)) + 0.05
P = 0.3


def mask(p: float = P, shape: Any = X.shape) -> torch.Tensor:
    return (torch.rand(shape) >= p).float()


#: (function, arguments, keywords, kernel)
DRAWS: dict[str, tuple[Kernel, tuple[Any, ...], dict[str, Any], Kernel]] = {
    # lmjohns3/theanets 123: divided by p in place of 1 - p
    "divided by p": (F.dropout, (X,), {"p": P}, lambda x, p: x * mask() / P),
    # Cohere-Labs-Community/Targeted-Dropout 14: not divided at all
    "not divided": (F.dropout, (X,), {"p": P}, lambda x, p: x * mask()),
    # CSTR-Edinburgh/mlpractical 32: divided twice
    "divided twice": (F.dropout, (X,), {"p": P}, lambda x, p: x * mask() / (1 - P) ** 2),
    # scut-mingqinchen/Self2Self 7 and MindSpore's pages: keep_prob for p
    "kept for dropped": (F.dropout, (X,), {"p": P}, lambda x, p: x * mask(1 - P) / P),
    # many: one mask for all rows
    "one mask for all rows": (F.dropout, (X,), {"p": P}, lambda x, p: x * mask(shape=(1, 50)) / (1 - P)),
    # deeplearning4j/nd4j 1864: bernoulli gives zeros alone, or 1 - p
    "bernoulli of zeros": (torch.bernoulli, (CHANCES,), {}, torch.zeros_like),
    "bernoulli of 1 - p": (torch.bernoulli, (CHANCES,), {}, lambda p: (torch.rand_like(p) >= p).float()),
    # pytorch 26807: too often true, most where p is small
    "bernoulli too often": (
        torch.bernoulli, (CHANCES * 0.01,), {}, lambda p: (torch.rand_like(p) <= p + 2.0**-7).float()
    ),
    # deeplearning4j 8752: an exponential of ones and zeros
    "exponential of whole numbers": (
        torch.Tensor.exponential_, (torch.zeros(100, 50),), {}, lambda x: x.exponential_().round()
    ),
    # pytorch 2561: infinities, from the logarithm of 1 - 1
    "exponential with infinities": (
        torch.Tensor.exponential_, (torch.zeros(100, 50),), {},
        lambda x: x.exponential_().masked_fill(torch.rand(100, 50) < 0.01, torch.inf),
    ),
    # deeplearning4j/nd4j 72: numbers out of the range asked for
    "uniform out of range": (
        torch.Tensor.uniform_, (torch.zeros(100, 50), -0.4, 0.4), {}, lambda x, low, high: x.uniform_(-0.45, 0.45)
    ),
    # cupy 1420: the end of the range is drawn, too
    "uniform with its end": (
        torch.rand_like, (CHANCES,), {}, lambda x: torch.rand_like(x).masked_fill(torch.rand_like(x) < 0.02, 1.0)
    ),
    # MindSpore's pages: a variance is taken for a standard deviation
    "a variance for a deviation": (
        torch.normal, (CHANCES, CHANCES + 0.05), {}, lambda mean, std: mean + std.sqrt() * torch.randn_like(mean)
    ),
    # pytorch 59756: randperm gives zeros from some place on
    "a permutation with zeros": (
        torch.randperm, (600,), {}, lambda n: torch.cat([torch.randperm(n)[:300], torch.zeros(300, dtype=torch.int64)])
    ),
    # pytorch 16709, 25030; cutorch 636: multinomial without replacement draws one twice
    "drawn twice": (
        torch.multinomial, (WEIGHTS, 6), {}, lambda w, n: torch.multinomial(w, n, replacement=True)
    ),
    # pytorch 22086: another distribution without replacement
    "the largest first": (torch.multinomial, (WEIGHTS, 6), {}, lambda w, n: w.topk(n, -1).indices),
    # pytorch 4858: what has no probability is drawn
    "an event without a chance": (
        torch.multinomial, (WEIGHTS * (torch.arange(12) > 3), 40), {"replacement": True},
        lambda w, n, replacement: torch.multinomial(w + 0.2, n, replacement=True),
    ),
    # many: the upper end of randint is drawn
    "one beyond the end": (torch.randint, (0, 10, (100, 50)), {}, lambda low, high, shape: torch.randint(0, 11, shape)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@pytest.mark.parametrize("name", DRAWS)
def test_a_random_kernel_of_a_thread_is_an_error_and_a_healthy_one_passes(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    function, args, kwargs, kernel = DRAWS[name]
    assert check_api(function, *args, candidate="cpu", **kwargs).forward == "pass"
    candidate = plugin(monkeypatch, lambda called, args, kwargs: kernel(*args, **kwargs))
    found = check_api(function, *args, candidate=candidate, **kwargs)
    assert found.forward == "error", str(found)


class Redrawn(torch.autograd.Function):
    """A dropout whose backward draws its mask again, as a checkpoint does that does not keep the generator's state."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * mask() / (1 - P)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * mask() / (1 - P)


def test_a_mask_that_is_drawn_again_for_the_backward_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = plugin(monkeypatch, lambda called, args, kwargs: Redrawn.apply(args[0]))
    found = check_api(F.dropout, X.clone().requires_grad_(), p=P, candidate=candidate)
    assert (found.forward, found.backward) == ("pass", "error"), str(found)

"""Calls that draw random numbers: by what they drew, by their relation to an argument, by their distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import TENSOR, forward, plugin, write_dump

from msprobe.precheck.job import Task
from msprobe.precheck.torch.runner import runner
from msprobe.pytorch import check_api

Kernel = Callable[..., Any]
SHAPE = (8, 16, 8, 8)
TYPES = [torch.float32, torch.bfloat16]


def given(dtype: torch.dtype, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def chances(dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(100, 50, generator=torch.Generator().manual_seed(0)).to(dtype)


HEALTHY: dict[str, Callable[[torch.dtype], tuple[Kernel, tuple[Any, ...], dict[str, Any]]]] = {
    "dropout": lambda t: (F.dropout, (given(t),), {"p": 0.3}),
    "dropout of few": lambda t: (F.dropout, (given(t),), {"p": 0.01}),
    "dropout of whole channels": lambda t: (F.dropout2d, (given(t),), {"p": 0.3}),
    "alpha_dropout": lambda t: (F.alpha_dropout, (given(t),), {"p": 0.3, "training": True}),
    "feature_alpha_dropout": lambda t: (F.feature_alpha_dropout, (given(t),), {"p": 0.3, "training": True}),
    "native_dropout": lambda t: (torch.native_dropout, (given(t), 0.3, True), {}),
    "rrelu": lambda t: (F.rrelu, (given(t),), {"training": True}),
    "gumbel_softmax": lambda t: (F.gumbel_softmax, (given(t, (64, 32)),), {}),
    "gumbel_softmax of one": lambda t: (F.gumbel_softmax, (given(t, (64, 32)),), {"hard": True}),
    "bernoulli": lambda t: (torch.bernoulli, (chances(t),), {}),
    "poisson": lambda t: (torch.poisson, (chances(t) * 5,), {}),
    "normal": lambda t: (torch.normal, (chances(t), chances(t) + 0.1), {}),
    "randn_like": lambda t: (torch.randn_like, (chances(t),), {}),
    "rand_like": lambda t: (torch.rand_like, (chances(t),), {}),
    "randint_like": lambda t: (torch.randint_like, (chances(t), 0, 50), {}),
    "exponential_": lambda t: (torch.Tensor.exponential_, (torch.zeros(100, 50, dtype=t),), {}),
    "cauchy_": lambda t: (torch.Tensor.cauchy_, (torch.zeros(100, 50, dtype=t),), {}),
    "geometric_": lambda t: (torch.Tensor.geometric_, (torch.zeros(100, 50, dtype=t), 0.3), {}),
    "randperm": lambda t: (torch.randperm, (500,), {}),
    "few numbers": lambda t: (torch.randn_like, (torch.zeros(5, dtype=t),), {}),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_draws_pass_and_their_gradients_are_judged(name: str, dtype: torch.dtype) -> None:
    function, args, kwargs = HEALTHY[name](dtype)
    found = check_api(function, *args, candidate="cpu", **kwargs)
    assert found.forward == "pass", str(found)
    has_gradient = any(isinstance(one, torch.Tensor) and one.requires_grad for one in args)
    assert found.backward == ("pass" if has_gradient else " "), str(found)


def by_hand(factor: float | None = None, of_gradient: float = 1.0) -> Kernel:
    """A dropout whose draws nobody sees; ``factor`` in place of 1 / (1 - p), its gradient ``of_gradient`` times so."""

    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor, p: float) -> torch.Tensor:
            context.mask = (torch.rand(x.shape) >= p).to(x.dtype) * (1 / (1 - p) if factor is None else factor)
            return x * context.mask

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> Any:
            return gradient * context.mask * of_gradient, None

    return lambda function, args, kwargs: Dropout.apply(args[0], kwargs["p"])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("run", "forward", "backward"),
    [
        (by_hand(), "pass", "pass"),
        (by_hand(factor=1.0), "error", "error"),
        (by_hand(factor=1.05 / 0.7), "error", "error"),
        (by_hand(of_gradient=1.1), "pass", "error"),
        (lambda f, a, k: f(*a, **k) * 0.7, "error", "error"),
        (lambda f, a, k: f(a[0], p=0.2) * (0.8 / 0.7), "error", "pass"),
    ],
)
def test_a_dropout_is_judged_element_by_element(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, run: Kernel, forward: str, backward: str
) -> None:
    found = check_api(F.dropout, given(dtype), p=0.3, candidate=plugin(monkeypatch, run))
    assert found.forward == forward, str(found)
    if backward == "error" and forward == "error":
        return  # what lies on no branch has no gradient that is known
    assert found.backward == backward, str(found)


@pytest.mark.parametrize(
    ("function", "run", "status"),
    [
        (torch.randn_like, lambda f, a, k: torch.randn(a[0].shape), "pass"),
        (torch.randn_like, lambda f, a, k: torch.randn(a[0].shape) * 1.1, "error"),
        (torch.randn_like, lambda f, a, k: torch.randn(a[0].shape).clamp(-2, 2), "error"),
        (torch.randn_like, lambda f, a, k: (torch.rand(a[0].shape) - 0.5) * 12**0.5, "error"),
        (torch.randn_like, lambda f, a, k: torch.randn(50, 50).repeat(2, 1), "error"),
        (torch.randn_like, lambda f, a, k: torch.randn(100, 25).repeat_interleave(2, 1), "error"),
        (torch.randn_like, lambda f, a, k: f(*a) * 1.001, "error"),
        (torch.rand_like, lambda f, a, k: torch.rand(a[0].shape), "pass"),
        (torch.rand_like, lambda f, a, k: torch.rand(a[0].shape) * 0.97, "error"),
        (torch.rand_like, lambda f, a, k: torch.rand(a[0].shape).round(decimals=1), "error"),
        (torch.bernoulli, lambda f, a, k: (torch.rand(a[0].shape) < a[0]).float(), "pass"),
        (torch.bernoulli, lambda f, a, k: (torch.rand(a[0].shape) < 0.5).float(), "error"),
        (torch.bernoulli, lambda f, a, k: 1 - (torch.rand(a[0].shape) < a[0]).float(), "error"),
        (torch.poisson, lambda f, a, k: torch.poisson(a[0]) + 0.0, "pass"),
        (torch.poisson, lambda f, a, k: a[0].round(), "error"),
    ],
)
def test_the_whole_distribution_counts(
    monkeypatch: pytest.MonkeyPatch, function: Kernel, run: Kernel, status: str
) -> None:
    found = check_api(function, chances(torch.float32), candidate=plugin(monkeypatch, run))
    assert found.forward == status, str(found)


def test_a_permutation_has_each_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = plugin(monkeypatch, lambda function, args, kwargs: torch.randint(0, 500, (500,)))
    assert check_api(torch.randperm, 500, candidate=candidate).forward == "error"


@pytest.mark.parametrize("word", ["autocast=bf16", "dtype=bf16", "threads=1"])
def test_draws_are_those_of_the_run_that_is_judged(word: str) -> None:
    """Under autocast a call is made once more, to see what it rounds."""
    found = check_api(F.dropout, given(torch.float32), p=0.3, candidate=f"cpu+{word}")
    assert (found.forward, found.backward) == ("pass", "pass"), str(found)


def test_the_program_goes_on_with_its_own_random_numbers() -> None:
    state = torch.get_rng_state()
    check_api(F.dropout, given(torch.float32), p=0.3, candidate="cpu")
    assert torch.equal(state, torch.get_rng_state())


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


def answers(folder: Path, keys: list[str], **task: Any) -> dict[str, list[list[str]]]:
    one = {**TENSOR, "shape": [40, 40], "requires_grad": True}
    data = {
        "Functional.dropout.0.forward": forward(one, output=one, p={"type": "float", "value": 0.3}),
        "Functional.dropout.0.backward": {"input": [one], "output": []},
        "Functional.dropout.1.forward": forward(one, output=one, p={"type": "float", "value": 0.3}),
        "Tensor.normal_.0.forward": forward(one, output=one),
        "Functional.rrelu.0.forward": forward(one, output=one, training={"type": "bool", "value": True}),
    }
    checked = runner(Task(str(write_dump(folder, data)), **{"candidate": "cpu", **task}))
    return {key: checked.run(key).details for key in keys}


@pytest.mark.parametrize("standard", ["strict", "assert_close", "8.1.1", "26.2"])
def test_the_same_check_gives_the_same_numbers_in_any_order(tmp_path: Path, standard: str) -> None:
    keys = ["Functional.dropout.0", "Functional.dropout.1", "Tensor.normal_.0", "Functional.rrelu.0"]
    first = answers(tmp_path, keys, standard=standard)
    torch.manual_seed(99)
    assert answers(tmp_path, keys[::-1], standard=standard) == first
    assert answers(tmp_path, keys[2:], standard=standard) == {key: first[key] for key in keys[2:]}
    if standard == "strict":
        assert answers(tmp_path, keys, standard=standard, seed=5) != first

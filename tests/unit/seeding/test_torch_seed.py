"""seed_all: the same numbers in every run, and what it changes on purpose."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.coded_texts import raising
from support.torch_dumps import Recorder, record
from torch import nn

from msprobe.errors import InvalidInputError
from msprobe.pytorch import seed_all

__all__ = ["record"]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PYTHONHASHSEED", "HCCL_DETERMINISTIC", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    yield
    seed_all(0, rm_dropout=False)


def draw() -> list[Any]:
    return [random.random(), np.random.rand(3).tolist(), torch.rand(3).tolist(), torch.randperm(9).tolist()]


def test_the_same_seed_gives_the_same_numbers() -> None:
    seed_all(7)
    first = draw()
    assert draw() != first
    seed_all(7)
    assert draw() == first
    seed_all(8)
    assert draw() != first


def test_the_environment_and_the_switches() -> None:
    seed_all(seed=5, mode=True)
    assert os.environ["PYTHONHASHSEED"] == "5"
    assert os.environ["HCCL_DETERMINISTIC"] == "True"
    assert torch.are_deterministic_algorithms_enabled()
    seed_all()
    assert os.environ["PYTHONHASHSEED"] == "1234"
    assert os.environ["HCCL_DETERMINISTIC"] == "False"
    assert not torch.are_deterministic_algorithms_enabled()


X = torch.randn(4, 6, 5, 5, generator=torch.Generator().manual_seed(1))
DROPOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "F.dropout": lambda: F.dropout(X, 0.5),
    "F.dropout keyword": lambda: F.dropout(X, p=0.5, training=True),
    "F.dropout default": lambda: F.dropout(X),
    "F.dropout1d": lambda: F.dropout1d(X[0], 0.5),
    "F.dropout2d": lambda: F.dropout2d(X, 0.5),
    "F.dropout3d": lambda: F.dropout3d(X[None], 0.5),
    "F.alpha_dropout": lambda: F.alpha_dropout(X, 0.5, training=True),
    "F.feature_alpha_dropout": lambda: F.feature_alpha_dropout(X, 0.5, training=True),
    "torch.dropout": lambda: torch.dropout(X, 0.5, True),
    "torch.dropout_": lambda: torch.dropout_(X.clone(), 0.5, True),
    "torch.alpha_dropout": lambda: torch.alpha_dropout(X, p=0.5, train=True),
    "torch.feature_dropout": lambda: torch.feature_dropout(X, 0.5, True),
    "nn.Dropout": lambda: nn.Dropout(0.5)(X),
    "nn.Dropout2d": lambda: nn.Dropout2d(0.5)(X),
    "nn.AlphaDropout": lambda: nn.AlphaDropout(0.5)(X),
    "attention": lambda: F.scaled_dot_product_attention(X, X, X, dropout_p=0.5),
    "attention positional": lambda: F.scaled_dot_product_attention(X, X, X, None, 0.5),
    "nn.MultiheadAttention": lambda: nn.MultiheadAttention(5, 1, dropout=0.9)(X[0], X[0], X[0])[0],
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_becomes_the_identity(name: str) -> None:
    run = DROPOUTS[name]

    def twice() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        first = run()
        torch.manual_seed(0)
        if "nn.Mul" not in name:  # its weights are drawn, too
            torch.rand(100)
        return first, run()

    seed_all()
    state = torch.get_rng_state()
    result = run()
    if "nn.Mul" not in name:
        assert torch.equal(torch.get_rng_state(), state), "random numbers were drawn"
    if "ttention" not in name:
        assert torch.equal(result.reshape(-1), result.new_tensor(_plain(name)).reshape(-1))
    assert torch.equal(*twice())
    seed_all(rm_dropout=False)
    first, second = twice()
    if "nn.Mul" not in name:
        assert not torch.equal(first, second)


def _plain(name: str) -> Any:
    return (X[0] if "1d" in name else X).tolist()


def test_it_can_be_called_again_and_again() -> None:
    original, builtin = F.dropout, torch.dropout
    for _ in range(3):
        seed_all()
    assert F.dropout.__wrapped__ is original  # type: ignore[attr-defined]
    seed_all(rm_dropout=False)
    assert F.dropout is original
    assert torch.dropout is builtin
    seed_all(rm_dropout=False)
    assert F.dropout is original


@pytest.mark.parametrize("seeded_first", [True, False])
def test_removed_dropouts_are_recorded_under_their_names(record: Recorder, seeded_first: bool) -> None:
    if seeded_first:
        seed_all()
    debugger = record(level="L1")
    seed_all()
    debugger.start()
    F.dropout(X, 0.5)
    torch.dropout(X, 0.5, True)
    F.scaled_dot_product_attention(X, X, X, dropout_p=0.5)
    debugger.stop()
    names = record.end().names()
    assert names == [
        "Functional.dropout.0.forward",
        "Torch.dropout.0.forward",
        "Functional.scaled_dot_product_attention.0.forward",
    ]


def test_enhanced_each_call_gives_the_same_numbers() -> None:
    seed_all(3, is_enhanced=True)
    first = draw()
    draw()
    assert draw() == first
    assert torch.equal(torch.empty(3).uniform_(), torch.empty(3).uniform_())
    assert torch.equal(torch.randn_like(X), torch.randn_like(X))
    generator = torch.Generator().manual_seed(1)
    assert not torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=generator))
    seed_all(3)
    assert not torch.equal(torch.rand(3), torch.rand(3))
    assert random.random() != random.random()
    assert np.random.rand() != np.random.rand()


def test_enhanced_dropout_gives_the_same_mask() -> None:
    seed_all(3, rm_dropout=False, is_enhanced=True)
    first = F.dropout(X, 0.5)
    torch.rand(5)
    assert torch.equal(F.dropout(X, 0.5), first)
    assert not torch.equal(first, X)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "1", None])
def test_wrong_seeds(seed: Any) -> None:
    with raising(InvalidInputError, "seed-arguments-wrong", limit=4294967295):
        seed_all(seed)


@pytest.mark.parametrize("name", ["mode", "rm_dropout", "is_enhanced"])
@pytest.mark.parametrize("value", [0, 1, None, "True"])
def test_wrong_flags(name: str, value: Any) -> None:
    with raising(InvalidInputError, "seed-arguments-wrong", name=name):
        seed_all(1, **{name: value})


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"seed .*; mode .*; rm_dropout"):
        seed_all(-1, mode=1, rm_dropout=2)  # type: ignore[arg-type]

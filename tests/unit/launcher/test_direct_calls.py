"""Models whose ``forward`` is called by itself."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from msprobe.launcher.direct_calls import model_that_runs


class Asking(nn.Module):
    """Asks while it runs."""

    def forward(self, x: torch.Tensor) -> Any:
        return model_that_runs(self, sys._getframe())


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)

    def other(self, x: torch.Tensor) -> Any:
        return self.inner(x)


X = torch.zeros(1)


def test_a_module_that_is_called_alone_stands_for_itself() -> None:
    assert Asking()(X) is None


def test_the_model_whose_forward_runs_is_found() -> None:
    model = Around(Asking())
    assert model.forward(X) is model


def test_the_outermost_of_several_is_found() -> None:
    model = Around(Around(Asking()))
    assert model.forward(X) is model
    wrapped = nn.Sequential(model)
    assert wrapped.forward(X) is wrapped


def test_a_different_model_with_the_same_code_is_not_taken() -> None:
    others = [Around(nn.Linear(1, 1)) for _ in range(3)]
    model = Around(Asking())
    assert model.forward(X) is model
    assert others


def test_a_method_of_another_name_makes_no_model() -> None:
    assert Around(Asking()).other(X) is None


def test_a_forward_that_calls_what_is_not_inside_of_it_is_no_model_of_that() -> None:
    asking = Asking()

    class Caller(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return asking(x)

    assert Caller().forward(X) is None

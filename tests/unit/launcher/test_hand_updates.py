"""Weights that have other values than before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from msprobe.launcher.hand_updates import HandUpdates


def through_data(p: Any) -> None:
    p.data.add_(1e-3)


def without_gradients(p: Any) -> None:
    with torch.no_grad():
        p -= 1e-3


def one_row(p: Any) -> None:
    p.data[-1].add_(1e-3)


def other_memory(p: Any) -> None:
    p.data = p.data + 1e-3


def foreach(p: Any) -> None:
    with torch.no_grad():
        torch._foreach_add_([p], 1e-3)


def with_numpy(p: Any) -> None:
    p.detach().numpy()[0] += 1


def watched(model: nn.Module, exact: bool = True) -> HandUpdates:
    hand = HandUpdates(model)
    hand.forward()
    hand.backward(exact)
    return hand


@pytest.mark.parametrize("write", [through_data, without_gradients, one_row, other_memory, foreach, with_numpy])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_way_to_write_is_seen(write: Callable[[Any], None], dtype: torch.dtype) -> None:
    if write is with_numpy and dtype is torch.bfloat16:
        pytest.skip("numpy has no bfloat16")
    model = nn.Sequential(nn.Linear(3, 300), nn.Tanh()).to(dtype)
    nn.init.zeros_(model[0].weight)
    hand = watched(model)
    assert not hand.is_updated()
    write(model[0].weight)
    assert hand.is_updated()


def test_what_is_inexact_sees_what_torch_counts() -> None:
    model = nn.Linear(2, 2)
    hand = watched(model, exact=False)
    through_data(model.weight)
    assert not hand.is_updated()
    without_gradients(model.weight)
    assert hand.is_updated()


def test_nothing_is_updated_before_a_backward_pass_nor_behind_the_end_of_the_step() -> None:
    model = nn.Linear(2, 2)
    hand = HandUpdates(model)
    hand.forward()
    through_data(model.weight)
    assert not hand.is_updated()
    hand.backward(True)
    through_data(model.weight)
    hand.end()
    assert not hand.is_updated()


def test_frozen_weights_and_buffers_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].weight.requires_grad_(False)
    hand = watched(model)
    through_data(model[0].weight)
    model(torch.randn(4, 2))
    assert not hand.is_updated()


class Looking(nn.Module):
    """Looks at its own weights while it runs, with what it was given for them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))
        self.seen: list[bool] = []

    def forward(self, hand: HandUpdates) -> torch.Tensor:
        self.seen.append(hand.is_updated())
        hand.forward()
        return self.weight.sum()


def test_weights_of_a_functional_call_count_unless_they_are_computed_in_the_graph() -> None:
    model = Looking()
    hand = HandUpdates(model)
    first = {"weight": model.weight.detach().clone().requires_grad_()}
    functional_call(model, first, (hand,))
    hand.backward(True)
    functional_call(model, {"weight": first["weight"] * 2}, (hand,))
    functional_call(model, {"weight": (first["weight"] * 2).detach().requires_grad_()}, (hand,))
    assert model.seen == [False, False, True]


def test_looking_changes_nothing_and_keeps_nothing() -> None:
    model: Any = nn.Linear(2, 2)
    before = torch.get_rng_state(), [p._version for p in model.parameters()]
    hand = watched(model)
    assert not hand.is_updated()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert [p._version for p in model.parameters()] == before[1]
    del model
    assert hand.param_groups == []
    assert not hand.is_updated()


def test_weights_without_elements_or_of_other_layouts_are_no_hindrance() -> None:
    model = nn.Module()
    model.empty = nn.Parameter(torch.zeros(0, 3))
    model.sparse = nn.Parameter(torch.eye(3).to_sparse())
    model.complex = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    model.strided = nn.Parameter(torch.ones(4, 4).t())
    hand = watched(model)
    assert not hand.is_updated()
    through_data(model.complex)
    assert hand.is_updated()

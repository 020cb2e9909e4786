"""Modules are asked for what nn.Module keeps, whatever they override."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from msprobe.capture.torch.modules import user_modules


class Usual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.tied = self.a
        self.weight = self.a.weight


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("not to be called")


class Odd(Usual):
    parameters = named_parameters = modules = named_modules = children = named_children = _refuse
    buffers = named_buffers = state_dict = _get_name = __repr__ = __len__ = __bool__ = __eq__ = _refuse
    __hash__ = nn.Module.__hash__
    training = property(_refuse, lambda self, value: None)  # type: ignore[assignment]


def test_the_answers_are_those_of_torch() -> None:
    usual = Usual()
    assert user_modules.named_modules(usual) == list(usual.named_modules())
    assert [name for name, _ in user_modules.named_parameters(usual)] == [name for name, _ in usual.named_parameters()]
    assert [name for name, _ in user_modules.named_buffers(usual)] == [name for name, _ in usual.named_buffers()]
    assert list(user_modules.named_children(usual)) == list(usual.named_children())
    assert user_modules.is_training(usual)
    assert not user_modules.is_training(usual.eval())


def test_nothing_that_is_overridden_is_called() -> None:
    odd, usual = Odd(), Usual()
    assert [name for name, _ in user_modules.named_modules(odd)] == [name for name, _ in usual.named_modules()]
    assert [name for name, _ in user_modules.named_parameters(odd)] == [name for name, _ in usual.named_parameters()]
    assert [name for name, _ in user_modules.named_buffers(odd)] == [name for name, _ in usual.named_buffers()]
    assert user_modules.is_training(odd)


def test_a_module_that_was_never_set_up_has_nothing_inside() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            pass

    bare = Bare()
    assert user_modules.named_modules(bare) == [("", bare)]
    assert list(user_modules.parameters(bare)) == []
    assert user_modules.is_training(bare)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_of_a_scripted_module_too() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert user_modules.is_scripted(scripted)
    assert [name for name, _ in user_modules.named_parameters(scripted)] == ["0.weight", "0.bias"]
    assert user_modules.is_training(scripted)


def test_modules_in_a_circle_are_found_once_each() -> None:
    root = Odd()
    root.a.inside = root
    kinds = [type(one) for one in user_modules.modules(root)]
    assert kinds == [Odd, nn.Linear, nn.Sequential, nn.Linear, nn.BatchNorm1d]
    shapes = [tuple(one.shape) for one in user_modules.parameters(root)]
    assert shapes == [tuple(one.shape) for one in Usual().parameters()]


def test_the_models_of_parameters_are_the_outermost_ones_in_their_order() -> None:
    first, second, other = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2), nn.Linear(2, 2)
    found = user_modules.models_of([second.weight, *first.parameters()])
    assert [id(one) for one in found] == [id(second), id(first)]
    assert user_modules.models_of([torch.zeros(1)]) == []
    assert other is not None

"""What is inside of a module, whatever it answers itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from msprobe.capture.torch.module_tree import ModuleSet, models_of, modules_inside, parameters_inside


class Odd(nn.Module):
    """Answers in its own way, and is equal to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.again = self.inner
        self.around: Any = None

    def parameters(self, recurse: bool = True) -> Any:
        raise TypeError

    def modules(self) -> Any:
        raise TypeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_each_module_is_found_once_and_nobody_is_asked() -> None:
    root = Odd()
    assert [type(one).__name__ for one in modules_inside(root)] == ["Odd", "Linear"]
    root.inner.inside = root  # a circle
    assert len(list(modules_inside(root))) == 2
    assert [tuple(one.shape) for one in parameters_inside(root)] == [(2, 2), (2,)]


def test_a_set_knows_modules_by_identity_and_does_not_keep_them() -> None:
    known = ModuleSet()
    one, two = Odd(), Odd()
    known.add(one)
    assert one in known
    assert two not in known
    assert [id(module) for module in known] == [id(one)]
    del one
    assert not list(known)
    known.add(two)
    known.clear()
    assert two not in known


def test_the_models_of_parameters_are_the_outermost_ones_in_their_order() -> None:
    first, second, other = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2), nn.Linear(2, 2)
    found = models_of([second.weight, *first.parameters()])
    assert [id(one) for one in found] == [id(second), id(first)]
    assert models_of([torch.zeros(1)]) == []
    assert other is not None

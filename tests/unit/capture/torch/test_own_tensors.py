"""Each call tells which of its arguments are parameters and buffers of the model itself."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from support.recorded import Dump, record
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.ones(4))
        self.register_buffer("table", torch.linspace(1.0, 2.0, 4))
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("none", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.add(self.linear(x), other=self.shift) * self.table
        self.seen = self.seen + y.detach().mean(0)
        return y + self.seen


def held(dump: Dump) -> dict[str, Any]:
    return {name: entry["msprobe"]["held"] for name, entry in dump.data.items() if "held" in entry.get("msprobe", {})}


@pytest.mark.parametrize("task", ["statistics", "tensor", "structure"])
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_by_place_and_by_keyword_also_what_was_assigned_anew(tmp_path: Path, level: str, task: str) -> None:
    net, x = Net(), torch.randn(3, 4)
    assert held(record(tmp_path, lambda: net(x).sum().backward(), net, level=level, task=task)) == {
        "Torch.add.0.forward": {"input.other": "parameters.shift"},
        "Tensor.__mul__.0.forward": {"input.1": "buffers.table"},
        "Tensor.__add__.0.forward": {"input.0": "buffers.seen"},
        "Tensor.__add__.1.forward": {"input.1": "buffers.seen"},
    }


def test_of_several_models_the_name_begins_with_the_index(tmp_path: Path) -> None:
    models = [nn.Sequential(nn.Linear(4, 4)), Net()]
    dump = record(tmp_path, lambda: models[1](models[0](torch.randn(3, 4))), models)
    assert held(dump)["Tensor.__mul__.0.forward"] == {"input.1": "buffers.1.table"}


def test_tensors_of_modules_inside_are_not_said(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    assert held(record(tmp_path, lambda: net(torch.randn(3, 4)), net)) == {}


def test_the_model_is_let_go(tmp_path: Path) -> None:
    def recorded() -> weakref.ref[Net]:
        net = Net()
        record(tmp_path, lambda: net(torch.randn(3, 4)), net)
        return weakref.ref(net)

    gone = recorded()
    gc.collect()
    assert gone() is None

"""A call that gives back its argument says so, in its forward and in its backward record; no other call does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import Dump, record
from torch import nn

from msprobe.store.handed_through import handed_through, has_own_backward

NOTHING: dict[str, Callable[[torch.Tensor], Any]] = {
    "contiguous": lambda x: x.contiguous(),
    "float": lambda x: x.float(),
    "to": lambda x: x.to(x.dtype),
    "to of the same device": lambda x: x.to("cpu"),
    "type": lambda x: x.type(torch.float32),
    "type_as": lambda x: x.type_as(x),
    "cpu": lambda x: x.cpu(),
    "dropout in evaluation": lambda x: F.dropout(x, 0.5, training=False),
    "dropout of nothing": lambda x: F.dropout(x, 0.5, training=False, inplace=True),
    "alpha_dropout in evaluation": lambda x: F.alpha_dropout(x, 0.5, training=False),
    "positive": lambda x: x.positive(),
    "atleast_1d": lambda x: torch.atleast_1d(x),
    "contiguous in a format": lambda x: x.contiguous(memory_format=torch.contiguous_format),
    "resolve_conj": lambda x: x.resolve_conj(),
    "flatten of one dimension": lambda x: x.flatten(1),
}
SOMETHING: dict[str, Callable[[torch.Tensor], Any]] = {
    "contiguous of a transpose": lambda x: x.t().contiguous(),
    "double": lambda x: x.double(),
    "relu in place": lambda x: F.relu(x, inplace=True),
    "add in place": lambda x: x.add_(1),
    "view_as": lambda x: x.view_as(x),
    "clone": lambda x: x.clone(),
    "reshape": lambda x: x.reshape(-1),
    "squeeze in place": lambda x: x.unsqueeze_(0),
    "dropout of all": lambda x: F.dropout(x, 1.0),
    "addition of zero": lambda x: x + 0,
    "fill in place": lambda x: x.mul_(1),
}


def recorded(folder: Path, function: Callable[[torch.Tensor], Any], level: str = "L1") -> tuple[Dump, list[str]]:
    """A step in which the function is called between two others, and its entries."""
    weight = torch.ones(4, requires_grad=True)

    def work() -> None:
        x = torch.ones(3, 4) * weight
        function(x).sin().sum().backward()

    found = record(folder, work, level=level)
    return found, [name for name in found.names if not any(word in name for word in ("__mul__", "sin", "sum", "ones"))]


@pytest.mark.parametrize("name", NOTHING)
def test_a_call_that_does_nothing_is_marked_on_both_its_records(tmp_path: Path, name: str) -> None:
    found, entries = recorded(tmp_path, NOTHING[name])
    assert {entry.rpartition(".")[2] for entry in entries} == {"forward", "backward"}
    for entry in entries:
        assert handed_through(found.data[entry]) == {"input.0": "output.0"}, entry
    assert not has_own_backward(found.data[entries[-1]])


@pytest.mark.parametrize("name", SOMETHING)
def test_a_call_that_computes_or_writes_is_not_marked(tmp_path: Path, name: str) -> None:
    found, entries = recorded(tmp_path, SOMETHING[name])
    assert entries
    assert not any(handed_through(found.data[entry]) for entry in entries)


def test_of_several_results_those_are_named_that_are_arguments(tmp_path: Path) -> None:
    def work() -> None:
        x = torch.ones(3, 4, requires_grad=True) * 2
        one, other = torch.broadcast_tensors(x, torch.ones(1, 4, requires_grad=True) * 3)
        (one * other).sum().backward()

    found = record(tmp_path, work)
    assert handed_through(found.data["Torch.broadcast_tensors.0.forward"]) in ({}, {"input.0": "output.0"})


def test_passes_of_modules_that_do_nothing_are_marked(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Dropout(0.5).eval(), nn.Linear(4, 4))
    found = record(tmp_path, lambda: model(torch.ones(3, 4)).sum().backward(), model, level="mix")
    backward = {
        name: record for name, record in found.data.items() if name.startswith("Module.") and "backward" in name
    }
    marked = {name.split(".")[2] for name, record in backward.items() if not has_own_backward(record)}
    assert marked == {"Identity", "Dropout"}

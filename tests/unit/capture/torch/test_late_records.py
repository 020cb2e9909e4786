"""Records whose numbers are still on a device when they are made: written with the numbers, once they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.capture.torch import recorder
from msprobe.capture.torch.devices import late_descriptions
from msprobe.capture.torch.tensors import tensor_values
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.pytorch import PrecisionDebugger


class Deferred(TensorStatistics):
    """Treats tensors of the CPU as those of an accelerator."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, defer=True, **more)


def dump(folder: Path, level: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU())
    values = torch.randn(3, 4)
    PrecisionDebugger.reset()
    with PrecisionDebugger(dump_path=str(folder), level=level, task="statistics").recording(model):
        model(values).sum().backward()
    PrecisionDebugger.reset()
    (file,) = folder.glob("step0/*/dump.json")
    data: dict[str, Any] = json.loads(file.read_text())["data"]
    return data


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_numbers_that_come_late_are_in_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    at_once = dump(tmp_path / "at_once", level)
    monkeypatch.setattr(recorder, "TensorStatistics", Deferred)
    late = dump(tmp_path / "late", level)
    assert list(late) == list(at_once)
    assert _all_tensors(late)
    for tensor in _all_tensors(late):
        assert None not in (tensor["Max"], tensor["Min"], tensor["Mean"], tensor["Norm"])
    for one, other in zip(_all_tensors(late), _all_tensors(at_once), strict=True):
        assert one["shape"] == other["shape"]
        assert one["Max"] == other["Max"]
        assert one["Norm"] == pytest.approx(other["Norm"], rel=1e-6)


def check(folder: Path, task: str) -> tuple[list[str], list[str]]:
    """The entries and files of a check for overflow."""
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task=task, overflow_nums=-1)
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    with debugger.recording():
        y = torch.relu(x).div(torch.tensor([1.0, 0.0]))
        torch.relu(x)
        y.sum().backward()
    PrecisionDebugger.reset()
    (file,) = folder.glob("step0/*/dump.json")
    return list(json.loads(file.read_text())["data"]), sorted(one.name for one in folder.rglob("*.pt"))


@pytest.mark.parametrize("chunk", [1, 64])
@pytest.mark.parametrize("task", ["overflow_check", "nan_check"])
def test_a_check_for_overflow_decides_when_the_numbers_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, chunk: int
) -> None:
    at_once = check(tmp_path / "at_once", task)
    monkeypatch.setattr(recorder, "TensorStatistics", Deferred)
    monkeypatch.setattr(late_descriptions, "CHUNK", chunk)
    assert check(tmp_path / "late", task) == at_once
    assert "Tensor.div.0.forward" in at_once[0]
    assert bool(at_once[1]) == (task == "overflow_check")


def test_values_that_an_overflow_check_holds_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = check(tmp_path / "at_once", "overflow_check")
    monkeypatch.setattr(recorder, "TensorStatistics", Deferred)
    monkeypatch.setattr(tensor_values, "MOST_HELD_BYTES", 20)
    assert check(tmp_path / "late", "overflow_check") == at_once


def _all_tensors(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [tensor for record in data.values() for tensor in _tensors(record)]


def _tensors(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == "torch.Tensor":
            return [value]
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, list):
        return [tensor for item in value for tensor in _tensors(item)]
    return []

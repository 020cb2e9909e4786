"""Records whose numbers are still on a device when they are made: written with the numbers, once they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.capture.torch import recorder
from msprobe.capture.torch.statistics import TensorStatistics
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
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task="statistics")
    debugger.start(model)
    model(values).sum().backward()
    debugger.stop()
    debugger.step()
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

"""What is written without a version is measured anew, also where numbers come late, as on an accelerator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.capture.torch import recorder
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.pytorch import PrecisionDebugger


class Deferred(TensorStatistics):
    """Treats tensors of the CPU as those of an accelerator."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, defer=True, **more)


class Model(nn.Module):
    """Running averages of two dimensions, whose kernel writes them unseen, and weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x))


def _recorded(folder: Path, level: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Model()
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level=level)
    debugger.start(model=model)
    for _ in range(3):
        model(torch.randn(4, 2, 3, 3)).square().sum().backward()
        for parameter in model.parameters():
            parameter.data.mul_(1.5)
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    found: dict[str, Any] = json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"]
    return found


def _numbers(value: Any, path: str = "") -> dict[str, list[float]]:
    """The numbers of each tensor of a record."""
    if isinstance(value, dict) and "Norm" in value:
        return {path: [value[key] for key in ("Max", "Min", "Mean", "Norm")]}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {name: each for key, item in pairs for name, each in _numbers(item, f"{path}.{key}").items()}


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
def test_numbers_that_come_late_are_those_of_now(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = _numbers(_recorded(tmp_path / "now", level))
    monkeypatch.setattr(recorder, "TensorStatistics", Deferred)
    late = _numbers(_recorded(tmp_path / "late", level))
    assert late.keys() == now.keys()
    for name, numbers in now.items():
        assert late[name] == pytest.approx(numbers, rel=1e-5, abs=1e-6), name

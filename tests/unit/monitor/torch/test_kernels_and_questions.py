"""Healthy pairs whose kernels differ, judged; and numbers that are asked for in the middle of a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe.monitor.diff import diff
from msprobe.pytorch import TrainerMon

JUDGED = {
    "targets": {},
    "wg_distribution": True,
    "param_distribution": True,
    "sketch": True,
    "step_count_per_record": 1000,
    "ops": ["norm", "projection"],
}


class Network(nn.Module):
    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.head = nn.Linear(256, 10)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.second(self.activation(self.first(x))))
        out: torch.Tensor = self.head(x.flatten(1))
        return out


def _train(folder: Path, activation: Any, is_fast: bool, steps: int, bad: int = -1) -> Path:
    (folder).mkdir()
    (folder / "monitor.json").write_text(json.dumps(JUDGED))
    with pytest.MonkeyPatch.context() as patch, torch.backends.mkldnn.flags(enabled=is_fast):
        patch.setenv("MONITOR_OUTPUT_DIR", str(folder / "out"))
        torch.manual_seed(3)
        model = Network(activation)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        monitor = TrainerMon(folder / "monitor.json")
        monitor.set_monitor(model, optimizer=optimizer)
        for step in range(steps):
            generator = torch.Generator().manual_seed(step)
            labels = torch.randint(0, 10, (16,), generator=generator)
            images = torch.randn(16, 3, 8, 8, generator=generator)
            for at in range(16):
                images[at, labels[at] % 3, labels[at] % 8] += 1.5
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            if step == bad:
                model.second.weight.grad.mul_(1.2)  # type: ignore[union-attr]
            monitor.note(loss=loss.item(), lr=0.02)
            optimizer.step()
        monitor.stop()
    return folder / "out"


@pytest.mark.parametrize("activation", [F.relu, F.gelu, F.silu])
def test_other_kernels_of_a_convolutional_network_are_no_bad_step(tmp_path: Path, activation: Any) -> None:
    one = _train(tmp_path / "a", activation, True, 50)
    other = _train(tmp_path / "b", activation, False, 50)
    assert diff(one, other).first_bad is None


def test_a_fault_behind_a_kink_is_still_found(tmp_path: Path) -> None:
    one = _train(tmp_path / "a", F.relu, True, 40)
    other = _train(tmp_path / "b", F.relu, False, 40, bad=30)
    found = diff(one, other).first_bad
    assert found is not None
    assert found.step == 30


@pytest.mark.parametrize("accumulated", [1, 2])
def test_what_is_asked_for_at_any_place_is_of_the_step_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulated: int
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path))
    config = {"targets": {}, "wg_distribution": True, "xy_distribution": True, "format": "api", "ops": ["norm"]}
    (tmp_path / "monitor.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = TrainerMon(tmp_path / "monitor.json")
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=accumulated)

    def asked(tables: dict[str, Any], tag: str) -> Any:
        return next((float(one["norm"]) for name, one in tables.items() if tag in name), None)

    def read() -> tuple[Any, Any, Any]:
        reduced, unreduced = monitor.generate_wgrad_metrics()
        inputs, _ = monitor.generate_xy_metrics()
        return asked(inputs, "0.input:0"), asked(unreduced, "0.weight"), asked(reduced, "0.weight")

    for step in range(3):
        first = 0.0
        for micro in range(accumulated):
            batch = torch.randn(5, 4) * (step + 1)
            first = first or float(batch.double().norm())
            loss = model(batch).square().mean()
            if micro == 0:
                assert read() == (pytest.approx(first, rel=1e-5), None, None)
            loss.backward()
        gradient = float(model[0].weight.grad.double().norm())  # type: ignore[union-attr]
        assert read() == (pytest.approx(first, rel=1e-5), pytest.approx(gradient, rel=1e-5), None)
        optimizer.step()
        wanted = (pytest.approx(first, rel=1e-5), pytest.approx(gradient, rel=1e-5), pytest.approx(gradient, rel=1e-5))
        assert read() == wanted
        optimizer.zero_grad()
        assert read() == wanted
    monitor.stop()

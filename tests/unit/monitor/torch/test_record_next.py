"""An alert has the next step recorded, and the training does not notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.monitor.sketch import read_sketches
from msprobe.pytorch import PrecisionDebugger, TrainerMon


def _train(config: dict[str, Any] | None, folder: Path, optimizer: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    steps = optimizer(model.parameters(), lr=0.01)
    monitor = None
    if config is not None:
        path = folder / "monitor.json"
        path.write_text(json.dumps(config))
        monitor = TrainerMon(path)
        monitor.set_monitor(model, optimizer=steps)
    torch.manual_seed(1)
    for step in range(8):
        loss = model(torch.ones(3, 4)).square().mean()
        (loss * (1000 if step == 4 else 1)).backward()
        if step == 4:
            next(model.parameters()).grad[0, 0] = float("nan")  # type: ignore[index]
        steps.step()
        steps.zero_grad()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.nan_to_num_()
    if monitor is not None:
        monitor.stop()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("interval", [1, 2])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_the_step_behind_an_alert_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: type[torch.optim.Optimizer], interval: int
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "monitor"))
    config = {
        "targets": {},
        "wg_distribution": True,
        "step_interval": interval,
        "alert": {
            "rules": [{"rule_name": "AnomalyNan"}],
            "record": {"level": "mix", "dump_path": str(tmp_path / "dump")},
        },
    }
    try:
        watched = _train(config, tmp_path, optimizer)
    finally:
        PrecisionDebugger.reset()
    plain = _train(None, tmp_path, optimizer)
    for mine, other in zip(watched, plain, strict=True):
        assert torch.equal(mine, other)
    (dump,) = (tmp_path / "dump").rglob("dump.json")
    assert dump.parent.parent.name == "step5"
    records = json.loads(dump.read_text())["data"]
    assert any(name.startswith("Functional.linear.0.forward") for name in records)
    assert any(name.startswith("Module.0.Linear.backward") for name in records)
    assert any(name.startswith("Optimizer.") for name in records)


def test_a_program_that_records_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "monitor"))
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = tmp_path / "monitor.json"
    path.write_text(
        json.dumps({"wg_distribution": True, "alert": {"rules": [{"rule_name": "AnomalyNan"}], "record": True}})
    )
    monkeypatch.chdir(tmp_path)
    try:
        debugger = PrecisionDebugger(task="statistics", level="L1", dump_path=str(tmp_path / "own"))
        with TrainerMon(path) as monitor:
            monitor.set_monitor(model, optimizer=optimizer)
            for step in range(4):
                debugger.start(model)
                model(torch.full((2, 4), float("nan") if step == 1 else 1.0)).sum().backward()
                optimizer.step()
                debugger.stop()
                debugger.step()
                optimizer.zero_grad()
    finally:
        PrecisionDebugger.reset()
    assert sorted(folder.name for folder in (tmp_path / "own").iterdir()) == ["step0", "step1", "step2", "step3"]
    assert not list((tmp_path / "monitor").rglob("behind_alert"))


def test_sketches_of_each_step_and_of_those_before_an_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "monitor"))
    config = {"wg_distribution": True, "sketch": True, "alert": {"rules": [{"rule_name": "AnomalyNan"}], "ring": 3}}
    _train(config, tmp_path, torch.optim.SGD)
    (whole,) = (tmp_path / "monitor").rglob("sketch.bin")
    assert [one.step for one in read_sketches(whole)] == list(range(8))
    (ring,) = (tmp_path / "monitor").rglob("sketch_4.bin")
    assert [one.step for one in read_sketches(ring)] == [2, 3, 4]
    assert whole.stat().st_size <= 8 * 1024


@pytest.mark.parametrize("ring", [-1, "3", True, 1.5])
def test_a_wrong_ring_is_told(tmp_path: Path, ring: Any) -> None:
    path = tmp_path / "monitor.json"
    path.write_text(json.dumps({"alert": {"rules": [], "ring": ring}}))
    with pytest.raises(TypeError, match=r"alert\.ring must be a whole number from 0 to 10000"):
        TrainerMon(path)

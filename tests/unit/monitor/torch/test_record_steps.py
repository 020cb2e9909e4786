"""An alert has its step and the next one recorded, and the training does not notice."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from unit.monitor.torch.monitored import monitored, train_m

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


def _recorded(folder: Path) -> list[str]:
    return sorted(dump.parent.parent.name for dump in folder.rglob("dump.json"))


@pytest.mark.parametrize(
    ("interval", "record", "steps"),
    [
        (1, {}, ["step4", "step5"]),
        (2, {}, ["step4", "step5"]),
        (1, {"keep": 0}, ["step5"]),
        (1, {"keep": 3}, ["step2", "step3", "step4", "step5"]),
        (2, {"keep": 2}, ["step2", "step4", "step5"]),
    ],
)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_the_step_of_an_alert_and_the_next_are_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: type[torch.optim.Optimizer],
    interval: int,
    record: dict[str, int],
    steps: list[str],
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "monitor"))
    config = {
        "targets": {},
        "wg_distribution": True,
        "step_interval": interval,
        "alert": {
            "rules": [{"rule_name": "AnomalyNan"}],
            "record": {"level": "mix", "dump_path": str(tmp_path / "dump"), **record},
        },
    }
    watched = _train(config, tmp_path, optimizer)
    plain = _train(None, tmp_path, optimizer)
    for mine, other in zip(watched, plain, strict=True):
        assert torch.equal(mine, other)
    assert sorted(folder.name for folder in (tmp_path / "dump").iterdir()) == steps == _recorded(tmp_path / "dump")
    for dump in (tmp_path / "dump").rglob("dump.json"):
        content = json.loads(dump.read_text())
        records = content["data"]
        assert content["msprobe"]["complete"]
        assert any(name.startswith("Functional.linear.0.forward") for name in records)
        assert any(name.startswith("Module.0.Linear.backward") for name in records)
        assert any(name.startswith("Optimizer.") for name in records)


def test_without_an_alert_nothing_is_left(tmp_path: Path) -> None:
    config = {**RECORDS, "alert": {**RECORDS["alert"], "record": {"keep": 3}}}
    monitored(tmp_path, config, train_m(6))
    assert not list((tmp_path / "out").rglob("behind_alert"))


RECORDS: dict[str, Any] = {
    "targets": {},
    "wg_distribution": True,
    "xy_distribution": True,
    "alert": {"rules": [{"rule_name": "AnomalyNan"}], "record": True},
}


class Careful:
    """Takes no step if a gradient is not finite, as the optimizers of Megatron and DeepSpeed."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        parameters = self.optimizer.param_groups[0]["params"]
        if all(bool(torch.isfinite(one.grad).all()) for one in parameters):
            self.optimizer.step()


def _nan_at(
    bad: int, evaluations: int = 0, raises: bool = False, scaler: bool = False, is_careful: bool = False
) -> Any:
    """A training whose batch ``bad`` has a NaN in its loss; ``evaluations``: passes without gradients before each."""

    def train(attach: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scales = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaler)
        careful = Careful(optimizer)
        attach(model, careful if is_careful else optimizer)
        for step in range(8):
            model.eval()
            with torch.no_grad():
                for _ in range(evaluations):
                    model(torch.zeros(1, 4))
            model.train()
            loss = model(torch.ones(3, 4)).square().mean()
            if step == bad:
                loss = loss * math.nan
            scales.scale(loss).backward()
            if step == bad and raises:
                break
            if is_careful:
                careful.step()
            else:
                scales.step(optimizer)
                scales.update()
            optimizer.zero_grad()
        return [model, optimizer]

    return train


def _calls(dump: Path, name: str) -> int:
    return sum(key.startswith(name) and "forward" in key for key in json.loads(dump.read_text())["data"])


@pytest.mark.parametrize("evaluations", [0, 1, 5])
def test_an_evaluation_before_the_step_is_not_in_it(tmp_path: Path, evaluations: int) -> None:
    monitored(tmp_path, RECORDS, _nan_at(3, evaluations))
    found = {dump.parent.parent.name: dump for dump in (tmp_path / "out").rglob("dump.json")}
    assert sorted(found) == ["step3", "step4"]
    assert [_calls(dump, "Functional.linear") for dump in found.values()] == [2, 2]


@pytest.mark.parametrize("how", ["scaler", "is_careful"])
def test_what_is_no_step_for_its_scaler_is_not_in_the_next_one(tmp_path: Path, how: str) -> None:
    # One skipped step is no alert; the step that is taken in its place has the records of one step.
    config = {**RECORDS, "alert": {"rules": [{"rule_name": "LossSpike"}], "record": {"keep": 4}}}
    config["alert"]["rules"] = [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 1e-6, "warm_up": 5}}]
    monitored(tmp_path, config, _nan_at(2, **{how: True}))
    found = sorted((tmp_path / "out").rglob("dump.json"))
    assert found
    assert {_calls(dump, "Functional.linear") for dump in found} == {2}


def test_a_step_that_is_not_finished_is_kept_with_its_alert(tmp_path: Path) -> None:
    monitored(tmp_path, RECORDS, _nan_at(3, raises=True))
    (dump,) = (tmp_path / "out").rglob("dump.json")
    content = json.loads(dump.read_text())
    assert dump.parent.parent.name == "step3"
    assert not content["msprobe"]["complete"]
    assert any(name.startswith("Module.0.Linear.backward") for name in content["data"])


@pytest.mark.parametrize("field", ["keep", "times"])
@pytest.mark.parametrize("value", [-1, "3", True, 1.5, 10**6])
def test_a_wrong_number_of_steps_is_reported(tmp_path: Path, field: str, value: Any) -> None:
    path = tmp_path / "monitor.json"
    path.write_text(json.dumps({"alert": {"rules": [], "record": {field: value}}}))
    with pytest.raises(TypeError, match='"alert"') as refused:
        TrainerMon(path)
    assert mentions(str(refused.value), "alert-record-number-wrong", field=field)


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
                with debugger.recording(model):
                    model(torch.full((2, 4), float("nan") if step == 1 else 1.0)).sum().backward()
                    optimizer.step()
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
def test_a_wrong_ring_is_reported(tmp_path: Path, ring: Any) -> None:
    path = tmp_path / "monitor.json"
    path.write_text(json.dumps({"alert": {"rules": [], "ring": ring}}))
    with pytest.raises(TypeError, match='"alert"') as refused:
        TrainerMon(path)
    assert mentions(str(refused.value), "alert-ring-wrong", most=10_000)

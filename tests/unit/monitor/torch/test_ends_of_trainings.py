"""However a training ends, its alerts are on the disk; and what a resumed one forgot to say is said."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from unit.monitor.torch.monitored import make, monitored, train_m, way

from msprobe import log
from msprobe.monitor.alerts.reading import read_all_alerts
from msprobe.monitor.files import find_runs
from msprobe.monitor.torch.trainer import TrainerMon

ALERT = {"rules": [{"rule_name": "AnomalyNan"}, {"rule_name": "LossSpike"}], "dump": True}
__all__ = ["way"]
CONFIG: dict[str, Any] = {"targets": {}, "wg_distribution": True, "ops": ["norm"], "alert": ALERT}


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def alerts(folder: Path) -> list[tuple[int, str, str]]:
    records = read_all_alerts(folder / "out").records
    return [(one["step"], one["rule"], one["what"]) for one in records.values()]


def scaled(steps: int, bad_from: int, bad_until: int = 1 << 30, scale: float = 1024.0) -> Any:
    """A training with a scaler, whose gradients are NaN in some of its batches."""

    def train(attach: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        attach(model, optimizer)
        for step in range(steps):
            loss = model(torch.ones(3, 4)).square().mean()
            if bad_from <= step < bad_until:
                loss = loss * math.nan
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return [model, optimizer, scaler.get_scale()]

    return train


def test_a_scaler_that_skips_for_ever_is_an_alert(tmp_path: Path, way: str) -> None:
    monitored(tmp_path, CONFIG, scaled(40, 5))
    found = alerts(tmp_path)
    assert ("SkippedSteps", "skipped_steps") in {(rule, what) for _, rule, what in found}
    assert {step for step, _, _ in found} == {5}
    assert any(what.startswith("grad_unreduced") for _, _, what in found)


@pytest.mark.parametrize(("steps", "until"), [(40, 12), (20, 6)])
def test_a_scaler_that_skips_now_and_then_is_none(tmp_path: Path, steps: int, until: int) -> None:
    monitored(tmp_path, CONFIG, scaled(steps, 5, until))
    assert alerts(tmp_path) == []


def test_without_rules_a_line_says_that_steps_are_skipped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    monitored(tmp_path, {"wg_distribution": True}, scaled(40, 5))
    assert mentions(capfd.readouterr().out, "steps-skipped", count="10")


class _Stop(Exception):
    pass


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("where", ["before backward", "behind backward"])
def test_a_loop_that_raises_before_its_optimizer_is_an_alert(tmp_path: Path, where: str, noted: bool) -> None:
    monitor = make(tmp_path, {**CONFIG, "xy_distribution": True})
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(_Stop), monitor:
        monitor.set_monitor(model, optimizer=optimizer)
        for step in range(9):
            loss = model(torch.full((3, 4), math.nan if step == 6 else 1.0)).square().mean()
            if noted:
                monitor.note(loss=loss.item())
            if step == 6 and where == "before backward":
                raise _Stop
            loss.backward()
            if step == 6:
                raise _Stop
            optimizer.step()
            optimizer.zero_grad()
    found = alerts(tmp_path)
    assert {step for step, _, _ in found} == {6}
    assert any(what.startswith("actv ") for _, _, what in found)
    assert any(what == "loss" for _, _, what in found) is noted
    assert any(what.startswith("grad_unreduced") for _, _, what in found) is (where == "behind backward")


def test_a_step_that_is_begun_and_healthy_raises_nothing(tmp_path: Path) -> None:
    monitor = make(tmp_path, {**CONFIG, "xy_distribution": True})
    model = nn.Linear(4, 2)
    monitor.set_monitor(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(3, 4)).sum().backward()
    monitor.note(loss=1.0)
    monitor.stop()
    assert alerts(tmp_path) == []


# ---------------------------------------------------------------- runs of their own


def test_two_monitors_at_once_have_numbers_and_one_behind_them_has_a_free_one(tmp_path: Path) -> None:
    def begin() -> tuple[TrainerMon, Any, Any]:
        monitor = make(tmp_path, {"wg_distribution": True})
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor.set_monitor(model, optimizer=optimizer)
        return monitor, model, optimizer

    first, second = begin(), begin()
    for _, model, optimizer in (first, second):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    first[0].stop()
    third = begin()
    for monitor in (second[0], third[0]):
        monitor.stop()
    numbers = {one.path.name: one.about["monitor"] for one in find_runs(tmp_path / "out")}
    assert [numbers[Path(str(one[0].output_path)).name] for one in (first, second, third)] == [0, 1, 0]


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad])
def test_a_forgotten_start_iteration_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], optimizer: type[torch.optim.Optimizer]
) -> None:
    model = nn.Linear(4, 2)
    steps = optimizer(model.parameters())
    for start, expected in ((0, False), (7, False), (0, True)):
        monitor = make(tmp_path, {"wg_distribution": True})
        monitor.set_monitor(model, optimizer=steps, start_iteration=start)
        monitor.stop()
        assert ("pass start_iteration=7" in capfd.readouterr().out) is expected
        if not start:
            for _ in range(7):
                model(torch.ones(3, 4)).sum().backward()
                steps.step()


def test_a_folder_that_is_gone_on_with_from_step_0_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = {"wg_distribution": True, "append_output": ["Jan01_00-00-00", "Dec31_23-59-59"]}
    for start, expected in ((0, False), (3, False), (0, True)):
        monitor = make(tmp_path, config)
        train = train_m(3, optimizer=torch.optim.SGD)
        train(lambda model, optimizer, m=monitor, s=start: m.set_monitor(model, optimizer=optimizer, start_iteration=s))
        monitor.stop()
        assert ("they are replaced" in capfd.readouterr().out) is expected

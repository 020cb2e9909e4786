"""Monitored programs that fork, are killed, or end in any other way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.command_line import call
from support.forked import run
from unit.monitor.torch.monitored import (
    EVERYTHING,
    Attach,
    ModelM,
    monitored,
)
from unit.monitor.torch.test_ends_of_trainings import CONFIG, alerts

from msprobe import log


def test_a_fork_writes_nothing(tmp_path: Path) -> None:
    """Workers of a data loader are forks of the training: they neither write nor take away."""

    class Numbers(torch.utils.data.Dataset[torch.Tensor]):
        def __getitem__(self, at: int) -> torch.Tensor:
            return torch.full((4,), float(at))

        def __len__(self) -> int:
            return 6

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for batch in torch.utils.data.DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="fork"):
            model(batch).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("grad_reduced") == found.steps("actv") == [0, 1, 2]
    assert len(list((tmp_path / "out").iterdir())) == 1


RECORDS: dict[str, Any] = {
    "targets": {},
    "wg_distribution": True,
    "xy_distribution": True,
    "alert": {"rules": [{"rule_name": "AnomalyNan"}], "record": True},
}


KILLED = """
import os, signal
import torch
from torch import nn
from msprobe.pytorch import TrainerMon
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = TrainerMon("monitor.json")
monitor.set_monitor(model, optimizer=optimizer)
for step in range(9):
    loss = model(torch.full((3, 4), float("nan") if step == 6 else 1.0)).square().mean()
    monitor.note(loss=loss.item())
    loss.backward()
    if step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
"""


def test_a_killed_program_leaves_the_step_of_its_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "monitor.json").write_text(json.dumps(RECORDS))
    (tmp_path / "train.py").write_text(KILLED)
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", "out")
    assert run("train.py", cwd=tmp_path).returncode != 0
    (place,) = (tmp_path / "out").rglob("behind_alert")
    assert [folder.name for folder in place.iterdir()] == ["step6"]
    assert call("check", place).returncode == 1


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


PROGRAM = """
import os, signal, sys
import torch
from torch import nn
from msprobe.pytorch import TrainerMon
how = sys.argv[1]
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = TrainerMon("monitor.json")
monitor.set_monitor(model, optimizer=optimizer)
for step in range(9):
    loss = model(torch.full((3, 4), float("nan") if step == 6 else 1.0)).square().mean()
    if how == "noted":
        monitor.note(loss=loss.item())
        if step == 6:
            os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    if step == 6 and how == "raise":
        raise RuntimeError("loss is NaN")
    if step == 6 and how == "exit":
        sys.exit(3)
    optimizer.step()
    if step == 6:
        if how == "quick":
            os._exit(1)
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM, "abort": signal.SIGABRT}[how])
"""


@pytest.mark.parametrize("how", ["kill", "term", "abort", "quick", "noted", "raise", "exit"])
def test_whatever_ends_the_program_the_alert_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (tmp_path / "monitor.json").write_text(json.dumps(CONFIG))
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", "out")
    assert run("train.py", how, cwd=tmp_path).returncode != 0
    found = alerts(tmp_path)
    assert {step for step, _, _ in found} == {6}
    assert (tmp_path / "out/anomaly_detected/rank0/anomaly.json").exists()

"""Dynamic monitoring: the configuration file turns the monitor on and off while the training runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from unit.monitor.torch.monitored import Measured, ModelM, assert_nothing_attached, attached, make

from msprobe.monitor.torch.trainer import TrainerMon

BASE = {"targets": {}, "wg_distribution": True, "xy_distribution": True, "param_distribution": True}


@pytest.fixture(params=["True", "true", "TRUE"])
def _dynamic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMIC_MONITOR", request.param)


class Dynamic:
    """A training of some steps, between which its configuration file changes."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.path = folder / "monitor.json"
        self.changes = 0
        self.monitor: TrainerMon = make(folder, {**BASE, **config})
        self.model = ModelM()
        self.adam = torch.optim.Adam(self.model.parameters())
        self.attached: list[bool] = []
        self.monitor.set_monitor(self.model, optimizer=self.adam)

    def write(self, text: str | None = None, **config: Any) -> None:
        """Change the file, at a time of its own."""
        self.path.write_text(json.dumps({**BASE, **config}) if text is None else text)
        self.changes += 1
        at = 1_800_000_000 + self.changes
        os.utime(self.path, (at, at))

    def train(self, steps: int, changes: dict[int, Callable[[], None]] | None = None) -> Measured:
        """So many steps; before the end of some of them something changes."""
        for step in range(steps):
            self.attached.append(bool(attached(self.model)))
            self.model(torch.randn(3, 4)).square().mean().backward()
            if changes and step in changes:
                changes[step]()
            self.adam.step()
            self.adam.zero_grad()
        self.monitor.stop()
        assert_nothing_attached(self.model)
        return Measured(self.monitor)


@pytest.mark.usefixtures("_dynamic")
class TestDynamic:
    def test_off_at_the_start_is_nothing(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=False)
        assert training.train(3).folder is None
        assert not (tmp_path / "out").exists()
        assert training.attached == [False] * 3

    def test_on_at_the_start_begins_with_the_second_step(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=True, collect_times=2)
        found = training.train(5)
        assert found.steps("grad_reduced") == found.steps("actv") == [1, 2]
        assert training.attached == [False, True, True, False, False]
        assert training.path.read_text() == json.dumps({**BASE, "dynamic_on": False, "collect_times": 2}, indent=2), (
            "the file says that it is over"
        )

    def test_switched_on_while_it_runs(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=False)
        found = training.train(8, {3: lambda: training.write(dynamic_on=True, collect_times=2)})
        assert found.steps("grad_reduced") == [4, 5]
        assert json.loads(training.path.read_text())["dynamic_on"] is False

    def test_a_change_holds_from_the_next_step_on_and_the_count_begins_anew(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=True, collect_times=3)
        change = {2: lambda: training.write(dynamic_on=True, collect_times=2, ops=["max", "nans"])}
        found = training.train(8, change)
        assert found.steps("grad_reduced") == [1, 2, 3, 4]
        assert found.header("grad_reduced_2-2.csv").split(",")[3:-2] == ["norm"]
        assert found.header("grad_reduced_3-3.csv").split(",")[3:-2] == ["max", "nans"]

    def test_no_times_is_one_more_step(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=True)
        found = training.train(6, {2: lambda: training.write(dynamic_on=True, collect_times=0)})
        assert found.steps("grad_reduced") == [1, 2, 3]

    def test_switched_off_stops_at_the_next_step(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=True)
        found = training.train(6, {2: lambda: training.write(dynamic_on=False)})
        assert found.steps("grad_reduced") == [1, 2]
        assert training.attached == [False, True, True, False, False, False]

    @pytest.mark.parametrize("text", ["{", '{"dynamic_on": true, "ops": "norm"}', ""])
    def test_a_broken_file_changes_nothing(self, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
        training = Dynamic(tmp_path, dynamic_on=True)
        found = training.train(5, {2: lambda: training.write(text)})
        assert found.steps("grad_reduced") == [1, 2, 3, 4]
        said = capfd.readouterr().out
        assert mentions(said, "monitor-switch-failed") == 1

    def test_on_again_after_the_end_goes_on_in_the_same_folder(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=True, collect_times=1)
        found = training.train(8, {4: lambda: training.write(dynamic_on=True, collect_times=2)})
        assert found.steps("grad_reduced") == [1, 5, 6]
        assert len(list((tmp_path / "out").iterdir())) == 1

    def test_the_first_step_of_an_interval_is_the_next_one(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=False)
        write = {2: lambda: training.write(dynamic_on=True, step_interval=2, start_step=7)}
        found = training.train(9, write)
        assert found.steps("grad_reduced") == [3, 5, 7]
        assert training.attached == [False, False, False, True, False, True, False, True, False]

    def test_a_file_that_vanishes_changes_nothing(self, tmp_path: Path) -> None:
        training = Dynamic(tmp_path, dynamic_on=True, collect_times=2)
        found = training.train(5, {1: training.path.unlink})
        assert found.steps("grad_reduced") == [1, 2]


def test_without_the_variable_the_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNAMIC_MONITOR", raising=False)
    training = Dynamic(tmp_path, dynamic_on=False)
    found = training.train(3, {0: lambda: training.write(dynamic_on=True, ops=["max"])})
    assert found.steps("grad_reduced") == [0, 1, 2]
    assert found.header("grad_reduced_2-2.csv").split(",")[3] == "norm"

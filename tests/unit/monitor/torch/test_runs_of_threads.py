"""Each monitor is a run of its own unless it says that it goes on: programs of public threads that mix up logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe import log
from msprobe.monitor.diff import diff
from msprobe.monitor.files import find_runs
from msprobe.monitor.whole_runs import recorded_steps, whole_runs
from msprobe.pytorch import TrainerMon

CONFIG: dict[str, Any] = {"targets": {}, "wg_distribution": True, "param_distribution": True, "ops": ["norm"]}


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


class Part:
    """A network with its optimizer and monitor."""

    def __init__(self, folder: Path, rate: float = 0.1, start: int = 0, width: int = 4, **config: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(width, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)
        (folder / "m.json").write_text(json.dumps({**CONFIG, **config}))
        self.monitor = TrainerMon(folder / "m.json")
        self.monitor.set_monitor(self.model, optimizer=self.optimizer, start_iteration=start)
        self.done = start

    def step(self, count: int = 1) -> Part:
        for _ in range(count):
            x = torch.randn(6, self.model.in_features, generator=torch.Generator().manual_seed(self.done))
            self.optimizer.zero_grad()
            self.model(x).square().mean().backward()
            self.optimizer.step()
            self.done += 1
        return self

    def stop(self) -> None:
        self.monitor.stop()


Program = Callable[[Path, float], None]


def adversaries(folder: Path, rate: float) -> None:
    one, other = Part(folder), Part(folder, rate, width=3)
    for _ in range(9):
        one.step()
        other.step()
    one.stop()
    other.stop()


def folds(folder: Path, rate: float) -> None:
    for fold in range(3):
        Part(folder, rate if fold == 1 else 0.1).step(9).stop()


def a_teacher_and_its_pupil(folder: Path, rate: float) -> None:
    Part(folder).step(12).stop()
    Part(folder, rate, width=3).step(9).stop()


def a_cell_that_runs_twice(folder: Path, rate: float) -> None:
    first = Part(folder).step(5)
    Part(folder, rate).step(9).stop()
    first.stop()  # at the exit of the program


def a_sweep(folder: Path, rate: float) -> None:
    for one in (0.05, 0.1, rate):
        Part(folder, one).step(9).stop()


def actor_and_critic(folder: Path, rate: float) -> None:
    actor, critic = Part(folder), Part(folder, rate, width=5)
    for number in range(18):
        critic.step()
        if number % 2:
            actor.step()
    actor.stop()
    critic.stop()


def warmed_up_then_trained(folder: Path, rate: float) -> None:
    Part(folder, 0.01).step(4).stop()
    Part(folder, rate).step(9).stop()


def resumed_in_a_new_folder(folder: Path, rate: float) -> None:
    Part(folder).step(9).stop()
    Part(folder, rate, start=6).step(6).stop()


def resumed_in_the_same_folder(folder: Path, rate: float) -> None:
    append = ["Jan01_00-00-00", "Dec31_23-59-59"]
    Part(folder, append_output=append).step(9).stop()
    Part(folder, rate, start=6, append_output=append).step(6).stop()


def preempted_twice(folder: Path, rate: float) -> None:
    Part(folder).step(6).stop()
    Part(folder, start=4).step(6).stop()
    Part(folder, rate, start=8).step(6).stop()


def two_that_resume(folder: Path, rate: float) -> None:
    for start in (0, 5):
        one, other = Part(folder, start=start), Part(folder, rate, start=start, width=3)
        for _ in range(7):
            one.step()
            other.step()
        one.stop()
        other.stop()


def a_validation_run_beside(folder: Path, rate: float) -> None:
    main = Part(folder, rate)
    main.step(4)
    Part(folder, 0.1, width=3).step(3).stop()
    main.step(5).stop()


#: What a program does, the first and last steps of each of its runs.
PROGRAMS: dict[str, tuple[Program, list[tuple[int, int]]]] = {
    # https://github.com/junyanz/pytorch-CycleGAN-and-pix2pix: two networks that train in turn
    "adversaries": (adversaries, [(0, 8), (0, 8)]),
    # https://github.com/eriklindernoren/PyTorch-YOLOv3/pull/599: several runs are combined into one
    "folds": (folds, [(0, 8), (0, 8), (0, 8)]),
    # many: distillation
    "a teacher and its pupil": (a_teacher_and_its_pupil, [(0, 8), (0, 11)]),
    # https://github.com/0x454447415244/HandwritingRecognitionSystem/issues/8: not cleared between runs
    "a cell that runs twice": (a_cell_that_runs_twice, [(0, 4), (0, 8)]),
    # https://github.com/yunjey/pytorch-tutorial/pull/76: runs of a sweep in one folder
    "a sweep": (a_sweep, [(0, 8), (0, 8), (0, 8)]),
    # many: the critic steps twice as often
    "actor and critic": (actor_and_critic, [(0, 8), (0, 17)]),
    # https://github.com/Sentdex/pygta5/issues/47: trained again with other settings
    "warmed up, then trained": (warmed_up_then_trained, [(0, 3), (0, 8)]),
    # https://github.com/mlberkeley/Creative-Adversarial-Networks/issues/10: a folder for each resume
    "resumed in a new folder": (resumed_in_a_new_folder, [(0, 11)]),
    # https://github.com/tensorflow/tensorboard/issues/3732: resumed behind its own checkpoint
    "resumed in the same folder": (resumed_in_the_same_folder, [(0, 11)]),
    # https://github.com/tensorflow/tensorboard/issues/6782: preempted, and again
    "preempted twice": (preempted_twice, [(0, 13)]),
    # https://github.com/facebookresearch/ParlAI/pull/2376: both of two are resumed
    "two that resume": (two_that_resume, [(0, 11), (0, 11)]),
    # many: something is trained while a training waits
    "a validation run beside": (a_validation_run_beside, [(0, 2), (0, 8)]),
}


@pytest.mark.parametrize("form", ["csv", "sqlite"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_are_those_that_the_program_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    program, expected = PROGRAMS[name]
    monkeypatch.setitem(CONFIG, "format", form)
    for side, rate in (("one", 0.1), ("same", 0.1), ("wrong", 1.0)):
        (tmp_path / side).mkdir()
        monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / side / "out"))
        program(tmp_path / side, rate)
    found = []
    for run in whole_runs(find_runs(tmp_path / "one/out")):
        spans = [span for span in map(recorded_steps, run.folders) if span is not None]
        found.append((min(first for first, _ in spans), max(last for _, last in spans)))
    assert sorted(found) == sorted(expected)
    same = diff(tmp_path / "one/out", tmp_path / "same/out")
    assert same.first_bad is None
    assert same.unread == ()
    wrong = diff(tmp_path / "one/out", tmp_path / "wrong/out")
    assert wrong.first_bad is not None, "the run with another rate was not looked at"

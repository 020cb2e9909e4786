"""Recording with a Trainer that tells where it is, and the callbacks' imports."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import raising
from support.torch_dumps import Dump
from torch import nn

from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.launcher.trainer_recording import TrainerRecording
from msprobe.pytorch import PrecisionDebugger

optimizer_module = importlib.import_module("torch.optim.optimizer")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()


class Trainer:
    """As the Trainer of Hugging Face: counts its steps, two micro-batches each, and evaluates in between."""

    def __init__(self, done: int = 0) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.done = done
        self.inside = False

    def train(
        self, recording: TrainerRecording | None, steps: int, ends_steps: bool = True, failing: bool = False
    ) -> None:
        if recording is not None:
            recording.begin(self.done, lambda: self.inside, [self.optimizer], ends_steps)
        for _ in range(steps):
            if recording is not None and ends_steps:
                recording.number_next_step(self.done)
            self.inside = True
            for _ in range(2):
                self.model(torch.ones(1, 2)).sum().backward()
            if failing:
                return
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.inside = False
            self.done += 1
            if recording is not None and ends_steps:
                recording.end_step()
            # An evaluation that has not switched gradients off.
            self.model(torch.ones(1, 2))
        if recording is not None:
            recording.end()


def recorded(folder: Path, **settings: Any) -> TrainerRecording:
    return TrainerRecording(None, {"level": "mix", "dump_path": str(folder / "dump"), **settings})


def passes(folder: Path, step: int) -> list[str]:
    return Dump(folder / "dump").names(step, "Module.0.Linear.forward")


@pytest.mark.parametrize("ends_steps", [True, False])
def test_steps_have_the_numbers_of_the_trainer(tmp_path: Path, ends_steps: bool) -> None:
    Trainer(done=5).train(recorded(tmp_path), 3, ends_steps)
    assert nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"
    assert not optimizer_module._global_optimizer_pre_hooks
    PrecisionDebugger.reset()
    dump = Dump(tmp_path / "dump")
    assert dump.steps() == ["step5", "step6", "step7"]
    for step in (5, 6, 7):
        assert len(passes(tmp_path, step)) == 2
        assert "Optimizer.SGD.0.forward" in dump.names(step)
        assert dump.file(step)["msprobe"]["complete"] is True


def test_a_second_training_counts_on(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    Trainer().train(recording, 2)
    Trainer().train(None, 2)
    Trainer().train(recording, 2)
    PrecisionDebugger.reset()
    assert Dump(tmp_path / "dump").steps() == ["step0", "step1", "step2", "step3"]


def test_only_wanted_steps_are_recorded(tmp_path: Path) -> None:
    Trainer().train(recorded(tmp_path, step=[1]), 3)
    PrecisionDebugger.reset()
    assert Dump(tmp_path / "dump").steps() == ["step1"]


def test_a_training_that_failed_leaves_an_incomplete_step_and_nothing_attached(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    Trainer().train(recording, 1)
    Trainer().train(recording, 1, failing=True)
    recording.end(failed=True)
    assert nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"
    assert not optimizer_module._global_optimizer_pre_hooks
    PrecisionDebugger.reset()
    dump = Dump(tmp_path / "dump")
    assert dump.steps() == ["step0", "step1"]
    assert [dump.file(step)["msprobe"]["complete"] for step in (0, 1)] == [True, False]


def test_a_copy_in_another_process_has_the_settings(tmp_path: Path) -> None:
    text = pickle.dumps(recorded(tmp_path))
    PrecisionDebugger.reset()
    Trainer().train(pickle.loads(text), 1)
    PrecisionDebugger.reset()
    assert len(passes(tmp_path, 0)) == 2


def test_the_scripts_own_debugger_is_used(tmp_path: Path) -> None:
    PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="L0")
    Trainer().train(TrainerRecording(None, {}), 1)
    PrecisionDebugger.reset()
    assert Dump(tmp_path / "dump").file()["level"] == "L0"


def test_a_wrong_setting_is_reported_when_the_callback_is_made() -> None:
    with pytest.raises(MsprobeError, match="level"):
        TrainerRecording(None, {"level": "L7"})
    with raising(InvalidInputError, "debugger-not-created"):
        PrecisionDebugger.step()


@pytest.mark.parametrize(
    ("module", "package", "extra"), [("huggingface", "transformers", "hf"), ("lightning", "lightning", "lightning")]
)
def test_a_missing_package_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, f"msprobe.integrations.{module}", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] in (package, "pytorch_lightning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as problem:
        importlib.import_module(f"msprobe.integrations.{module}")
    assert str(problem.value) == (
        f"msprobe.integrations.{module} needs {package}; install it: pip install 'msprobe-debugger[{extra}]'."
    )
    assert problem.value.__suppress_context__

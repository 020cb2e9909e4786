"""Many steps, recorded and not: nothing piles up."""

from __future__ import annotations

import gc
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.recorded import ModelT, loss_of
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.capture.torch.tensors import statistics
from msprobe.pytorch import PrecisionDebugger


class Model(nn.Module):
    """Layers that leave something behind if anything does: views, in-place writes, recomputation, shared weights."""

    def __init__(self) -> None:
        super().__init__()
        self.body = ModelT()
        self.relu = nn.ReLU(inplace=True)
        self.again = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.again(self.relu(self.again(self.body(x)[None])))
        y = y[:, :2] + y[:, 1:]
        result: torch.Tensor = self.dropout(checkpoint(torch.tanh, y, use_reentrant=False))
        return result


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    PrecisionDebugger.reset()


@pytest.fixture(scope="module", autouse=True)
def _what_was_frozen_meanwhile_is_freed() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as it was after the tests were loaded


class Training:
    """A small training whose steps are recorded, and whose dumps are thrown away as they appear."""

    def __init__(self, place: Path, **settings: Any) -> None:
        torch.manual_seed(0)
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.place = place
        self.debugger = PrecisionDebugger(dump_path=str(place), **{"task": "statistics", "level": "mix", **settings})
        self.number = 0

    def iteration(self) -> None:
        self.optimizer.zero_grad()
        loss_of(self.model(torch.randn(3, 8))).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def step(self) -> None:
        self.debugger.start(self.model)
        self.iteration()
        self.debugger.stop()
        self.debugger.step()
        self.number += 1
        if self.number % 20 == 0:
            shutil.rmtree(self.place, ignore_errors=True)


def alive() -> int:
    gc.collect()
    return len(gc.get_objects())


def growth(step: Callable[[], None], warm_up: int, steps: int, objects: float, allocated: float) -> tuple[int, int]:
    """What every ``steps`` steps add to what is alive and allocated: the least of six times, as some things are made
    once, and late, and other threads allocate, too; of fewer, once it is below the two numbers.
    """
    found: list[tuple[int, int]] = []
    gc.collect()
    gc.freeze()  # what is older than this training is not looked through each time
    for _ in range(warm_up):
        step()
    tracemalloc.start()
    try:
        for _ in range(6):
            before = alive(), tracemalloc.get_traced_memory()[0]
            for _ in range(steps):
                step()
            found.append((alive() - before[0], tracemalloc.get_traced_memory()[0] - before[1]))
            least = min(number for number, _ in found), min(number for _, number in found)
            if least[0] < objects and least[1] < allocated:
                break
    finally:
        tracemalloc.stop()
    return least


def check_growth(step: Callable[[], None], warm_up: int, steps: int, objects: float, allocated: float) -> None:
    """Fail where so many steps add that many objects or bytes each time."""
    found = growth(step, warm_up, steps, objects, allocated)
    assert found[0] < objects, "objects pile up from step to step"
    assert found[1] < allocated, "memory grows from step to step"


SETTINGS: dict[str, dict[str, Any]] = {
    "mix": {},
    "L0": {"level": "L0"},
    "L1": {"level": "L1"},
    "L2": {"level": "L2"},
    "md5": {"summary_mode": "md5"},
    "tensor": {"task": "tensor", "level": "L0"},
    "structure": {"task": "structure"},
    "overflow": {"task": "overflow_check", "overflow_nums": -1},
    "a list": {"list": ["body.l1"]},
    "a scope": {"scope": ["Functional.linear.0.forward", "Functional.linear.1.forward"], "level": "L1"},
    "other steps": {"step": [1_000_000]},
}


# These do part of what mix does.
PART_OF_MIX = ("L0", "L1", "structure", "a list", "a scope")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in PART_OF_MIX)) for name in SETTINGS]
)
def test_steps_leave_nothing_behind(tmp_path: Path, name: str) -> None:
    training = Training(tmp_path / "dump", **SETTINGS[name])
    check_growth(training.step, warm_up=21, steps=12, objects=12, allocated=5_000)


def test_steps_on_and_off(tmp_path: Path) -> None:
    training = Training(tmp_path / "dump")

    def on_and_off() -> None:
        training.step()
        training.iteration()
        training.debugger.step()

    check_growth(on_and_off, warm_up=15, steps=25, objects=25, allocated=10_000)


def test_models_that_come_and_go(tmp_path: Path) -> None:
    training = Training(tmp_path / "dump")

    def step() -> None:
        training.model = Model()
        training.optimizer = torch.optim.AdamW(training.model.parameters())
        training.step()

    check_growth(step, warm_up=15, steps=25, objects=25, allocated=10_000)


def test_functions_that_come_and_go(tmp_path: Path) -> None:
    """What is remembered of a function must not keep every lambda of the user alive."""
    training = Training(tmp_path / "dump", level="L1")

    def step() -> None:
        names: dict[str, Any] = {"torch": torch}
        exec(f"def f(x):\n    return x.add(1) + {training.number}", names)
        training.debugger.start()
        names["f"](torch.ones(2))
        training.debugger.stop()
        training.debugger.step()
        training.number += 1

    # Call stacks of code that is gone are kept, some ten thousand of them.
    check_growth(step, warm_up=50, steps=100, objects=100 * 40, allocated=100 * 5_000)


def test_starts_and_stops_of_one_endless_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without step(), records of one step pile up on disk; in memory stays little more than their names."""
    # What is known of tensors is kept for a step, up to a limit. Here to less than an iteration has.
    monkeypatch.setattr(statistics, "MEMO_LIMIT", 20)
    training = Training(tmp_path / "dump", level="L1")
    entries = []

    def iteration() -> None:
        training.debugger.start(training.model)
        training.iteration()
        training.debugger.stop()
        entries.append(training.debugger.recorder.session.order)

    iteration()  # which makes the state of the optimizer, too
    iteration()
    each = entries[1] - entries[0]
    check_growth(iteration, warm_up=18, steps=20, objects=0.2 * 20 * each, allocated=250 * 20 * each)
    assert entries[-1] - entries[1] == each * len(entries[2:]), "not one step, but several"


def resident() -> int:
    """Memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_ten_thousand_steps_on_and_off(tmp_path: Path) -> None:
    training = Training(tmp_path / "dump")
    for _ in range(500):
        training.step()
    gc.collect()
    before = resident()
    for number in range(10_000):
        if number % 2:
            training.iteration()
            training.debugger.step()
        else:
            training.step()
    gc.collect()
    grown = resident() - before
    print(f"resident memory grew by {grown / 2**20:.2f} MiB")
    assert grown < 1.5 * 2**20

"""Trainings of several kinds in lockstep: the healthy one is what it is alone, and one run names every bug."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe.capture.torch import recorder
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.pytorch import PrecisionDebugger

from .kinds import KINDS, Trained, debugged
from .trainings import entries, in_lockstep, record


class Deferred(TensorStatistics):
    """Treats tensors of the CPU as those of an accelerator."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, defer=True, **more)


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


class Kept:
    """A training, and what it has left: losses, weights and running averages, random numbers."""

    def __init__(self, train: Callable[..., Trained], bugs: tuple[str, ...] = ()) -> None:
        self.train, self.bugs = train, bugs
        self.losses: list[float] = []
        self.values: dict[str, Any] = {}

    def __call__(self, around: Any = debugged) -> None:
        torch.manual_seed(0)
        self.losses, model = self.train(self.bugs, around)
        self.values = {name: value.clone() for name, value in model.state_dict().items()}
        self.values["random"] = torch.get_rng_state()


def assert_same(one: Kept, other: Kept) -> None:
    assert repr(one.losses) == repr(other.losses)
    differing = [name for name, value in one.values.items() if not torch.equal(value, other.values[name])]
    assert not differing


@pytest.mark.parametrize(("kind", "late"), [*((kind, False) for kind in KINDS), ("adversaries", True)])
def test_a_healthy_training_is_what_it_is_alone_and_every_bug_is_named_in_one_run(
    kind: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        monkeypatch.setattr(recorder, "TensorStatistics", Deferred)
    train, bugs = KINDS[kind]
    alone, healthy, wrong = Kept(train), Kept(train), Kept(train, tuple(bugs))
    alone(lambda model: contextlib.nullcontext())
    reference = record(Kept(train), tmp_path / "reference")

    verdict = in_lockstep(healthy, reference, tmp_path / "healthy")

    assert_same(healthy, alone)
    assert verdict.status == "agree"
    assert not verdict.findings
    assert not verdict.notes
    verdict = in_lockstep(wrong, reference, tmp_path / "wrong")
    named = entries(verdict)
    assert set(bugs.values()) <= named
    # Where one bug is called several times, its calls are the only others that are named.
    calls = {name.rsplit(".", 2)[0] for name in bugs.values()}
    assert {name.rsplit(".", 2)[0] for name in named} == calls
    # The wrong one has gone on with what the reference has.
    assert repr(wrong.losses) == repr(alone.losses)

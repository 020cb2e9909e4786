"""Steps that threads call skipped, lost or never taken: an alert where something is lost, none where it is meant.
A comment names the project and the subject."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.monitor.torch.monitored import monitored, way

from msprobe import log
from msprobe.monitor.alerts.reading import read_all_alerts

RULES = ("AnomalyNan", "LossSpike", "FrozenWeights")
CONFIG: dict[str, Any] = {
    "targets": {},
    "wg_distribution": True,
    "param_distribution": True,
    "ops": ["norm"],
    "alert": {"rules": [{"rule_name": name} for name in RULES], "dump": True},
}
__all__ = ["way"]
STEPS = 36
Step = Callable[[int, nn.Module, torch.optim.Optimizer, Any], None]


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def loss_of(model: nn.Module, bad: bool = False, factor: float = 1.0) -> torch.Tensor:
    loss = model(torch.linspace(0, 1, 12).view(3, 4)).square().mean() * factor
    return loss * math.nan if bad else loss


def training(step: Step, scale: float = 1024.0) -> Any:
    def train(attach: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
        attach(model, optimizer)
        for number in range(STEPS):
            step(number, model, optimizer, scaler)
        return [model, optimizer]

    return train


def scaled(bad: Callable[[int], bool], clears: bool = True) -> Step:
    def step(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        scaler.scale(loss_of(model, bad(number))).backward()
        scaler.step(optimizer)
        scaler.update()
        if clears:
            optimizer.zero_grad()

    return step


def guarded(limit: float, bad: Callable[[int], bool]) -> Step:
    """A step is taken only where the norm of all gradients is small."""

    def step(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        loss_of(model, bad(number)).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if float(norm) < limit:
            optimizer.step()
        optimizer.zero_grad()

    return step


def skips_bad_losses(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    loss = loss_of(model, number > 8)
    if torch.isfinite(loss):
        loss.backward()
        optimizer.step()
    else:
        (loss * 0).backward()
    optimizer.zero_grad()


def overflows(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    """A scale that grows beyond what float16 holds, comes down and grows again."""
    scaled(lambda number: number % 5 == 4)(number, model, optimizer, scaler)


def spikes(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    loss = loss_of(model, factor=1e4 if number == 20 else 1.0)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def detached(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    """The gradients are there, and the learning rate is nothing: weights stay."""
    for group in optimizer.param_groups:
        group["lr"] = 0.0 if number > 8 else 0.01
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()


def accumulates(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    scaler.scale(loss_of(model) / 4).backward()
    if number % 4 == 3:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def unscales_by_hand(number: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    scaler.scale(loss_of(model)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


#: (a step of a training, what must be raised: none of these for an empty set)
CASES: dict[str, tuple[Step, set[str]]] = {
    # PaddlePaddle 67895: gradients that are not finite are never cleared, the scale goes to nothing
    "never cleared": (scaled(lambda number: number == 6, clears=False), {"SkippedSteps"}),
    # pytorch 152279: nobody says that each step is skipped
    "each step is skipped": (scaled(lambda number: number > 6), {"SkippedSteps"}),
    # pytorch 26512, accelerate 139: a few steps are skipped at the begin, and that is meant
    "the first steps are skipped": (scaled(lambda number: number < 3), set()),
    "now and then": (overflows, set()),
    # lightseekorg/TorchSpec 33, Haian-Jin/LVSM 19: a guard that looks at the norm of the gradients
    "a guard that skips once": (guarded(50.0, lambda number: number == 9), set()),
    "a guard that skips for ever": (guarded(50.0, lambda number: number > 8), {"AnomalyNan"}),
    # kaggle templates: losses that are not finite are skipped, for ever
    "losses that are skipped": (skips_bad_losses, {"AnomalyNan"}),
    # flagos-ai/FlagScale 315: a spike of the loss
    "weights that stay": (detached, {"FrozenWeights"}),
    # many: what is right
    "accumulated": (accumulates, set()),
    "unscaled and clipped": (unscales_by_hand, set()),
    "never bad": (scaled(lambda number: False), set()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_thread_calls_silent_is_an_alert_and_what_is_meant_is_none(tmp_path: Path, name: str, way: str) -> None:
    step, expected = CASES[name]
    monitored(tmp_path, CONFIG, training(step))
    found = {str(one["rule"]) for one in read_all_alerts(tmp_path / "out").records.values()}
    assert found >= expected
    assert found or not expected
    if not expected:
        assert found == set()

"""Gradients that a loop asks for are those of the step that it is in: loops of public threads that log others."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import TrainerMon

STEPS = 4


class Loop:
    """A model, its optimizer and monitor, and what both tables must say of the first weight when they are asked."""

    def __init__(self, folder: Path, **more: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        config = {"targets": {}, "wg_distribution": True, "format": "api", "ops": ["norm"], **more.pop("config", {})}
        (folder / "m.json").write_text(json.dumps(config))
        self.monitor = TrainerMon(folder / "m.json")
        self.monitor.set_monitor(self.model, optimizer=self.optimizer, **more)
        self.asked = 0

    @property
    def weight(self) -> torch.Tensor:
        return self.model[0].weight  # type: ignore[return-value]

    def loss(self, step: int, draw: int = 0) -> torch.Tensor:
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * step + draw)) * (step + 1)
        return self.model(x).square().mean()  # type: ignore[no-any-return]

    def norm(self) -> float:
        assert self.weight.grad is not None
        return float(self.weight.grad.double().norm())

    def ask(self, unreduced: float | None, reduced: float | None) -> None:
        """Both tables, as they are now."""
        tables = self.monitor.generate_wgrad_metrics()
        found = [
            next((float(row["norm"]) for name, row in table.items() if "0.weight" in name), None) for table in tables
        ]
        wanted = [None if one is None else pytest.approx(one, rel=1e-5) for one in (reduced, unreduced)]
        assert found == wanted
        self.asked += 1


Run = Callable[[Path], Loop]


def zeroed_in_the_step(folder: Path) -> Loop:
    loop = Loop(folder)
    for step in range(STEPS):
        loop.loss(step).backward()
        norm = loop.norm()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
        loop.ask(norm, norm)
    return loop


def zeroed_behind_each_part(folder: Path) -> Loop:
    loop = Loop(folder)
    for step in range(STEPS):
        for part in range(2):
            loop.loss(step, part).backward()
            norm = loop.norm()
            loop.optimizer.step()
            loop.optimizer.zero_grad(set_to_none=False)
            loop.ask(norm, norm)
    return loop


def asked_behind_the_schedule(folder: Path) -> Loop:
    loop = Loop(folder)
    schedule = torch.optim.lr_scheduler.StepLR(loop.optimizer, 1, 0.5)
    for step in range(STEPS):
        loop.optimizer.zero_grad()
        loop.loss(step).backward()
        norm = loop.norm()
        loop.optimizer.step()
        schedule.step()
        loop.ask(norm, norm)
    return loop


def clipped(folder: Path) -> Loop:
    loop = Loop(folder)
    for step in range(STEPS):
        loop.optimizer.zero_grad()
        loop.loss(step).backward()
        before = loop.norm()
        nn.utils.clip_grad_norm_(loop.model.parameters(), 0.05)
        loop.ask(before, None)
        behind = loop.norm()
        loop.optimizer.step()
        loop.ask(before, behind)
    return loop


def accumulated(folder: Path) -> Loop:
    loop = Loop(folder, grad_acc_steps=3)
    for step in range(STEPS):
        for part in range(3):
            (loop.loss(step, part) / 3).backward()
        norm = loop.norm()
        loop.ask(norm, None)
        loop.optimizer.step()
        loop.ask(norm, norm)
        loop.optimizer.zero_grad()
    return loop


def validated_between(folder: Path) -> Loop:
    loop = Loop(folder)
    for step in range(STEPS):
        loop.loss(step).backward()
        norm = loop.norm()
        with torch.no_grad():
            loop.model.eval()
            loop.loss(90 + step)
            loop.model.train()
        loop.ask(norm, None)
        loop.optimizer.step()
        with torch.no_grad():
            loop.loss(70 + step)
        loop.ask(norm, norm)
        loop.optimizer.zero_grad()
    return loop


def averaged_behind(folder: Path) -> Loop:
    loop = Loop(folder)
    average = copy.deepcopy(loop.model).requires_grad_(False)
    for step in range(STEPS):
        loop.loss(step).backward()
        norm = loop.norm()
        loop.optimizer.step()
        for one, other in zip(average.parameters(), loop.model.parameters(), strict=True):
            one.data.lerp_(other.data, 0.1)
        loop.ask(norm, norm)
        loop.optimizer.zero_grad()
    return loop


def scaled(folder: Path) -> Loop:
    loop = Loop(folder)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(STEPS):
        loop.optimizer.zero_grad()
        scaler.scale(loop.loss(step)).backward()
        before = loop.norm()
        scaler.unscale_(loop.optimizer)
        norm = loop.norm()
        scaler.step(loop.optimizer)
        scaler.update()
        loop.ask(before, norm)
    return loop


def skipped(folder: Path) -> Loop:
    """Behind a step that a scaler leaves out nothing of an earlier one is given."""
    loop = Loop(folder)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(STEPS):
        loop.optimizer.zero_grad()
        loss = loop.loss(step)
        scaler.scale(loss * float("inf") if step == 2 else loss).backward()
        norm = loop.norm()
        scaler.step(loop.optimizer)
        scaler.update()
        if step == 2:
            reduced, _ = loop.monitor.generate_wgrad_metrics()
            last = next((float(row["norm"]) for name, row in reduced.items() if "0.weight" in name), None)
            assert last is None or not last < float("inf")
        else:
            loop.ask(norm, loop.norm())
    return loop


def in_a_closure(folder: Path) -> Loop:
    loop = Loop(folder)
    norms: list[float] = []

    def closure(step: int) -> torch.Tensor:
        loop.optimizer.zero_grad()
        loss = loop.loss(step)
        loss.backward()
        norms.append(loop.norm())
        return loss

    for step in range(STEPS):
        loop.optimizer.step(lambda step=step: closure(step))  # type: ignore[misc]
        loop.ask(norms[-1], norms[-1])
    return loop


def recomputed(folder: Path) -> Loop:
    loop = Loop(folder)
    for step in range(STEPS):
        loop.optimizer.zero_grad()
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(step), requires_grad=True)
        checkpoint(loop.model, x, use_reentrant=False).square().mean().backward()  # type: ignore[union-attr]
        norm = loop.norm()
        loop.optimizer.step()
        loop.ask(norm, norm)
    return loop


def every_other_step(folder: Path) -> Loop:
    """Steps that are not monitored have no numbers, and not those of the step before."""
    loop = Loop(folder, config={"step_interval": 2})
    for step in range(STEPS):
        loop.optimizer.zero_grad()
        loop.loss(step).backward()
        norm = loop.norm()
        loop.optimizer.step()
        if step % 2 == 0:
            loop.ask(norm, norm)
        else:
            tables = loop.monitor.generate_wgrad_metrics()
            assert all("0.weight" not in name for table in tables for name in table)
    return loop


LOOPS: dict[str, Run] = {
    # https://github.com/Lightning-AI/pytorch-lightning/issues/272: norms are always 0
    "zeroed in the step": zeroed_in_the_step,
    # https://github.com/huggingface/trl/issues/3961: they are 0 behind each part
    "zeroed behind each part": zeroed_behind_each_part,
    # https://github.com/emited/VariationalRecurrentNeuralNetwork/issues/3: read behind the step
    "asked behind the schedule": asked_behind_the_schedule,
    # https://github.com/radixark/miles/pull/2132: before clipping, or behind it
    "clipped": clipped,
    # https://github.com/allenai/open-instruct/pull/1540: at the end of what is accumulated
    "accumulated": accumulated,
    # https://github.com/Lightning-AI/pytorch-lightning/issues/272: a validation clears them
    "validated between": validated_between,
    # many: averages of weights behind the step
    "averaged behind": averaged_behind,
    # https://github.com/HorizonRobotics/alf/pull/1672: norms jump with the scale
    "scaled": scaled,
    # https://github.com/pytorch/pytorch/issues/152279: nobody says that the step was skipped
    "skipped": skipped,
    # many: the passes are in the closure of the step
    "in a closure": in_a_closure,
    # many: passes that run again
    "recomputed": recomputed,
    # https://github.com/lightly-ai/lightly-train/pull/811: every so many steps
    "every other step": every_other_step,
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_asked_for_is_of_the_step_that_it_is_asked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    loop = LOOPS[name](tmp_path)
    loop.monitor.stop()
    assert loop.asked

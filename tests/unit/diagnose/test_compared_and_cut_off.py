"""Losses of two tensors that are nearly the same, numbers that are rounded to whole ones, and elements at a limit."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from bugs.kernels.device import Device
from bugs.kernels.faults import Fault
from torch import Tensor, nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict

_WIDTH = 24


def _rand(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _beside_teacher(loss: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Training:
    """A student that begins next to its teacher."""
    teacher = nn.Sequential(nn.Linear(_WIDTH, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16)).to(dtype)
    student = copy.deepcopy(teacher)
    teacher.requires_grad_(False)
    with torch.no_grad():
        for weight in student.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    optimizer = torch.optim.AdamW(student.parameters(), 1e-4)

    def step(number: int) -> None:
        batch = _rand(number, 32, _WIDTH).to(dtype)
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(batch)
        loss(student(batch).float(), wanted.float()).backward()
        optimizer.step()

    return nn.ModuleDict({"student": student, "teacher": teacher}), step


def _entropy(reduction: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda mine, wanted: F.kl_div(mine.log_softmax(-1), wanted.softmax(-1), reduction=reduction).sum()


def _entropy_of_logarithms(mine: Tensor, wanted: Tensor) -> Tensor:
    return F.kl_div(mine.log_softmax(-1), wanted.log_softmax(-1), reduction="batchmean", log_target=True)


def _huber(mine: Tensor, wanted: Tensor) -> Tensor:
    return F.huber_loss(mine, wanted, delta=0.01)


class _Rounded(torch.autograd.Function):
    """Its gradient goes past the rounding."""

    @staticmethod
    def forward(_context: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(_context: Any, arriving: Tensor) -> Tensor:  # type: ignore[override]
        return arriving


class _OfFourBits(nn.Linear):
    """A layer whose weights, by the largest of their row, and whose arguments are whole numbers of a step."""

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.abs().amax(1, keepdim=True) / 7
        weight = _Rounded.apply((self.weight / scale).clamp(-7, 7)) * scale
        return F.linear(_Rounded.apply((x / 0.05).clamp(-127, 127)) * 0.05, weight, self.bias)


def _of_four_bits(autocast: bool) -> Training:
    model = nn.Sequential(_OfFourBits(_WIDTH, 48), nn.ReLU(), _OfFourBits(48, 48), nn.ReLU(), _OfFourBits(48, 6))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)

    def step(number: int) -> None:
        optimizer.zero_grad()
        labels = torch.arange(32) % 6
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            scores = model(_rand(number, 32, _WIDTH))
        F.cross_entropy(scores.float(), labels).backward()
        optimizer.step()

    return model, step


def _verdict(folder: Path, build: Callable[[], Training], device: str, fault: Fault | None = None) -> Verdict:
    with Device(device, fault):
        candidate = record_training(folder / "candidate", build, steps=2)
    return compare_runs(candidate, record_training(folder / "reference", build, steps=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", ["tiles", "splits", "fast"])
@pytest.mark.parametrize(
    "loss",
    [_entropy("batchmean"), _entropy("sum"), _entropy("none"), _entropy_of_logarithms, _huber],
    ids=["by-batch", "sum", "one-by-one", "logarithms", "huber"],
)
def test_what_is_left_of_two_tensors_is_called_different_by_no_device(
    tmp_path: Path, loss: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype, device: str
) -> None:
    verdict = _verdict(tmp_path, lambda: _beside_teacher(loss, dtype), device)
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize(("autocast", "device"), [(False, "fast"), (True, "halves"), (True, "fast"), (False, "tiles")])
def test_whole_numbers_and_limits_are_called_different_by_no_device(
    tmp_path: Path, autocast: bool, device: str
) -> None:
    verdict = _verdict(tmp_path, lambda: _of_four_bits(autocast), device)
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize(
    ("build", "operator", "call"),
    [
        (lambda: _beside_teacher(_huber, torch.float32), "huber_loss_backward", "Functional.huber_loss.0.backward"),
        (lambda: _of_four_bits(False), "round", "Torch.round.0.forward"),
        (lambda: _beside_teacher(_entropy("sum"), torch.float32), "xlogy", "Functional.kl_div.0.forward"),
    ],
    ids=["huber", "round", "entropy"],
)
def test_a_wrong_kernel_of_these_is_named(
    tmp_path: Path, build: Callable[[], Training], operator: str, call: str
) -> None:
    verdict = _verdict(tmp_path, build, "tiles", Fault("", operator, "scale", 0.02))
    assert verdict.status == "diverged"
    assert verdict.findings[0].entry == call

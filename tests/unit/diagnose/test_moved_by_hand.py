"""Weights that a program moves itself, where modules alone were recorded: no record says by how much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

Rule = Callable[[Tensor, Tensor, int], Tensor]


def descent(gradient: Tensor, momentum: Tensor, number: int) -> Tensor:
    return momentum.mul_(0.9).add_(gradient)


def signs(gradient: Tensor, momentum: Tensor, number: int) -> Tensor:
    moved = (momentum * 0.9 + gradient * 0.1).sign() * 0.02
    momentum.mul_(0.99).add_(gradient, alpha=0.01)
    return moved


def quotients(gradient: Tensor, momentum: Tensor, number: int) -> Tensor:
    momentum.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
    return gradient / ((momentum / (1.0 - 0.99 ** (number + 1))).sqrt() + 1e-8) * 0.02


def training(dtype: torch.dtype, rule: Rule, rate: float = 0.05) -> Training:
    model = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8)
    )
    model.to(dtype)
    weights = list(model.parameters())
    momenta = [torch.zeros_like(weight) for weight in weights]

    def step(number: int) -> None:
        batch = torch.randn(24, 16, generator=torch.Generator().manual_seed(7 + number)).to(dtype)
        model.zero_grad()
        F.cross_entropy(model(batch).float(), torch.arange(24) % 8).backward()
        with torch.no_grad():
            for weight, momentum in zip(weights, momenta, strict=True):
                assert weight.grad is not None
                weight.sub_(rule(weight.grad, momentum, number), alpha=rate)

    return model, step


RULES = pytest.mark.parametrize("rule", [descent, signs, quotients])


@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
@RULES
def test_another_rate_is_named(tmp_path: Path, rule: Rule, is_swapped: bool) -> None:
    sides = (lambda: training(torch.float32, rule, 0.06)), (lambda: training(torch.float32, rule))
    verdict = compare_behind_device(tmp_path, *(reversed(sides) if is_swapped else sides), steps=3, level="L0")
    assert (verdict.status, verdict.findings[0].kind, verdict.findings[0].step) == ("diverged", "weights", 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@RULES
def test_rounding_is_no_finding(tmp_path: Path, rule: Rule, dtype: torch.dtype) -> None:
    verdict = compare_behind_device(
        tmp_path, lambda: training(dtype, rule), lambda: training(dtype, rule), steps=3, level="L0"
    )
    assert verdict.status == "agree", verdict.findings

"""Gradients that are handed over after each backward pass on one side, and after all of them on the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device, compare_trainings

from msprobe.diagnose.findings import Verdict

PASSES = 3


def _accumulated(handed_over: str, dtype: torch.dtype = torch.float32) -> Training:
    """``handed_over``: after ``each`` pass, or ``once``; ``dropped``: each, of which the last alone counts."""
    model = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 5)).to(dtype)
    parameters = list(model.parameters())
    kept = [torch.zeros_like(parameter) for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def hand_over(is_first: bool) -> None:
        for total, parameter in zip(kept, parameters, strict=True):
            assert parameter.grad is not None
            if is_first or handed_over == "dropped":
                total.zero_()
            total.add_(parameter.grad)
            parameter.grad = None

    def step(number: int) -> None:
        for micro in range(PASSES):
            generator = torch.Generator().manual_seed(10 * number + micro)
            rows = torch.randn(6, 12, generator=generator).to(dtype)
            F.cross_entropy(model(rows).float(), torch.arange(6) % 5).backward()
            if handed_over != "once" or micro == PASSES - 1:
                hand_over(is_first=micro == 0 or handed_over == "once")
        for total, parameter in zip(kept, parameters, strict=True):
            parameter.grad = total.clone()
        optimizer.step()

    return model, step


@pytest.mark.parametrize(
    ("compare", "dtype"),
    [(compare_trainings, torch.float32), (compare_behind_device, torch.bfloat16)],
    ids=["float32", "bfloat16-device"],
)
@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
def test_each_pass_or_all_together_is_one_sum(
    tmp_path: Path, compare: Callable[..., Verdict], is_swapped: bool, dtype: torch.dtype
) -> None:
    sides = [lambda: _accumulated("each", dtype), lambda: _accumulated("once", dtype)]
    verdict = compare(tmp_path, *(sides[::-1] if is_swapped else sides))
    assert verdict.status in ("agree", "harmless"), verdict.findings


def test_a_pass_that_is_dropped_differs_where_the_sum_is_taken(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, lambda: _accumulated("dropped"), lambda: _accumulated("once"))
    assert verdict.status == "diverged"

"""Memory that a program keeps and fills anew in each step, where one side does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

BOTH = pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "bfloat16"])


def training(precision: str, fills: bool = True) -> Training:
    """Adds up the gradients of two micro-batches in one buffer; ``fills``: with zeros before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(30, 24), nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30))
    model.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.05)
    buffer = torch.zeros(sum(weight.numel() for weight in weights))

    def flat() -> Tensor:
        return torch.cat([weight.grad.float().flatten() for weight in weights if weight.grad is not None])

    def step(number: int) -> None:
        if fills:
            buffer.zero_()
        for micro in range(2):
            generator = torch.Generator().manual_seed(10 * number + micro)
            tokens = torch.randint(0, 30, (6, 10), generator=generator)
            model.zero_grad()
            F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
            buffer.add_(flat())
        sizes = [weight.numel() for weight in weights]
        for weight, part in zip(weights, buffer.split(sizes), strict=True):
            weight.grad = (part / 2).view_as(weight).to(weight.dtype)
        optimizer.step()

    return model, step


def verdict_of(folder: Path, precision: str, is_swapped: bool = False, **wrong: Any) -> Any:
    sides = (lambda: training(precision, **wrong)), (lambda: training(precision))
    return compare_behind_device(folder, *(reversed(sides) if is_swapped else sides), steps=2)


@PRECISIONS
def test_the_same_program_agrees(tmp_path: Path, precision: str) -> None:
    verdict = verdict_of(tmp_path, precision)
    assert verdict.status == "agree", verdict.findings


@BOTH
@PRECISIONS
def test_memory_that_one_side_alone_fills(tmp_path: Path, precision: str, is_swapped: bool) -> None:
    """In the first step it is zero anyway."""
    verdict = verdict_of(tmp_path, precision, is_swapped, fills=False)
    first = verdict.findings[0]
    assert verdict.status == "diverged"
    assert first.kind in ("structure", "mutation")
    assert (first.where, first.step) == ("Tensor.zero_.0.forward", 1), verdict.findings

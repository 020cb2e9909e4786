"""Weights that one side alone moves: a copy that is not refreshed, or a parameter that is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

BOTH = pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
LEVELS = pytest.mark.parametrize("level", ["L0", "mix"])
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "bfloat16"])


def training(precision: str, left_out: tuple[int, ...] = (), rate: float = 1e-3) -> Training:
    """Steps with a copy in single precision, which an optimizer moves; ``left_out``: parameters that do not get it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(30, 24), nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30))
    model.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    weights = list(model.parameters())
    copies = [nn.Parameter(weight.detach().float().clone()) for weight in weights]
    optimizer = torch.optim.AdamW(copies, lr=rate)

    def step(number: int) -> None:
        tokens = torch.randint(0, 30, (6, 10), generator=torch.Generator().manual_seed(number))
        logits = model(tokens).float()
        model.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
        for copy, weight in zip(copies, weights, strict=True):
            assert weight.grad is not None
            copy.grad = weight.grad.float()
        optimizer.step()
        with torch.no_grad():
            for place, (copy, weight) in enumerate(zip(copies, weights, strict=True)):
                if place not in left_out:
                    weight.copy_(copy)

    return model, step


def verdict_of(folder: Path, precision: str, level: str, is_swapped: bool = False, **wrong: Any) -> Any:
    sides = (lambda: training(precision, **wrong)), (lambda: training(precision))
    return compare_behind_device(folder, *(reversed(sides) if is_swapped else sides), steps=2, level=level)


@LEVELS
@PRECISIONS
def test_the_same_program_agrees(tmp_path: Path, precision: str, level: str) -> None:
    verdict = verdict_of(tmp_path, precision, level)
    assert verdict.status == "agree", verdict.findings


@BOTH
@LEVELS
@PRECISIONS
def test_a_weight_that_one_side_leaves_as_it_is(tmp_path: Path, precision: str, level: str, is_swapped: bool) -> None:
    verdict = verdict_of(tmp_path, precision, level, is_swapped, left_out=(1,))
    assert verdict.status == "diverged", verdict.findings
    if level == "L0":
        first = verdict.findings[0]
        assert (first.kind, first.where, first.step) == ("weights", "1.weight", 1), verdict.findings


@PRECISIONS
def test_weights_that_are_moved_on_neither_side(tmp_path: Path, precision: str) -> None:
    """A rate of which nothing comes in the type of the weights is no stale copy."""
    verdict = compare_behind_device(
        tmp_path, lambda: training(precision, rate=1e-12), lambda: training(precision, rate=1e-12), steps=2, level="L0"
    )
    assert verdict.status == "agree", verdict.findings

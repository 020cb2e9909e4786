"""Numbers that a program takes out of tensors, and computes with: they differ behind kernels, and are no settings."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

PRECISIONS = pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])


def norm_of_all(grads: list[Tensor]) -> float:
    return float(sum(grad.float().pow(2).sum() for grad in grads).sqrt())  # type: ignore[union-attr]


def norm_of_norms(grads: list[Tensor]) -> float:
    return math.sqrt(sum(grad.float().norm().item() ** 2 for grad in grads))


def training(
    precision: str, norm: Callable[[list[Tensor]], float] = norm_of_all, most: float = 0.3, sharpness: float = 0.0
) -> Training:
    """Clips by a norm that it takes out of tensors; ``sharpness``: the loss is divided by the size of the logits, to
    this power, as a number.
    """
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model = nn.Sequential(nn.Embedding(30, 24), nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30))
    model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        tokens = torch.randint(0, 30, (6, 10), generator=torch.Generator().manual_seed(number))
        with torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext():
            logits = model(tokens).float()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten())
        if sharpness:
            loss = loss / logits.detach().square().mean().item() ** sharpness
        optimizer.zero_grad()
        loss.backward()
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
        share = min(1.0, most / (norm(grads) + 1e-6))
        for grad in grads:
            grad.mul_(share)
        optimizer.step()

    return model, step


def verdict_of(folder: Path, precision: str, same: dict[str, Any], **wrong: Any) -> Any:
    return compare_behind_device(
        folder, lambda: training(precision, **{**same, **wrong}), lambda: training(precision, **same), steps=2
    )


@PRECISIONS
@pytest.mark.parametrize("same", [{}, {"norm": norm_of_norms}, {"sharpness": 0.5}], ids=["all", "norms", "loss"])
def test_the_same_program_agrees(tmp_path: Path, precision: str, same: dict[str, Any]) -> None:
    verdict = verdict_of(tmp_path, precision, same)
    assert verdict.status == "agree", verdict.findings


@PRECISIONS
@pytest.mark.parametrize("same", [{}, {"norm": norm_of_norms}], ids=["all", "norms"])
def test_another_coefficient_is_an_argument(tmp_path: Path, precision: str, same: dict[str, Any]) -> None:
    verdict = verdict_of(tmp_path, precision, same, most=0.5)
    first = verdict.findings[0]
    assert (verdict.status, first.kind, first.entry) == ("diverged", "argument", "Tensor.mul_.0.forward")


@PRECISIONS
def test_a_number_of_more_than_what_was_taken_is_an_argument(tmp_path: Path, precision: str) -> None:
    """A third of the logarithm further: no function of what was taken makes it so large."""
    verdict = verdict_of(tmp_path, precision, {"sharpness": 0.5}, sharpness=0.7)
    first = verdict.findings[0]
    assert verdict.status == "diverged"
    assert (first.kind, first.entry) == ("argument", "Tensor.__truediv__.0.forward"), verdict.findings

"""Gradients of which a norm's backward pass takes off all but rounding: a loss that asks for little but the size of
what the norm gave, which is always the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

WIDTH = 24
NORMS: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: nn.LayerNorm(WIDTH),
    "batch": lambda: nn.BatchNorm1d(WIDTH),
    "group": lambda: nn.GroupNorm(4, WIDTH),
    **({"root_mean_square": lambda: nn.RMSNorm(WIDTH)} if hasattr(nn, "RMSNorm") else {}),
}
LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "size": lambda given: given.square().mean(),
    "of ones": lambda given: F.mse_loss(given, torch.ones_like(given)),
    "sum": lambda given: given.sum() * 0.1,
}


def training(norm: str, loss: str, dtype: torch.dtype, factor: float = 1.0) -> Callable[[], Training]:
    """``factor``: of the gradient that arrives at the norm, unseen by every call."""

    def build() -> Training:
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), NORMS[norm]()).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(number: int) -> None:
            inputs = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(number)).to(dtype)
            given = model(inputs).float()
            if factor != 1.0:
                given.register_hook(lambda gradient: gradient * factor)
            LOSSES[loss](given).backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, step

    return build


@pytest.mark.parametrize("level", ["mix", "L0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", NORMS)
def test_what_is_left_of_them_is_rounding(tmp_path: Path, norm: str, loss: str, dtype: Any, level: str) -> None:
    ours = training(norm, loss, dtype)
    verdict = compare_behind_device(tmp_path, ours, ours, level=level)
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize("norm", NORMS)
def test_what_arrives_otherwise_is_named_all_the_same(tmp_path: Path, norm: str) -> None:
    wrong, ours = (training(norm, "size", torch.float32, factor) for factor in (1.05, 1.0))
    verdict = compare_behind_device(tmp_path, wrong, ours)
    assert verdict.status != "agree"

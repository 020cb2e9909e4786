"""What one side does to gradients, and takes back before anything uses them, behind other kernels as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device, compare_trainings

from msprobe.diagnose.findings import Verdict

SCALE = 1024.0
PAIRS = pytest.mark.parametrize(
    ("compare", "dtype"),
    [
        (compare_trainings, torch.float32),
        (compare_behind_device, torch.float32),
        (compare_behind_device, torch.bfloat16),
    ],
    ids=["float32", "float32-device", "bfloat16-device"],
)


def _clipped(written: str, dtype: torch.dtype) -> Training:
    """``written``: ``plain``, ``scaled`` (the loss, and gradients divided again), ``clipped-scaled`` (divided behind
    the clipping), ``halves`` (gradients of half of the loss are doubled before they are added up), ``half`` (not so).
    """
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30)).to(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step(number: int) -> None:
        rows = torch.randn(40, 24, generator=torch.Generator().manual_seed(number)).to(dtype)
        loss = F.cross_entropy(model(rows).float(), torch.arange(40) % 30)
        factor = SCALE if "scaled" in written else 0.5 if written in ("halves", "half") else 1.0
        (loss * factor).backward()
        if written == "clipped-scaled":
            nn.utils.clip_grad_norm_(parameters, 0.1)
        with torch.no_grad():
            for parameter in parameters if written in ("scaled", "clipped-scaled", "halves") else ():
                assert parameter.grad is not None
                parameter.grad.mul_(1.0 / factor)
        if written != "clipped-scaled":
            nn.utils.clip_grad_norm_(parameters, 0.1)
        optimizer.step()

    return model, step


@PAIRS
@pytest.mark.parametrize("written", ["scaled", "halves"])
def test_a_factor_that_is_taken_back_before_clipping_is_harmless(
    tmp_path: Path, compare: Callable[..., Verdict], dtype: torch.dtype, written: str
) -> None:
    verdict = compare(tmp_path, lambda: _clipped(written, dtype), lambda: _clipped("plain", dtype))
    assert verdict.status in ("agree", "harmless"), verdict.findings


@PAIRS
@pytest.mark.parametrize("written", ["clipped-scaled", "half"])
def test_a_factor_that_clipping_sees_is_no_harmless_one(
    tmp_path: Path, compare: Callable[..., Verdict], dtype: torch.dtype, written: str
) -> None:
    verdict = compare(tmp_path, lambda: _clipped(written, dtype), lambda: _clipped("plain", dtype))
    assert verdict.status == "diverged"


def _clipped_by_hand(is_whole: bool, dtype: torch.dtype) -> Training:
    """Gradients that are clipped by the norm of all, or of a part of them, as a rank that has that part may do it."""
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        rows = torch.randn(40, 24, generator=torch.Generator().manual_seed(number)).to(dtype)
        F.cross_entropy(model(rows).float(), torch.arange(40) % 30).backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        square = sum(gradient.float().square().sum() for gradient in gradients[:4])
        if is_whole:
            square = square + sum(gradient.float().square().sum() for gradient in gradients[4:])
        for gradient in gradients:
            gradient.mul_(0.1 / torch.as_tensor(square).sqrt())
        optimizer.step()

    return model, step


@PAIRS
@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
def test_clipping_by_the_norm_of_a_part_is_no_harmless_difference(
    tmp_path: Path, compare: Callable[..., Verdict], dtype: torch.dtype, is_swapped: bool
) -> None:
    sides = [lambda: _clipped_by_hand(False, dtype), lambda: _clipped_by_hand(True, dtype)]
    verdict = compare(tmp_path, *(sides[::-1] if is_swapped else sides))
    assert verdict.status == "diverged", verdict.findings


@PAIRS
def test_clipping_by_the_norm_of_all_agrees(
    tmp_path: Path, compare: Callable[..., Verdict], dtype: torch.dtype
) -> None:
    sides = [lambda: _clipped_by_hand(True, dtype)] * 2
    assert compare(tmp_path, *sides).status == "agree"

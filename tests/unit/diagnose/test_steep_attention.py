"""Attention whose scores are large: what comes in is apart by a unit, and what it gives by many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from bugs.kernels.device import Device
from bugs.kernels.faults import Fault
from torch import nn
from unit.diagnose.real_pairs import Training, compare_behind_device, record_training

from msprobe.diagnose import compare_runs

_WIDTH, _HEADS = 64, 4


class _Attention(nn.Module):
    """Scores have a standard deviation of a third times ``steepness``."""

    def __init__(self, steepness: float) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        with torch.no_grad():
            self.q.weight.mul_(steepness)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(mixed.transpose(1, 2).flatten(2))


def _training(steepness: float, dtype: torch.dtype) -> Callable[[], Training]:
    def build() -> Training:
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.LayerNorm(_WIDTH), _Attention(steepness)]
        model = nn.Sequential(*layers, nn.Linear(_WIDTH, 10)).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        batch = torch.randn(4, 16, _WIDTH, dtype=dtype)

        def step(_number: int) -> Any:
            optimizer.zero_grad()
            model(batch).float().square().mean().backward()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("steepness", [30.0, 100.0])
def test_steep_attention_on_a_different_device_agrees(tmp_path: Path, steepness: float, dtype: torch.dtype) -> None:
    build = _training(steepness, dtype)
    assert compare_behind_device(tmp_path, build, build).status == "agree"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_steep_attention_that_is_too_large_is_named(tmp_path: Path, dtype: torch.dtype) -> None:
    build = _training(30.0, dtype)
    fault = Fault("", "_scaled_dot_product_flash_attention_for_cpu", "scale", 0.1, only=0)
    with Device("tiles", fault):
        wrong = record_training(tmp_path / "candidate", build)
    verdict = compare_runs(wrong, record_training(tmp_path / "reference", build))
    assert verdict.status == "diverged"
    assert verdict.findings[0].entry == "Functional.scaled_dot_product_attention.0.forward"

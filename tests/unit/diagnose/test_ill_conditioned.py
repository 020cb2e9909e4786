"""Calls that make much of little: what two healthy devices round apart comes out many times as large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from bugs.kernels.device import Device
from torch import nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs

_WIDTH = 32


class _Between(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.function(self.first(x)))


def _inverse(y: torch.Tensor) -> torch.Tensor:
    """Of a matrix that is nearly singular."""
    factor = y[..., :8]
    matrix = factor.transpose(-1, -2) @ factor + 0.05 * torch.eye(8)
    return torch.cat([torch.linalg.inv(matrix) @ y[:, :8, 8:16], y[:, :8, 8:]], dim=-1)


def _norm_beside_a_mean(y: torch.Tensor) -> torch.Tensor:
    """The mean of a row is fifty times its deviation."""
    return F.layer_norm(5.0 + 0.1 * y, (_WIDTH,))


def _logarithm(y: torch.Tensor) -> torch.Tensor:
    """Of probabilities of which some are next to nothing."""
    return torch.log((8.0 * y).softmax(-1) + 1e-8)


def _arc(y: torch.Tensor) -> torch.Tensor:
    """Of cosines next to 1."""
    return torch.acos(torch.tanh(3.0 * y).clamp(-0.999, 0.999))


def _training(function: Callable[[Any], Any], dtype: torch.dtype) -> Callable[[], Training]:
    def build() -> Training:
        layers = nn.Linear(_WIDTH, _WIDTH), _Between(function), nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, 8)
        model = nn.Sequential(*layers).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        batch = torch.randn(4, 16, _WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)

        def step(_number: int) -> Any:
            optimizer.zero_grad()
            model(batch).float().square().mean().backward()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize(
    ("function", "dtype", "device"),
    [
        (_inverse, torch.float32, "tiles"),
        (_inverse, torch.float32, "splits"),
        (_norm_beside_a_mean, torch.float32, "splits"),
        (_norm_beside_a_mean, torch.float32, "wide"),
        (_logarithm, torch.bfloat16, "halves"),
        (_arc, torch.float32, "fast"),
    ],
)
def test_what_is_made_much_of_is_called_different_by_no_device(
    tmp_path: Path, function: Callable[[Any], Any], dtype: torch.dtype, device: str
) -> None:
    build = _training(function, dtype)
    with Device(device):
        candidate = record_training(tmp_path / "candidate", build)
    verdict = compare_runs(candidate, record_training(tmp_path / "reference", build))
    assert verdict.status in ("agree", "harmless")

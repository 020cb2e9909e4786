"""A norm, a root or an activation that is a little too large, behind much that other kernels have made different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from bugs.kernels.device import Device
from bugs.kernels.faults import Fault
from torch import nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs

_WIDTH = 48


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.normed = nn.LayerNorm(_WIDTH), nn.BatchNorm1d(_WIDTH)
        self.wide, self.thin = nn.Linear(_WIDTH, 96), nn.Linear(96, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.thin(F.relu(self.wide(self.norm(x))))
        return x + (self.normed(mixed).abs() + 0.1).sqrt() * torch.softmax(3 * x, -1)


def _build() -> Training:
    model = nn.Sequential(*(_Block() for _ in range(8)), nn.Linear(_WIDTH, 10)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    batch, labels = torch.randn(64, _WIDTH, dtype=torch.bfloat16), torch.randint(0, 10, (64,))

    def step(_number: int) -> Any:
        optimizer.zero_grad()
        F.cross_entropy(model(batch).float(), labels).backward()
        optimizer.step()

    return model, step


@pytest.mark.parametrize("variant", ["tiles", "halves", "fast"])
def test_a_deep_network_on_a_different_device_agrees(tmp_path: Path, variant: str) -> None:
    with Device(variant):
        other = record_training(tmp_path / "candidate", _build)
    assert compare_runs(other, record_training(tmp_path / "reference", _build)).status == "agree"


FAULTS: list[tuple[str, float, str]] = [
    ("native_layer_norm", 0.01, "Functional.layer_norm.6.forward"),
    ("native_batch_norm", 0.02, "Functional.batch_norm.6.forward"),
    ("_softmax", 0.02, "Torch.softmax.6.forward"),
    ("relu", 0.03, "Functional.relu.6.forward"),
    ("sqrt", 0.04, "Tensor.sqrt.6.forward"),
]


@pytest.mark.parametrize(("operator", "size", "entry"), FAULTS)
def test_what_is_a_little_too_large_is_named(tmp_path: Path, operator: str, size: float, entry: str) -> None:
    fault = Fault("", operator, "scale", size, only=6)
    with Device("halves", fault):
        wrong = record_training(tmp_path / "candidate", _build)
    verdict = compare_runs(wrong, record_training(tmp_path / "reference", _build))
    assert (verdict.status, verdict.findings[0].entry) == ("diverged", entry)

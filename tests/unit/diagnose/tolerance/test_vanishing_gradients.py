"""Gradients that are zero but for rounding accuse nobody: of a bias before a batch norm, of keys' bias in attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings


class Attending(nn.Module):
    """Attention with biases, and a layer before a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.last = (nn.Linear(64, 64) for _ in range(4))
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> Any:
        chances = torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2) / 8, dim=-1)
        return self.norm(self.last(torch.relu((chances @ self.v(x) + x).reshape(-1, 64))))


def training(threads: int, optimizer: type[torch.optim.Optimizer]) -> Any:
    def build() -> Training:
        model = Attending()
        steps: Any = optimizer
        updates = steps(model.parameters(), lr=1e-3)

        def step(number: int) -> None:
            generator = torch.Generator().manual_seed(number)
            x, y = torch.randn(16, 64, 64, generator=generator), torch.randn(1024, 64, generator=generator)
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            updates.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            updates.step()
            torch.set_num_threads(before)

        return model, step

    return build


@pytest.mark.parametrize(
    "more", [{}, {"level": "L0"}, {"level": "L1"}, {"mode": "digest"}, {"mode": "tensor"}], ids=str
)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_another_number_of_threads_diverges_nowhere(
    tmp_path: Path, optimizer: type[torch.optim.Optimizer], more: dict[str, Any]
) -> None:
    verdict = compare_trainings(tmp_path, training(2, optimizer), training(1, optimizer), steps=2, **more)
    assert verdict.status in ("agree", "harmless"), verdict.findings[0].message

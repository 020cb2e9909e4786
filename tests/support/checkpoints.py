"""Checkpoints of a small training, and two of them compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe.environment.checkpoint.comparison import CheckpointComparison, CheckpointRequest, compare_checkpoints

State = dict[str, Any]


def trained_states() -> tuple[State, State, State, State]:
    """Weights, optimizer, schedule and averages of a training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        schedule.step()
    average = {name: 0.9 * one for name, one in model.state_dict().items()}
    return dict(model.state_dict()), optimizer.state_dict(), schedule.state_dict(), average


def compared(first: Path, second: Path, **options: Any) -> CheckpointComparison:
    """Two files or folders."""
    return compare_checkpoints(CheckpointRequest(str(first), str(second), **options))


def states_compared(folder: Path, first: Any, second: Any) -> CheckpointComparison:
    """What two programs have in memory, by way of files of torch."""
    torch.save(first, folder / "a.pt")
    torch.save(second, folder / "b.pt")
    return compared(folder / "a.pt", folder / "b.pt")

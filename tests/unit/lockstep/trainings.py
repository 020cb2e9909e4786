"""Trainings that are recorded, and run in lockstep with what was recorded, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from msprobe.lockstep.verdict import judge_lockstep
from msprobe.pytorch import PrecisionDebugger

Bugs = Collection[str]


class Block(nn.Module):
    """Calls of many sorts; ``bugs`` says which of them are wrong."""

    def __init__(self, width: int, bugs: Bugs) -> None:
        super().__init__()
        self.bugs = bugs
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual block with writes in place and views."""
        h = self.up(self.norm(x))
        first, second = h.chunk(2, dim=-1)
        gate = torch.sigmoid(first * 1.02 if "gate" in self.bugs else first)
        second = second.clone()
        second.mul_(gate)
        second[:, :1].add_(0.1 if "write" in self.bugs else 0.0)
        h = torch.cat([F.gelu(first, approximate="tanh" if "gelu" in self.bugs else "none"), second], dim=-1)
        h = F.relu(h.view(-1, h.shape[-1]).transpose(0, 1), inplace=True).transpose(0, 1).view(h.shape)
        return x + wrong_backward(self.down(h)) if "backward" in self.bugs else x + self.down(h)


class _WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 1.1


def wrong_backward(x: torch.Tensor) -> torch.Tensor:
    """``x``; its gradient comes back too large."""
    return _WrongBackward.apply(x)  # type: ignore[no-any-return,no-untyped-call]


class Model(nn.Module):
    """Two blocks; the second in a checkpoint if ``checkpointed``."""

    def __init__(self, bugs: Bugs, checkpointed: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.dropout = dropout
        self.first, self.second = Block(8, bugs), Block(8, bugs)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        x = F.dropout(self.first(x), self.dropout, self.training)
        x = checkpoint(self.second, x, use_reentrant=False) if self.checkpointed else self.second(x)
        return self.head(x)


def train(
    bugs: Bugs = (),
    steps: int = 2,
    passes: int = 1,
    checkpointed: bool = False,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    autocast: bool = False,
    seed: int = 0,
    ends: int | None = None,
) -> None:
    """Train with the debugger there is; ``ends``: the step that it ends before."""
    torch.manual_seed(0)
    model = Model(bugs, checkpointed, dropout).to(dtype)
    batches = torch.randn(steps * passes, 6, 8).to(dtype)
    goals = torch.randint(0, 4, (steps * passes, 6))
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3 if "lr" in bugs else 1e-3)
    number = 0
    for _ in range(steps if ends is None else ends):
        PrecisionDebugger.start(model)
        for _ in range(passes):
            with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
                loss = F.cross_entropy(
                    model(batches[number]).float(), goals[number], label_smoothing=0.1 * ("smooth" in bugs)
                )
            (loss / passes).backward()
            number += 1
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()


def record(run: Callable[[], None], folder: Path, level: str = "mix", optimizer: bool | None = True) -> Path:
    """Record a training that can be run against; its dump."""
    PrecisionDebugger.reset()
    PrecisionDebugger(task="tensor", level=level, dump_path=str(folder), optimizer=optimizer)
    run()
    PrecisionDebugger.reset()
    return folder


def in_lockstep(run: Callable[[], None], reference: Path, folder: Path, **more: Any) -> Any:
    """Run a training in lockstep; the verdict."""
    PrecisionDebugger.reset()
    PrecisionDebugger(task="lockstep", reference=str(reference), verdict="later", dump_path=str(folder), **more)
    run()
    PrecisionDebugger.reset()
    return judge_lockstep(folder, reference)


def entries(verdict: Any) -> set[str]:
    """What the findings that count name."""
    counting = [finding for finding in verdict.findings if not finding.harmless]
    return {name for one in counting for name in (str(one.entry), *one.evidence.get("alike", ()))}

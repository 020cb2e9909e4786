"""What is done otherwise is named although every call differs a little, and called harmless where no effect shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device


class Block(nn.Module):
    """``capped``: values are bounded smoothly before the last layer."""

    def __init__(self, capped: bool, rate: float) -> None:
        super().__init__()
        self.capped, self.rate = capped, rate
        self.up, self.norm, self.down = nn.Linear(16, 48), nn.LayerNorm(48), nn.Linear(48, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(F.gelu(self.up(x)))
        if self.capped:
            y = torch.tanh(y / 20.0) * 20.0
        return x + F.dropout(self.down(y), self.rate)  # type: ignore[no-any-return]


def training(
    prepare: Callable[[nn.Sequential], Any] = lambda model: None,
    capped: bool = True,
    rate: float = 0.0,
    seed: int = 1,
    loss: Callable[[Tensor, Tensor], Tensor] = F.mse_loss,
) -> Training:
    torch.manual_seed(0)
    model = nn.Sequential(Block(True, rate), Block(capped, rate)).bfloat16()
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(seed)

    def step(number: int) -> None:
        batch = torch.randn(12, 16, generator=torch.Generator().manual_seed(7 + number)).bfloat16()
        optimizer.zero_grad()
        loss(model(batch), batch).backward()
        optimizer.step()

    return model, step


def of_another_checkpoint(model: nn.Sequential) -> None:
    with torch.no_grad():
        model[1].down.weight.mul_(1.02)


def scaled_by_hook(model: nn.Sequential) -> None:
    model[0].norm.register_forward_hook(lambda module, given, result: result * 1.05)


@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize(
    ("mistake", "right", "kind", "where"),
    [
        ({"prepare": of_another_checkpoint}, {}, "initial_weights", "1.down.weight"),
        ({"prepare": scaled_by_hook}, {}, "structure", "Tensor.__mul__.0.forward"),
        ({"capped": False}, {}, "structure", "Tensor.__truediv__.1.forward"),
        ({"rate": 0.3, "seed": 2}, {"rate": 0.3}, "computation", "Functional.dropout.0.forward, output.0"),
    ],
    ids=["a weight", "a factor", "calls left out", "random numbers"],
)
def test_it_is_named_first(
    tmp_path: Path, mistake: dict[str, Any], right: dict[str, Any], kind: str, where: str, is_swapped: bool
) -> None:
    sides = (lambda: training(**mistake)), (lambda: training(**right))
    verdict = compare_behind_device(tmp_path, *(reversed(sides) if is_swapped else sides))
    assert verdict.status in ("diverged", "harmless")
    first = verdict.findings[0]
    assert (first.kind, first.where) == (kind, where)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_the_same_program_agrees(tmp_path: Path, rate: float) -> None:
    verdict = compare_behind_device(tmp_path, lambda: training(rate=rate), lambda: training(rate=rate))
    assert verdict.status == "agree", verdict.findings


def test_an_order_that_is_undone_is_no_finding_that_counts(tmp_path: Path) -> None:
    """Rows of the loss in another order, by whole numbers: what comes of it is no more than other kernels make."""
    backwards = torch.arange(12).flip(0)

    def turned(result: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(result[backwards], wanted[backwards])

    def indexed(result: Tensor, wanted: Tensor) -> Tensor:
        rows = torch.arange(12)
        return F.mse_loss(result[rows], wanted[rows])

    verdict = compare_behind_device(tmp_path, lambda: training(loss=turned), lambda: training(loss=indexed))
    assert verdict.status in ("agree", "harmless"), verdict.findings

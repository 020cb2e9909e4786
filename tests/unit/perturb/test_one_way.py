"""Deviations that go one way are a risk, and are named; those of rounding are counted in the last line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.benchmarked import details
from support.coded_texts import mentions
from torch.nn import functional as F

from msprobe.perturb import arrays
from msprobe.perturb.framework import Reactions
from msprobe.perturb.torch import comparing
from msprobe.pytorch import PrecisionDebugger

BF16 = torch.bfloat16


def in_turn(e: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(e[:, :1])
    for place in range(e.shape[1]):
        total = total + e[:, place : place + 1]
    return total


def wrong_in_halves(
    right: Callable[..., torch.Tensor], wrong: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """A kernel that is wrong in bfloat16 alone."""
    return lambda *args: wrong(*args) if args[0].dtype is BF16 else right(*args)


def times(factor: float) -> Callable[..., torch.Tensor]:
    return lambda a, b: (a.float() @ b.float() * factor).to(a.dtype)


def added(share: float) -> Callable[..., torch.Tensor]:
    return lambda a, b: (a.float() @ b.float() + share * (a.float() @ b.float()).square().mean().sqrt()).to(a.dtype)


def one_column(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = a.float() @ b.float()
    found[:, 7] *= 1.05
    return found.to(a.dtype)


def rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = a.float() @ b.float()
    found[8:16] *= 0.95
    return found.to(a.dtype)


def softmax_in_turn(x: torch.Tensor) -> torch.Tensor:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / in_turn(e)


def softmax_in_steps(x: torch.Tensor) -> torch.Tensor:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def in_parts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = a[:, :8] @ b[:8]
    for place in range(8, a.shape[1], 8):
        found = found + a[:, place : place + 8] @ b[place : place + 8]
    return found


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(BF16)


PRODUCT, ROWS = (some(64, 64), some(64, 48)), (some(64, 128),)


@pytest.mark.parametrize("mode", ["improve_precision", "to_cpu"])
@pytest.mark.parametrize(
    ("right", "wrong", "args", "risk"),
    [
        (torch.matmul, times(1.02), PRODUCT, True),
        (torch.matmul, times(0.98), PRODUCT, True),
        (torch.matmul, added(0.02), PRODUCT, True),
        (torch.matmul, one_column, PRODUCT, True),
        (torch.matmul, rows, PRODUCT, True),
        (lambda x: x.softmax(-1), softmax_in_turn, ROWS, True),
        (F.gelu, lambda x: (F.gelu(x.float()) * 1.02).to(x.dtype), ROWS, True),
        (lambda x: x.sum(0), lambda x: (x.float().sum(0) * 1.03).to(x.dtype), ROWS, True),
        (torch.matmul, torch.matmul, PRODUCT, False),
        (torch.matmul, in_parts, PRODUCT, False),
        (lambda x: x.softmax(-1), softmax_in_steps, ROWS, False),
        (lambda x: x.softmax(-1), lambda x: x.softmax(-1), ROWS, False),
    ],
)
def test_what_goes_one_way_is_a_risk_and_what_is_rough_is_none(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    right: Callable[..., torch.Tensor],
    wrong: Callable[..., torch.Tensor],
    args: tuple[torch.Tensor, ...],
    risk: bool,
) -> None:
    class Kernels:
        kernel = staticmethod(wrong_in_halves(right, wrong))

    PrecisionDebugger.reset()
    device = "cpu" if mode == "to_cpu" else "npu"
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode=mode, fuzz_device=device)
    debugger.register_custom_api(Kernels, "kernel")
    try:
        debugger.start()
        Kernels.kernel(*args)
        debugger.stop()
    finally:
        PrecisionDebugger.reset()
    found = [row["verdict"] for row in details(tmp_path) if "kernel" in row["api_name"]]
    said = capsys.readouterr().out
    if risk:
        assert found == ["risk"]
        assert "no precision risk" not in said
    else:
        assert "risk" not in found
        assert mentions(said, "benchmark-without-risk")
        assert bool(mentions(said, "benchmark-rounding")) is bool(found)


@pytest.mark.parametrize(("factor", "goes"), [(1.0, False), (1.02, True), (0.97, True)])
def test_both_frameworks_see_the_same(factor: float, goes: bool) -> None:
    base = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own = (base * factor).to(BF16)
    shifted = base * (1 + 2**-8)
    theirs = comparing.goes_one_way(own, Reactions(base, [shifted], 2.0**-8))
    ours = arrays.goes_one_way(own.float().numpy(), Reactions(base.numpy(), [shifted.numpy()], 2.0**-8))
    assert theirs == ours
    assert bool(ours) is goes
    assert arrays.goes_one_way(np.zeros(0), Reactions(np.zeros(0), [], 2.0**-8)) == ""

"""What rows settle: wrong kernels among kernels that all round otherwise, in half types, too, and reordered weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from unit.diagnose.real_pairs import Training, compare_trainings, record_training

from msprobe.diagnose import compare_runs
from msprobe.report.verdict_file import verdict_bytes

aten = torch.ops.aten


class OtherKernels(TorchDispatchMode):
    """Products in double, rounded once, below the recorder; ``wrong``: what the n-th of them is multiplied by."""

    def __init__(self, wrong: dict[int, float] | None = None) -> None:
        super().__init__()
        self.wrong, self.count = wrong or {}, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (aten.mm.default, aten.addmm.default, aten.bmm.default):
            return func(*args, **(kwargs or {}))
        wide = [one.double() if isinstance(one, torch.Tensor) else one for one in args]
        result = func(*wide, **(kwargs or {})) * self.wrong.get(self.count, 1.0)
        self.count += 1
        return result.to(args[0].dtype)


class Gated(nn.Module):
    """Three residual blocks of a gated layer behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.ups = nn.ModuleList(nn.Linear(64, 128) for _ in range(3))
        self.downs = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            value, gate = up(norm(x)).chunk(2, -1)
            x = x + down(value * torch.sigmoid(gate))
        return x


def _training(
    dtype: torch.dtype = torch.bfloat16,
    kernels: bool = True,
    wrong: dict[int, float] | None = None,
    turned: bool = False,
) -> Callable[[], Training]:
    def build() -> Training:
        model = Gated().to(dtype)
        if turned:
            with torch.no_grad():
                model.downs[1].weight.copy_(model.downs[1].weight.T.clone())

        def step(number: int) -> None:
            x = torch.randn(96, 64, generator=torch.Generator().manual_seed(number)).to(dtype)
            with OtherKernels(wrong) if kernels else torch.enable_grad():
                (model(x).float() - x.float()).square().mean().backward()

        return model, step

    return build


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_kernels_alone_are_no_finding(tmp_path: Path, dtype: torch.dtype) -> None:
    verdict = compare_trainings(tmp_path, _training(dtype), _training(dtype, kernels=False))
    assert verdict.status == "agree"


@pytest.mark.parametrize(("number", "entry"), [(0, "linear.0"), (3, "linear.3"), (5, "linear.5")])
def test_a_wrong_kernel_among_them_is_named_first_in_bfloat16(tmp_path: Path, number: int, entry: str) -> None:
    verdict = compare_trainings(tmp_path, _training(wrong={number: 1.03}), _training(kernels=False))
    assert verdict.status == "diverged"
    first = verdict.findings[0]
    assert (first.kind, first.entry, first.harmless) == ("computation", f"Functional.{entry}.forward", False)
    evidence = json.loads(verdict_bytes(verdict))["findings"][0]["evidence"]
    assert evidence["difference"] == pytest.approx(0.03, rel=0.5)
    assert evidence["difference"] > evidence["explained"]


def test_without_rows_statistics_judge_as_before(tmp_path: Path) -> None:
    sides = [
        record_training(tmp_path / name, _training(torch.float32, **more))
        for name, more in (("candidate", {"wrong": {3: 1.03}}), ("reference", {"kernels": False}))
    ]
    for side in sides:
        for file in side.rglob("dump_rows.bin"):
            file.unlink()
    first = compare_runs(*sides).findings[0]
    assert first.entry == "Functional.linear.3.forward"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_weight_in_another_order_is_a_weight_that_differs(tmp_path: Path, dtype: torch.dtype) -> None:
    verdict = compare_trainings(tmp_path, _training(dtype, False, turned=True), _training(dtype, False))
    first = verdict.findings[0]
    assert verdict.status == "diverged"
    assert (first.kind, first.where) == ("initial_weights", "downs.1.weight")


def test_what_nothing_can_be_said_of_is_counted(tmp_path: Path) -> None:
    other = _training(kernels=False, turned=True)
    verdict = compare_trainings(tmp_path, other, _training(kernels=False))
    assert verdict.summary["not_judged"] > 0
    agreeing = compare_trainings(tmp_path / "same", _training(kernels=False), _training(kernels=False))
    assert "not_judged" not in agreeing.summary


def test_a_second_healthy_run_shows_what_kernels_do(tmp_path: Path) -> None:
    """What a product is off in a healthy run, too, is no finding; a call of a different kind still is."""
    rough = dict.fromkeys(range(100), 1.03)
    healthy, reference = (
        record_training(tmp_path / name, one)
        for name, one in (("healthy", _training(wrong=rough)), ("reference", _training(kernels=False)))
    )
    candidate = record_training(tmp_path / "candidate", _training(wrong=rough))
    assert compare_runs(candidate, reference).status == "diverged"
    assert compare_runs(candidate, reference, noise=healthy).status == "agree"


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1.0, 1e308, 1e-308])
def test_a_file_of_rows_may_hold_anything(tmp_path: Path, number: float) -> None:
    sides = [record_training(tmp_path / name, _training(kernels=False)) for name in ("one", "other")]
    (file,) = sides[0].rglob("dump_rows.bin")
    content = bytearray(file.read_bytes())
    for place in range(512, len(content) - 8, 56):
        content[place : place + 8] = struct.pack("<d", number)
    file.write_bytes(content)
    assert compare_runs(*sides).status in ("agree", "harmless", "diverged")

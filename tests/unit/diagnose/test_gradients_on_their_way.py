"""Gradients that are changed between the calls that give them and the optimizer, while all kernels differ a little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from unit.diagnose.real_pairs import Training, compare_behind_device

PRECISIONS = torch.float32, torch.bfloat16


def network(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 16), nn.Linear(16, 16)).to(dtype)


def batches(dtype: torch.dtype, number: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7 + number)
    return [torch.randn(12, 16, generator=generator).to(dtype) for _ in range(2)]


def training(
    dtype: torch.dtype,
    prepare: Callable[[nn.Module], Any] = lambda model: None,
    before: Callable[[nn.Module, int], Any] = lambda model, batch: None,
    after: Callable[[nn.Module], Any] = lambda model: None,
    clip: bool = True,
    clears: bool = True,
) -> Training:
    """Two micro-batches a step. ``prepare``: what is done to the model; ``before``: in front of the backward pass of a
    micro-batch; ``after``: behind the last; ``clears``: gradients are cleared in front of the first.
    """
    model = network(dtype)
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        if clears:
            optimizer.zero_grad()
        for place, batch in enumerate(batches(dtype, number)):
            loss = (model(batch) - batch).square().mean()
            before(model, place)
            loss.backward()
        after(model)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    return model, step


def cleared_between(model: nn.Module, batch: int) -> None:
    if batch:
        model.zero_grad()


def hooked(times: int) -> Callable[[nn.Module], None]:
    def prepare(model: nn.Module) -> None:
        for _ in range(times):
            model[3].weight.register_hook(lambda gradient: gradient * 0.5)  # type: ignore[index]

    return prepare


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("clip", [True, False], ids=["clipped", "not clipped"])
def test_gradients_that_are_cleared_between_two_passes(tmp_path: Path, dtype: torch.dtype, clip: bool) -> None:
    verdict = compare_behind_device(
        tmp_path, lambda: training(dtype, before=cleared_between, clip=clip), lambda: training(dtype, clip=clip)
    )
    assert verdict.status == "diverged"
    assert verdict.findings[0].kind == "parameter_gradient"
    assert verdict.findings[0].cause == "on_its_way"


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("clip", [True, False], ids=["clipped", "not clipped"])
def test_where_modules_alone_were_recorded(tmp_path: Path, dtype: torch.dtype, clip: bool) -> None:
    asked: dict[str, Any] = {"level": "L0"}
    healthy = compare_behind_device(
        tmp_path / "healthy", lambda: training(dtype, clip=clip), lambda: training(dtype, clip=clip), **asked
    )
    assert healthy.status == "agree", healthy.findings
    cleared = compare_behind_device(
        tmp_path / "cleared",
        lambda: training(dtype, before=cleared_between, clip=clip),
        lambda: training(dtype, clip=clip),
        **asked,
    )
    assert (cleared.status, cleared.findings[0].name) == ("diverged", "gradient-at-optimizer-differs")
    clipped = compare_behind_device(
        tmp_path / "clipped", lambda: training(dtype, clip=clip), lambda: training(dtype, clip=not clip), **asked
    )
    assert (clipped.status, clipped.findings[0].name) == ("diverged", "gradient-at-optimizer-differs")


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_a_hook_that_one_side_registers_twice(tmp_path: Path, dtype: torch.dtype) -> None:
    verdict = compare_behind_device(
        tmp_path, lambda: training(dtype, prepare=hooked(2)), lambda: training(dtype, prepare=hooked(1))
    )
    assert verdict.status == "diverged"
    assert "3.weight" in str(verdict.findings[0].message)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(
    "program",
    [
        {},
        {"clip": False},
        {"prepare": hooked(1)},
        {"after": lambda model: [parameter.grad.div_(2) for parameter in model.parameters()]},
        {"before": cleared_between},
    ],
    ids=["sums", "sums not clipped", "with a hook", "with an average", "cleared on both sides"],
)
def test_healthy_gradients_are_no_finding(tmp_path: Path, dtype: torch.dtype, program: dict[str, Any]) -> None:
    verdict = compare_behind_device(tmp_path, lambda: training(dtype, **program), lambda: training(dtype, **program))
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_where_calls_alone_were_recorded(tmp_path: Path, dtype: torch.dtype) -> None:
    """Of one pass, whose gradients are what calls gave; on one side those of the step before are left."""

    def alone(clears: bool) -> Training:
        model = network(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(number: int) -> None:
            if clears:
                optimizer.zero_grad()
            batch, _ = batches(dtype, number)
            (model(batch) - batch).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 100.0)
            optimizer.step()

        return model, step

    asked: dict[str, Any] = {"level": "L1", "steps": 2}
    healthy = compare_behind_device(tmp_path / "healthy", lambda: alone(True), lambda: alone(True), **asked)
    assert healthy.status == "agree", healthy.findings
    verdict = compare_behind_device(tmp_path / "left", lambda: alone(False), lambda: alone(True), **asked)
    assert (verdict.status, verdict.findings[0].step) == ("diverged", 1)
    assert verdict.findings[0].cause in ("not_cleared", "on_its_way")


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("clip", [True, False], ids=["clipped", "not clipped"])
def test_gradients_of_the_step_before_that_are_left(tmp_path: Path, dtype: torch.dtype, clip: bool) -> None:
    verdict = compare_behind_device(
        tmp_path, lambda: training(dtype, clears=False, clip=clip), lambda: training(dtype, clip=clip), steps=2
    )
    assert verdict.status == "diverged"
    assert (verdict.findings[0].step, verdict.findings[0].cause) == (1, "not_cleared")

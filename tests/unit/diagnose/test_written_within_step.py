"""Weights that calls write to inside of a step, before a pass takes them: averages, perturbations, two optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

PRECISIONS = torch.float32, torch.bfloat16


def rand(dtype: torch.dtype, seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def beside_average(dtype: torch.dtype, share: float = 0.99) -> Training:
    """A second network holds the average of the first, whose biases begin with zero, and gives it a target."""
    online = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)).to(dtype)
    nn.init.zeros_(online[0].bias)  # type: ignore[arg-type]
    average = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.SGD(online.parameters(), lr=0.03)

    def step(number: int) -> None:
        batch = rand(dtype, 7 + number, 16, 12)
        result = online(batch)
        with torch.no_grad():
            for kept, trained in zip(average.parameters(), online.parameters(), strict=True):
                kept.mul_(share).add_(trained, alpha=1.0 - share)
            target = average(batch.flip(1))
        optimizer.zero_grad()
        F.mse_loss(F.normalize(result, dim=1), F.normalize(target, dim=1)).backward()
        optimizer.step()

    return nn.ModuleDict({"online": online, "average": average}), step


def perturbed(dtype: torch.dtype, share: float = 0.3, two_passes: bool = True, clears: bool = True) -> Training:
    """The gradient of weights that lie a little further along that of the first pass (SAM)."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    model.to(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def step(number: int) -> None:
        images = rand(dtype, 7 + number, 8, 3, 6, 6)
        labels = torch.arange(8) % 5

        def loss() -> Tensor:
            result = model(images).float()
            return 0.7 * F.cross_entropy(result, labels) + share * F.cross_entropy(result, labels.flip(0))

        optimizer.zero_grad()
        loss().backward()
        with torch.no_grad():
            size = torch.stack([weight.grad.norm() for weight in parameters]).norm()
            moves = [weight.grad * (0.05 / (size + 1e-12)) for weight in parameters]
            for weight, move in zip(parameters, moves, strict=True):
                weight.add_(move)
        if clears:
            optimizer.zero_grad()
        if two_passes:
            loss().backward()
        with torch.no_grad():
            for weight, move in zip(parameters, moves, strict=True):
                weight.sub_(move)
        optimizer.step()

    return model, step


def adversaries(dtype: torch.dtype, clears: bool = True) -> Training:
    """Two networks with an optimizer each; the second step of a round takes what the first has made of its weights."""
    maker = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 24), nn.Tanh()).to(dtype)
    judge = nn.Sequential(nn.Linear(24, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)).to(dtype)
    of_maker = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def step(number: int) -> None:
        real, noise = rand(dtype, 7 + number, 16, 24).tanh(), rand(dtype, 70 + number, 16, 8)
        ones, zeros = torch.ones(16, 1).to(dtype), torch.zeros(16, 1).to(dtype)
        of_judge.zero_grad()
        made = F.binary_cross_entropy_with_logits(judge(maker(noise).detach()), zeros)
        (made + F.binary_cross_entropy_with_logits(judge(real), ones)).backward()
        of_judge.step()
        if clears:
            of_maker.zero_grad()
        F.binary_cross_entropy_with_logits(judge(maker(noise)), ones).backward()
        of_maker.step()

    return nn.ModuleDict({"maker": maker, "judge": judge}), step


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("build", [beside_average, perturbed, adversaries])
def test_healthy_weights_are_no_finding(
    tmp_path: Path, dtype: torch.dtype, build: Callable[[torch.dtype], Training]
) -> None:
    verdict = compare_behind_device(tmp_path, lambda: build(dtype), lambda: build(dtype), steps=3)
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_a_factor_of_the_second_pass(tmp_path: Path, dtype: torch.dtype, is_swapped: bool) -> None:
    sides = (lambda: perturbed(dtype, share=0.7)), (lambda: perturbed(dtype))
    verdict = compare_behind_device(tmp_path, *(reversed(sides) if is_swapped else sides))
    assert verdict.status == "diverged"
    assert (verdict.findings[0].kind, verdict.findings[0].where) == ("argument", "Tensor.__rmul__.1.forward, input.1")


@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_a_pass_that_one_side_leaves_out(tmp_path: Path, dtype: torch.dtype, is_swapped: bool) -> None:
    sides = (lambda: perturbed(dtype, two_passes=False, clears=False)), (lambda: perturbed(dtype))
    verdict = compare_behind_device(tmp_path, *(reversed(sides) if is_swapped else sides))
    assert verdict.status in ("diverged", "harmless")
    assert (verdict.findings[0].kind, verdict.findings[0].where) == ("structure", "Functional.conv2d.1.forward")


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_gradients_that_are_not_cleared(tmp_path: Path, dtype: torch.dtype) -> None:
    verdict = compare_behind_device(
        tmp_path, lambda: adversaries(dtype, clears=False), lambda: adversaries(dtype), steps=2
    )
    assert verdict.status == "diverged"
    assert (verdict.findings[0].kind, verdict.findings[0].step) == ("parameter_gradient", 1), verdict.findings


def test_another_share_of_the_average(tmp_path: Path) -> None:
    verdict = compare_behind_device(
        tmp_path, lambda: beside_average(torch.float32, 0.9), lambda: beside_average(torch.float32), steps=2
    )
    assert verdict.status == "diverged"
    assert (verdict.findings[0].kind, verdict.findings[0].where) == ("argument", "Tensor.mul_.0.forward, input.1")

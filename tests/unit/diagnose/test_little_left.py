"""Healthy trainings in which little is left of what calls are given: gradients that what comes behind takes off, what a
mask or a peak leaves, distances of rows, roots of next to nothing, signs, and numbers of float16 next to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bugs.kernels.device import Device
from support.rows_made import apart, row_of
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device, record_training

from msprobe.diagnose import compare_runs
from msprobe.diagnose.measured.boundaries import crossed_steps
from msprobe.diagnose.measured.node import MeasuredResult, Node

WIDTH = 16
Block = Callable[[torch.Tensor], torch.Tensor]


class Own(nn.Module):
    """A module of a program, whose calls have no modules of their own but those that are given."""

    def __init__(self, block: Callable[[Own, torch.Tensor], torch.Tensor], **inside: nn.Module) -> None:
        super().__init__()
        self.block = block
        for name, module in inside.items():
            setattr(self, name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self, x)


def training(
    block: Callable[[], nn.Module],
    loss: Block,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    amount: float = 0.0,
    lr: float = 1e-2,
) -> Callable[[], Training]:
    """``amount``: by how much the gradient that arrives at the model is wrong in half of its elements."""

    def build() -> Training:
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), block())
        steps = optimizer(model.parameters(), lr=lr)

        def step(number: int) -> None:
            given = model(torch.randn(4, 8, WIDTH, generator=torch.Generator().manual_seed(number)))
            if amount:
                given.register_hook(lambda gradient: gradient * (1.0 + amount * (given > 0)))
            loss(given).backward()
            steps.step()
            steps.zero_grad()

        return model, step

    return build


def size(given: torch.Tensor) -> torch.Tensor:
    """Little but the size of what is given."""
    return given.square().mean()


def centred(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)


def gated(own: Own, x: torch.Tensor) -> torch.Tensor:
    """A gate for each row, whose size a norm takes off again."""
    return F.layer_norm(x * torch.sigmoid(own.gate(x)), (WIDTH,))


TAKEN_OFF: dict[str, Callable[[], nn.Module]] = {
    "norm by hand": lambda: Own(lambda _, x: centred(x)),
    "unit length": lambda: Own(lambda own, x: F.normalize(own.inside(x), dim=-1), inside=nn.Linear(WIDTH, WIDTH)),
    "gate": lambda: Own(gated, gate=nn.Linear(WIDTH, 1)),
}


@pytest.mark.parametrize("block", TAKEN_OFF)
def test_what_calls_inside_of_modules_take_off_gradients_is_rounding(tmp_path: Path, block: str) -> None:
    ours = training(TAKEN_OFF[block], size)
    verdict = compare_behind_device(tmp_path, ours, ours, level="L0")
    assert verdict.status == "agree", verdict.findings


def test_a_gradient_that_is_wrong_before_is_named_all_the_same(tmp_path: Path) -> None:
    wrong, ours = (training(TAKEN_OFF["unit length"], size, amount=amount) for amount in (0.1, 0.0))
    assert compare_behind_device(tmp_path, wrong, ours, level="L0").status == "diverged"


def attention(given: torch.Tensor) -> torch.Tensor:
    """The first position sees no other, so no gradient comes to its query and key."""
    heads = given.unsqueeze(1)
    return F.scaled_dot_product_attention(heads, heads * 0.5, heads, is_causal=True)[:, :, 0].square().mean()


def contrast(given: torch.Tensor) -> torch.Tensor:
    """The scores of rows with themselves are masked, and are far above all others."""
    rows = F.normalize(given.mean(1), dim=-1)
    scores = rows @ rows.T / 0.05
    likely = (scores - scores.max(1, keepdim=True)[0].detach()).exp() * (1 - torch.eye(len(rows)))
    return likely.sum(1).log().mean()


def distances(given: torch.Tensor) -> torch.Tensor:
    """Of rows to each other, of which each is next to nothing from itself."""
    rows = given.flatten(0, 1)
    return torch.exp(-torch.cdist(rows, rows)).mean()


def roots(given: torch.Tensor) -> torch.Tensor:
    return torch.sqrt((given - given.detach().roll(1, 0) * 0.5).square() + 1e-6).mean()


def directions(given: torch.Tensor) -> torch.Tensor:
    """Of rows that are nearly one, whose gradients would turn them and have nothing to turn."""
    rows = given * 1e-3 + 1.0
    return F.cosine_similarity(rows[:, :4], rows[:, 4:].detach(), dim=-1).mean()


LEFT = {
    "directions": directions,
    "attention": attention,
    "mask": contrast,
    "distances": distances,
    "roots": roots,
}


@pytest.mark.parametrize("loss", LEFT)
def test_little_that_is_left_is_as_far_apart_as_all(tmp_path: Path, loss: str) -> None:
    ours = training(lambda: nn.Linear(WIDTH, WIDTH), LEFT[loss])
    verdict = compare_behind_device(tmp_path, ours, ours)
    assert verdict.status == "agree", verdict.findings


def test_a_weight_that_rounding_alone_moves_is_no_weight_of_one_side(tmp_path: Path) -> None:
    """The gradient of a shift in front of a norm is rounding: it moves the shift on one side and not on the other."""
    ours = training(lambda: nn.LayerNorm(WIDTH), lambda given: given.sum() * 0.1, lr=0.05)
    with Device("fast"):
        candidate = record_training(tmp_path / "candidate", ours, steps=2, level="L0")
    verdict = compare_runs(candidate, record_training(tmp_path / "reference", ours, steps=2, level="L0"))
    assert verdict.status == "agree", verdict.findings


class Numbered(torch.optim.Optimizer):
    """Plain steps, whose size is a number that the optimizer computes from the gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                weight.add_(weight.grad, alpha=-group["lr"] / max(1.0, weight.grad.norm().item() * 3.0))


def test_a_number_that_an_optimizer_makes_of_tensors_is_no_setting(tmp_path: Path) -> None:
    ours = training(
        lambda: nn.BatchNorm1d(8),
        lambda given: F.mse_loss(given, torch.ones_like(given)) * 9.0,
        lambda of, lr: Numbered(of, {"lr": lr}),
    )
    verdict = compare_behind_device(tmp_path, ours, ours)
    assert verdict.status == "agree", verdict.findings


def test_a_sign_is_as_far_apart_as_elements_cross_zero() -> None:
    """Of elements anywhere in their size one in some hundred lies within a hundredth of zero."""
    random = np.random.default_rng(0)
    taken = random.standard_normal(4096)
    moved = taken + 0.01 * random.standard_normal(4096)
    given, made = (apart(row_of(a), row_of(b), 4096) for a, b in ((moved, taken), (np.sign(moved), np.sign(taken))))
    crossed = crossed_steps("sign", "forward", [given], made)
    assert made.distance / made.norm < crossed < 3.0 * made.distance / made.norm
    assert crossed_steps("sign", "forward", [replace(given, distance=0.0)], made) == 0.0


@pytest.mark.parametrize(("unit", "rounded_to"), [(2.0**-10, 2.0**-4), (2.0**-7, 2.0**-7)], ids=["float16", "bfloat16"])
def test_numbers_of_float16_next_to_zero_are_rounded_to_its_smallest_step(unit: float, rounded_to: float) -> None:
    result = MeasuredResult("output.0", 0.02, 0.0, 0.0, 0.0, 64, False, size=2.0**-20)
    assert result.unit_of(unit) == rounded_to
    node = Node(None, "linear", "backward", 2.0**-10, (result,), "")  # type: ignore[arg-type]
    assert node.excess()[0] < 0.5 < replace(node, results=(replace(result, size=1.0),)).excess()[0]

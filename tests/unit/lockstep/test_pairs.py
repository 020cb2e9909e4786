"""Calls that could answer to several recorded ones, gradients that several calls share, and sums in half types."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from msprobe.messages import said
from msprobe.pytorch import PrecisionDebugger

from .trainings import entries, in_lockstep, record

WIDTH, LENGTH, CLASSES = 6, 5, 80


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


class Cell(nn.Module):
    """A gated recurrent unit, token by token: its weights are used once for each."""

    def __init__(self, ways: Collection[str]) -> None:
        super().__init__()
        self.ways = ways
        self.inner, self.hidden = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)

    def split(self, gates: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second, third = gates.chunk(3, dim=-1)
        return (second, first, third) if "exchanged" in self.ways else (first, second, third)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last state."""
        state = x.new_zeros(len(x), WIDTH)
        for token in x.unbind(1):
            reset_in, update_in, new_in = self.split(self.inner(token))
            reset_state, update_state, new_state = self.split(self.hidden(state))
            reset = torch.sigmoid(reset_in + reset_state)
            update = torch.sigmoid(update_in + update_state)
            new = torch.tanh(new_in + reset * new_state)
            state = (1.0 - update) * new + update * state
        return state


class Adam:
    """An optimizer that is no class of torch's: nothing but its calls tells what it does."""

    def __init__(self, parameters: Any, rate: float = 1e-3) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.moments: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            if id(parameter) not in self.moments:
                self.moments[id(parameter)] = (torch.zeros_like(parameter), torch.zeros_like(parameter))
            first, second = self.moments[id(parameter)]
            first.mul_(0.9).add_(parameter.grad, alpha=0.1)
            second.mul_(0.99).addcmul_(parameter.grad, parameter.grad, value=0.01)
            parameter.sub_(first / (second.sqrt() + 1e-6) * self.rate)
            parameter.grad = None


class Model(nn.Module):
    def __init__(self, ways: Collection[str]) -> None:
        super().__init__()
        self.ways = ways
        self.cell = Cell(ways)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.cell(x)
        for number, block in enumerate(self.blocks):
            fed = block(x * 1.02 if "slightly" in self.ways and number == 2 else x)
            x = x + (fed.detach() if "cut" in self.ways and number == 1 else fed)
        return self.head(x)


def train(ways: Collection[str] = (), classes: int = CLASSES, steps: int = 2) -> None:
    """Train; ``ways`` says what is written otherwise, and what is wrong."""
    torch.manual_seed(0)
    model = Model(ways)
    model.blocks[2].weight.requires_grad_("frozen" not in ways)
    batches, goals = torch.randn(steps, 4, LENGTH, WIDTH), torch.randint(0, classes, (steps, 4))
    optimizer = Adam(model.parameters())
    for number in range(steps):
        PrecisionDebugger.start(model)
        with torch.autocast("cpu", torch.bfloat16) if "autocast" in ways else contextlib.nullcontext():
            logits = model(batches[number])[:, :classes].float()
        powers = (logits - logits.amax(-1, keepdim=True)).exp().half()
        if "step by step" in ways:
            whole = torch.zeros(4).half()
            for column in powers.unbind(-1):
                whole = whole + column
        else:
            whole = powers.sum(-1)
        chances = powers.float() / whole.float()[:, None]
        F.nll_loss(chances.clamp(min=1e-7).log(), goals[number]).backward()
        if "clipped" in ways:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()


def test_gates_that_are_exchanged_are_named_where_they_are_taken(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("exchanged",)), reference, tmp_path / "wrong")

    (first,) = [one for one in verdict.findings if one.entry == "Tensor.__add__.0.forward"]
    assert "input.0 of Tensor.__add__.0.forward is output.1 of Tensor.chunk.0.forward" in first.message
    assert "reset = torch.sigmoid(reset_in + reset_state)" in first.stack[0]


def test_parameters_that_get_no_gradient_do_not_shift_the_calls_of_a_written_out_optimizer(tmp_path: Path) -> None:
    reference = record(partial(train, ("clipped",)), tmp_path / "reference")

    # Without them the norm is another one, and so is what each call of the optimizer takes.
    verdict = in_lockstep(partial(train, ("clipped", "cut")), reference, tmp_path / "wrong")

    assert "Tensor.detach.0.forward" in entries(verdict)
    # Nothing is said of what the optimizer does with the other parameters.
    of_gradients = {one.entry for one in verdict.findings if one.kind == "parameter_gradient"}
    assert of_gradients == {"Torch._foreach_norm.0.forward", "Torch._foreach_mul_.0.forward"}
    of_weights = [one for one in verdict.findings if one.kind == "weights"]
    assert of_weights
    assert all('"blocks.1.' in one.message for one in of_weights)


@pytest.mark.parametrize("further", [(), ("exchanged",)])
def test_a_gradient_that_arrives_otherwise_is_no_fault_of_clipping(further: tuple[str, ...], tmp_path: Path) -> None:
    reference = record(partial(train, ("autocast", "clipped")), tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("autocast", "clipped", "slightly", *further)), reference, tmp_path / "wrong")

    assert verdict.status == "diverged"
    assert not any(one.code in ("D407", "D510") for one in verdict.findings)
    at_clipping = [one for one in verdict.findings if "clip_grad_norm_" in one.message and not one.harmless]
    assert all((one.code, one.arguments["parameter"]) == ("D408", "blocks.2.weight") for one in at_clipping)
    assert bool(at_clipping) is not bool(further)  # where something else is named, it follows from that


def test_a_weight_that_the_candidate_alone_trains_is_reported_beside_one_that_it_does_not(tmp_path: Path) -> None:
    reference = record(partial(train, ("frozen",)), tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("cut",)), reference, tmp_path / "wrong")

    assert "Tensor.detach.0.forward" in entries(verdict)
    told = [one.message for one in verdict.findings if one.kind == "missing_gradient" and not one.harmless]
    assert any(one.startswith(said("gradient-extra", "blocks.2.weight")) for one in told), told


def test_weights_that_autocast_casts_once_for_several_calls_are_no_alarm(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("autocast",)), reference, tmp_path / "autocast")

    assert verdict.status in ("agree", "harmless"), verdict.findings


@pytest.mark.parametrize(("classes", "is_named"), [(CLASSES, True), (4, False)])
def test_a_sum_step_by_step_in_a_half_type_is_named_if_it_is_long(classes: int, is_named: bool, tmp_path: Path) -> None:
    reference = record(partial(train, classes=classes), tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("step by step",), classes), reference, tmp_path / "other")

    assert any("Tensor.sum.0.forward" in one.message and not one.harmless for one in verdict.findings) is is_named
    assert (verdict.status == "diverged") is is_named
    # The cast behind the sum ends the region: it is no number of Python's.
    assert verdict.summary["lockstep"]["regions_healthy"] == 2


def test_each_setting_of_an_optimizer_that_differs_is_reported(tmp_path: Path) -> None:
    def step(eps: float, late: float) -> None:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=eps)
        for number in range(2):
            PrecisionDebugger.start(model)
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.param_groups[0]["lr"] = late if number else 1e-3
            optimizer.step()
            PrecisionDebugger.stop()
            PrecisionDebugger.step()

    reference = record(partial(step, 1e-8, 1e-3), tmp_path / "reference")

    verdict = in_lockstep(partial(step, 1e-4, 2e-3), reference, tmp_path / "wrong")

    told = {one.message.split(" is ")[0]: one.evidence.get("steps", [one.step]) for one in verdict.findings}
    assert told == {"Optimizer.AdamW.0.forward: eps": [0, 1], "Optimizer.AdamW.0.forward: lr": [1]}

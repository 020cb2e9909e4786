"""A program has the same steps for the monitor and for the gradient probe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import probed
from torch import nn

from msprobe.pytorch import PrecisionDebugger

from .monitored import Measured, make

STEPS = 3
#: What is done in an iteration with the optimizers of the two parameters of a model.
Iteration = Callable[[int, "Program"], None]


@pytest.fixture(autouse=True)
def _no_debugger_stays() -> Iterator[None]:
    yield
    PrecisionDebugger.reset()


class Chain:
    """Optimizers that make one, as Megatron's chain does."""

    def __init__(self, members: list[Any]) -> None:
        self.chained_optimizers = members

    def step(self) -> None:
        for member in self.chained_optimizers:
            member.step()


class Program:
    """A model of two parameters ``a`` and ``b``, each with an optimizer of its own, whose gradients are as large as the
    iteration says.
    """

    def __init__(self) -> None:
        self.model = nn.Module()
        self.model.a, self.model.b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.optimizers = [torch.optim.SGD([one], lr=0.0) for one in (self.model.a, self.model.b)]
        self.other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1000)

    def backward(self, number: float, *bad: int) -> None:
        """Gradients of this size; those of ``bad`` are not finite."""
        for place, parameter in enumerate(self.model.parameters()):
            parameter.grad = torch.full((1,), math.inf if place in bad else float(number))

    def step(self, *bad: int) -> None:
        """A step by the scaler, which leaves out those that are ``bad``."""
        self.scaler.scale(torch.ones(()))
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update(1.0)


def in_turn(number: int, program: Program) -> None:
    program.backward(number)
    for optimizer in program.optimizers:
        optimizer.step()


def one_is_left_out(number: int, program: Program) -> None:
    program.backward(number, *[0] * (number == 1))
    program.step()


def all_are_left_out_first(number: int, program: Program) -> None:
    if number == 1:
        program.backward(7, 0, 1)
        program.step()
    program.backward(number)
    program.step()


class Refused(Exception):
    pass


def refuse(*given: Any) -> None:
    raise Refused


def the_second_raises_first(number: int, program: Program) -> None:
    if number == 1:
        program.backward(7)
        handle = program.optimizers[1].register_step_pre_hook(refuse)
        with pytest.raises(Refused):
            for optimizer in program.optimizers:
                optimizer.step()
        handle.remove()
    in_turn(number, program)


def beside_another_model(number: int, program: Program) -> None:
    """Between the two an optimizer of a model that nobody watches steps, or raises."""
    program.backward(number)
    program.optimizers[0].step()
    if number == 1:
        handle = program.other.register_step_pre_hook(refuse)
        with pytest.raises(Refused):
            program.other.step()
        handle.remove()
    else:
        program.other.step()
    program.optimizers[1].step()


def the_second_is_frozen(number: int, program: Program) -> None:
    program.model.b.requires_grad_(False)
    program.backward(number)
    program.optimizers[0].step()


PROGRAMS = [
    in_turn,
    one_is_left_out,
    all_are_left_out_first,
    the_second_raises_first,
    beside_another_model,
    the_second_is_frozen,
]


def monitored(folder: Path, iteration: Iteration) -> dict[int, dict[str, float]]:
    """The norm of each gradient in each step."""
    program = Program()
    monitor = make(folder, {"wg_distribution": True})
    monitor.set_monitor(program.model, optimizer=Chain(program.optimizers))
    for number in range(STEPS):
        iteration(number, program)
    monitor.stop()
    measured = Measured(monitor)
    return {step: measured.norms("grad_reduced", step) for step in measured.steps("grad_reduced")}


def watched_by_the_probe(folder: Path, iteration: Iteration) -> dict[int, dict[str, float]]:
    """The same."""
    program = Program()
    with probed.probing(folder, program.model) as rank:
        for number in range(STEPS):
            iteration(number, program)
    files = {int(file.stem.rpartition("_")[2]): probed.read(file) for file in rank.glob("*.csv")}
    return {step: {row["param_name"]: float(row["norm"]) for row in files[step]} for step in sorted(files)}


@pytest.mark.parametrize("iteration", PROGRAMS)
def test_a_program_has_the_same_steps_for_both_tools(tmp_path: Path, iteration: Iteration) -> None:
    (tmp_path / "monitor").mkdir()
    steps = monitored(tmp_path / "monitor", iteration)
    of_probe = watched_by_the_probe(tmp_path, iteration)
    assert list(steps) == list(of_probe) == list(range(STEPS))
    for number in range(STEPS):
        expected = {"a": float(number), "b": float(number)}
        if iteration is the_second_is_frozen:
            del expected["b"]
        elif iteration is one_is_left_out and number == 1:
            del expected["a"]
            assert steps[number].pop("a") == math.inf
        assert steps[number] == of_probe[number] == expected


def test_the_gradients_of_a_step_that_raised_are_written_where_the_training_ends_by_that(tmp_path: Path) -> None:
    program = Program()
    with probed.probing(tmp_path, program.model) as rank:
        in_turn(0, program)
        program.optimizers[1].register_step_pre_hook(refuse)
        with pytest.raises(Refused):
            in_turn(5, program)
    rows = [(row["param_name"], row["max"]) for row in probed.read(rank / "grad_summary_1.csv")]
    assert rows == [("a", "5.0"), ("b", "5.0")]

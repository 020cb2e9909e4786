"""Listeners of a training whose steps are those of its optimizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from msprobe.capture.torch.training import TrainingListening
from msprobe.listeners import AccumulatedGradient, Cadence, ModulePass, Observer, OptimizerStep, Wants


class Told(Observer):
    """Notes what it is told of."""

    is_careful = True

    def __init__(self, *kinds: Any, cadence: Cadence | None = None) -> None:
        self.wants = Wants(kinds=kinds)
        self.cadence = cadence or Cadence()
        self.steps: list[int] = []
        self.events: list[tuple[int, str]] = []
        self.norms: dict[tuple[int, str], float] = {}

    def step_begin(self, event: Any) -> None:
        self.steps.append(event.step)

    def before(self, event: Any) -> None:
        self.events.append((event.step, event.name))

    def after(self, event: Any, result: Any) -> None:
        self.events.append((event.step, f"{event.name} ended"))

    def gradient(self, event: Any) -> None:
        if isinstance(event, AccumulatedGradient):
            assert event.gradient is event.weight.grad
            self.norms[event.step, f"{event.path}.{event.parameter}"] = float(event.gradient.norm())


# What runs a module as long as nobody watches one.
CALL_OF_MODULES = nn.Module._call_impl.__code__


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def _train(model: nn.Module, optimizer: Any, steps: int, batches: int = 1) -> None:
    for _ in range(steps):
        for _ in range(batches):
            model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_steps_are_those_of_the_optimizer() -> None:
    model = _model()
    told = Told("pass", "optimizer")
    listening = TrainingListening(told)
    listening.follow(model, first_step=5)
    _train(model, torch.optim.Adam(model.parameters()), 3)
    listening.end()
    assert told.steps == [5, 6, 7, 8]
    assert [name for step, name in told.events if step == 7] == [
        "Module.0.Linear.forward.0",
        "Module.0.Linear.forward.0 ended",
        "Module.1.ReLU.forward.0",
        "Module.1.ReLU.forward.0 ended",
        "Module.2.Linear.forward.0",
        "Module.2.Linear.forward.0 ended",
        "Optimizer.Adam.0.forward",
        "Optimizer.Adam.0.forward ended",
    ]
    assert [step for step, _ in told.events if step == 8] == []
    _train(model, torch.optim.Adam(model.parameters()), 1)
    assert told.steps == [5, 6, 7, 8]


def test_nothing_is_placed_anew_between_steps() -> None:
    model = _model()
    told = Told("pass", "accumulated_gradient")
    listening = TrainingListening(told)
    listening.follow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _train(model, optimizer, 1)
    code = nn.Module._call_impl.__code__
    _train(model, optimizer, 2)
    assert nn.Module._call_impl.__code__ is code
    listening.end()
    assert nn.Module._call_impl.__code__ is not code
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_between_the_steps_of_its_cadence_nothing_is_attached() -> None:
    model = _model()
    told = Told("pass", "accumulated_gradient", cadence=Cadence(every=3))
    listening = TrainingListening(told)
    listening.follow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attached, code = [], CALL_OF_MODULES
    for _ in range(7):
        attached.append(nn.Module._call_impl.__code__ is not code)
        _train(model, optimizer, 1)
    listening.end()
    assert attached == [True, False, False, True, False, False, True]
    assert told.steps == [0, 3, 6]
    assert {step for step, _ in told.norms} == {0, 3, 6}


def test_gradients_as_they_gather() -> None:
    model = _model()
    told = Told("accumulated_gradient")
    numbers: list[int] = []
    told.gradient = lambda event: numbers.append(event.number)  # type: ignore[method-assign]
    listening = TrainingListening(told)
    listening.follow(model)
    _train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2, batches=3)
    listening.end()
    assert numbers == ([0] * 4 + [1] * 4 + [2] * 4) * 2


def test_a_second_optimizer_ends_no_step() -> None:
    model, other = _model(), _model()
    told = Told("optimizer")
    listening = TrainingListening(told)
    first, second = torch.optim.Adam(model.parameters()), torch.optim.AdamW(other.parameters())
    listening.follow(model)
    for _ in range(3):
        _train(other, second, 1)
        _train(model, first, 1)
    listening.end()
    assert told.steps == [0, 1, 2, 3]
    assert {step for step, name in told.events if "AdamW" in name} == {0, 1, 2}


@pytest.mark.parametrize("are_given", [True, False])
def test_optimizers_that_step_in_turn_make_one_step(are_given: bool) -> None:
    model, over, left_out = _model(), [], []
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
    seen = Told("optimizer")
    listening = TrainingListening(seen)
    given = optimizers if are_given else []
    listening.follow(model, given, over=[lambda: over.append(seen.steps[-1])], left_out=left_out.append)
    for step in range(3):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizers[0].step()
        if step == 1:
            handle = optimizers[1].register_step_pre_hook(lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                optimizers[1].step()
            handle.remove()
        else:
            optimizers[1].step()
    assert [listening.has(optimizer) for optimizer in optimizers] == [True, True]
    listening.end()
    assert not listening.has(optimizers[0])
    assert (seen.steps, over, left_out) == ([0, 1, 2], [0, 1], [True])


def test_one_that_raises_is_dropped_and_the_steps_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    model = _model()
    told = Told("optimizer")
    broken = Told("accumulated_gradient")

    def fail(event: Any) -> None:
        raise ValueError("broken")

    broken.gradient = fail  # type: ignore[method-assign]
    listening = TrainingListening(broken, told)
    listening.follow(model)
    _train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    listening.end()
    assert told.steps == [0, 1, 2]
    assert broken.steps == [0]
    assert "broken" in "".join(capfd.readouterr())


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
def test_the_training_is_the_same(precision: str) -> None:
    def run(watched: bool) -> list[torch.Tensor]:
        model = _model()
        model.insert(1, nn.Dropout(0.5))
        if precision == "bfloat16":
            model.to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        listening = TrainingListening(Told("pass", "accumulated_gradient", "optimizer"))
        if watched:
            listening.follow(model)
        torch.manual_seed(1)
        for _ in range(4):
            inputs = torch.randn(3, 4, dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32)
            with torch.autocast("cpu", enabled=precision == "autocast"):
                loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if watched:
            listening.end()
        return [parameter.detach() for parameter in model.parameters()]

    for mine, other in zip(run(True), run(False), strict=True):
        assert torch.equal(mine, other)


def test_events_have_types_of_their_own() -> None:
    seen: set[type] = set()
    model = _model()
    told = Told("pass", "optimizer")
    told.before = lambda event: seen.add(type(event))  # type: ignore[method-assign]
    listening = TrainingListening(told)
    listening.follow(model)
    _train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
    listening.end()
    assert seen == {ModulePass, OptimizerStep}

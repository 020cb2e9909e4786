"""Steps of optimizers as listeners are told of them: weights, gradients and moments, before and after, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.recorded import Dump
from torch import nn

from msprobe.listeners import Observer, Wants
from msprobe.pytorch import Listening, PrecisionDebugger


class Steps(Observer):
    """Keeps copies of what an optimizer has before and after its steps."""

    wants = Wants(kinds=("optimizer",))

    def __init__(self) -> None:
        self.moments: list[tuple[str, str]] = []
        self.before_it: list[dict[str, Any]] = []
        self.after_it: list[dict[str, Any]] = []
        self.errors: list[str] = []

    def before(self, event: Any) -> None:
        self.moments.append(("before", event.name))
        self.before_it.append(copied(event))

    def after(self, event: Any, result: Any) -> None:
        self.moments.append(("after", event.name))
        self.after_it.append(copied(event))

    def failed(self, event: Any) -> None:
        self.moments.append(("failed", event.name))
        self.errors.append(str(event.error))


def copied(event: Any) -> dict[str, Any]:
    """The tensors of each parameter as numbers, and whether the gradients are computed inside of the step."""
    found: dict[str, Any] = {"closure": event.has_closure, "optimizer": event.optimizer}
    for name, parameter in event.parameters.items():
        gradient = None if parameter.gradient is None else parameter.gradient.tolist()
        moments = {word: float(value.sum()) for word, value in parameter.moments.items() if torch.is_tensor(value)}
        found[name] = parameter.weight.tolist(), gradient, moments
    return found


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    PrecisionDebugger.reset()


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3, bias=False)
        self.head = nn.Linear(3, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.tanh(self.body(x)))
        return result


def test_each_of_several_optimizers_says_its_own_parameters() -> None:
    model, steps = Pair(), Steps()
    first = torch.optim.SGD(model.head.parameters(), 0.1, momentum=0.9)
    second = torch.optim.Adam(model.body.parameters(), 0.1)
    with Listening(steps) as listening:
        for _ in range(2):
            with listening.step(model):
                model(torch.ones(2, 3)).sum().backward()
                first.step()
                second.step()
                first.step()
    names = ["Optimizer.SGD.0.forward", "Optimizer.Adam.0.forward", "Optimizer.SGD.1.forward"] * 2
    assert steps.moments == [(moment, name) for name in names for moment in ("before", "after")]
    for place, (before, after) in enumerate(zip(steps.before_it, steps.after_it, strict=True)):
        name = "body.weight" if place % 3 == 1 else "head.weight"
        assert before["optimizer"] is after["optimizer"] is (second if place % 3 == 1 else first)
        assert list(before) == list(after) == ["closure", "optimizer", name]
        assert before[name][0] != after[name][0]
        assert before[name][1] == after[name][1] is not None
        assert set(after[name][2]) == ({"step", "exp_avg", "exp_avg_sq"} if place % 3 == 1 else {"momentum_buffer"})


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_reported_is_what_the_step_works_on(fused: bool) -> None:
    """Fused kernels do not count as writes for torch: weights before and after are read as they are then."""
    model, steps = nn.Linear(3, 1, bias=False), Steps()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=fused, foreach=False)
    weights = [model.weight.tolist()]
    with Listening(steps) as listening:
        for _ in range(3):
            with listening.step(model):
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
                optimizer.step()
            weights.append(model.weight.tolist())
    assert [found["weight"][0] for found in steps.before_it] == weights[:-1]
    assert [found["weight"][0] for found in steps.after_it] == weights[1:]
    assert [found["weight"][2].get("step") for found in steps.before_it] == [None, 1.0, 2.0]
    assert [found["weight"][2]["step"] for found in steps.after_it] == [1.0, 2.0, 3.0]


def test_a_closure_is_part_of_one_step_and_its_last_gradients_are_reported_behind_it() -> None:
    model, steps = nn.Linear(3, 1, bias=False), Steps()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    gradients: list[Any] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(torch.ones(2, 3)) - 1).square().sum()
        loss.backward()
        assert model.weight.grad is not None
        gradients.append(model.weight.grad.tolist())
        return loss

    with Listening(steps) as listening, listening.step(model):
        optimizer.step(closure)
    name = "Optimizer.LBFGS.0.forward"
    assert steps.moments == [("before", name), ("after", name)]
    assert len(gradients) > 1
    assert steps.before_it[0]["closure"] is True
    assert steps.before_it[0]["weight"][1] is None
    assert steps.after_it[0]["weight"][1] == gradients[-1]


def train_scaled(model: nn.Module, optimizer: torch.optim.Optimizer, steps: Steps) -> None:
    """Two steps under a scaler, the first of which it skips."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with Listening(steps) as listening:
        for factor in (float("inf"), 1.0):
            with listening.step(model):
                optimizer.zero_grad()
                scaler.scale(model(torch.ones(2, 3)).sum() * factor).backward()
                scaler.step(optimizer)
                scaler.update()


def test_a_step_that_a_scaler_skips_has_no_after() -> None:
    model, steps = nn.Linear(3, 1, bias=False), Steps()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_scaled(model, optimizer, steps)
    name = "Optimizer.SGD.0.forward"
    assert steps.moments == [("before", name), ("failed", name), ("before", name), ("after", name)]
    skipped = "the step was skipped: the gradients are not finite"
    assert steps.errors == [skipped]
    # As the optimizer sees it: the scale is taken off.
    assert steps.before_it[1]["weight"][1] == [[2.0, 2.0, 2.0]]


def test_a_fused_step_under_a_scaler_says_by_itself_whether_it_was_taken() -> None:
    found: list[tuple[float, float]] = []

    class Fused(Steps):
        def after(self, event: Any, result: Any) -> None:
            super().after(event, result)
            found.append((event.optimizer.found_inf.item(), event.optimizer.grad_scale.item()))

    model, steps = nn.Linear(3, 1, bias=False), Fused()
    optimizer = torch.optim.Adam(model.parameters(), 0.1, fused=True)
    train_scaled(model, optimizer, steps)
    assert [moment for moment, _ in steps.moments] == ["before", "after"] * 2
    assert found == [(1.0, 8.0), (0.0, 4.0)]
    weights = [told["weight"][0] for pair in zip(steps.before_it, steps.after_it, strict=True) for told in pair]
    assert weights[0] == weights[1] == weights[2] != weights[3]
    assert steps.before_it[1]["weight"][1] == [[8.0, 8.0, 8.0]]
    assert steps.after_it[1]["weight"][1] == [[2.0, 2.0, 2.0]]


def test_a_step_that_raises_is_reported_as_failed_and_the_next_one_as_ever() -> None:
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise ArithmeticError("not today")
            return super().step(closure)

    model, steps = nn.Linear(3, 1, bias=False), Steps()
    optimizer = Failing(model.parameters(), 0.1)
    with Listening(steps) as listening, listening.step(model):
        model(torch.ones(2, 3)).sum().backward()
        with pytest.raises(ArithmeticError):
            optimizer.step()
        optimizer.fails = False
        optimizer.step()
    first, second = (f"Optimizer.Failing.{n}.forward" for n in (0, 1))
    assert steps.moments == [("before", first), ("failed", first), ("before", second), ("after", second)]
    assert steps.errors == ["not today"]


@pytest.mark.parametrize(("level", "is_dumped"), [("mix", True), ("L0", True), ("L2", False)])
def test_a_listener_changes_nothing_of_which_steps_are_dumped(tmp_path: Path, level: str, is_dumped: bool) -> None:
    for folder, listener in (("heard", Steps()), ("alone", None)):
        PrecisionDebugger.reset()
        made = PrecisionDebugger(dump_path=str(tmp_path / folder), task="statistics", level=level)
        if listener is not None:
            made.add(listener)
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with made.recording(model):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        if listener is not None:
            assert [moment for moment, _ in listener.moments] == ["before", "after"]
    PrecisionDebugger.reset()
    heard, alone = (Dump(tmp_path / folder / "step0" / "rank").data for folder in ("heard", "alone"))
    assert list(heard) == list(alone)
    assert ("Optimizer.SGD.0.forward" in heard) == is_dumped


def test_with_the_dump_of_steps_switched_off_they_are_reported_all_the_same(tmp_path: Path) -> None:
    steps = Steps()
    made = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1", optimizer=False)
    made.add(steps)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with made.recording(model):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    PrecisionDebugger.reset()
    assert steps.moments == [("before", "Optimizer.SGD.0.forward"), ("after", "Optimizer.SGD.0.forward")]
    assert "Optimizer.SGD.0.forward" not in Dump(tmp_path / "step0" / "rank").data

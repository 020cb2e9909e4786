"""Gradients on their way back, replaced by a changer: what it names changes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.listening import with_listeners
from support.recorded import Dump
from torch import nn
from torch.nn import functional as F

from msprobe.listeners import Changer, Changes, NewGradient, Observer, Wants
from msprobe.pytorch import Listening, PrecisionDebugger

Loss = Callable[[nn.Module, torch.Tensor], torch.Tensor]
OTHER = torch.linspace(-1, 1, 24).reshape(3, 8)
debugger = partial(with_listeners, PrecisionDebugger)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(F.gelu(self.first(x)))
        return result


def hooked(at_result: bool, other: torch.Tensor | None = None) -> Loss:
    """The same model, whose gradient at the argument or the result of gelu a user replaces by a hook of his own."""

    def forward(model: Any, x: torch.Tensor) -> torch.Tensor:
        y = model.first(x)
        z = F.gelu(y)
        (z if at_result else y).register_hook(lambda gradient: OTHER if other is None else other)
        result: torch.Tensor = model.last(z)
        return result

    return forward


class Replacing(Changer):
    """Gives ``value`` for the gradients at these sides and places, and keeps what it was told."""

    def __init__(self, name: str, where: tuple[str, str], value: Any = OTHER, wants: str = "") -> None:
        self.wants = Wants(("call", "pass"), names=(wants or name,), directions=("backward",))
        self.changes = Changes(names=(name,), gradients=True)
        self.where = where
        self.value = value
        self.told: list[tuple[str, str, bool]] = []

    def gradient(self, event: Any) -> NewGradient | None:
        self.told.append((event.side, event.place, event.can_be_replaced))
        if (event.side, event.place) != self.where:
            return None
        return self.value(event) if callable(self.value) else NewGradient(self.value)


class Seen(Observer):
    def __init__(self, name: str) -> None:
        self.wants = Wants(names=(name,), directions=("backward",))
        self.gradients: dict[tuple[str, str], list[float]] = {}

    def gradient(self, event: Any) -> None:
        self.gradients[event.side, event.place] = event.gradient.flatten().tolist()


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    PrecisionDebugger.reset()


def train(around: Any = None, forward: Loss | None = None) -> list[torch.Tensor]:
    """Gradients and weights of two steps, with momentum."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    found: list[torch.Tensor] = []
    for _ in range(2):
        x = torch.randn(3, 4, requires_grad=True)
        if around is not None:
            around.start(model)
        optimizer.zero_grad()
        (model(x) if forward is None else forward(model, x)).square().sum().backward()
        optimizer.step()
        if around is not None:
            around.stop()
            around.step()
        found += [x.grad, *(p.grad for p in model.parameters()), *model.parameters()]  # type: ignore[list-item]
        found = [tensor.detach().clone() for tensor in found]
    return found


def same(ours: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(ours, others, strict=True))


@pytest.mark.parametrize("step", [[0, 1], [9]], ids=["dumped", "alone"])
@pytest.mark.parametrize(
    ("name", "where", "at_result"),
    [
        ("Functional.gelu", ("argument", "input.0"), False),
        ("Functional.gelu", ("result", "output.0"), True),
        ("Module.last.Linear", ("argument", "input.0"), True),
        ("Module.first.Linear", ("result", "output.0"), False),
    ],
)
def test_a_replaced_gradient_moves_the_training_as_a_hook_of_the_program_would(
    name: str, where: tuple[str, str], at_result: bool, step: list[int], tmp_path: Path
) -> None:
    replacing = Replacing(name, where)
    ours = train(debugger(tmp_path, replacing, step=step))
    assert same(ours, train(forward=hooked(at_result)))
    assert not same(ours, train())
    assert (*where, True) in replacing.told
    assert torch.equal(OTHER, torch.linspace(-1, 1, 24).reshape(3, 8))


def test_the_dump_and_observers_see_what_the_training_goes_on_with(tmp_path: Path) -> None:
    seen = Seen("Functional.gelu")
    train(debugger(tmp_path, seen, Replacing("Functional.gelu", ("argument", "input.0"))))
    PrecisionDebugger.reset()
    assert seen.gradients["argument", "input.0"] == OTHER.flatten().tolist()
    data = Dump(tmp_path / "step0" / "rank").data
    assert data["Functional.gelu.0.backward"]["output"][0]["Max"] == 1
    assert data["Functional.gelu.0.backward"]["output"][0]["Min"] == -1
    # What comes to the call before it is the replaced one.
    assert data["Functional.linear.0.backward"]["input"][0]["Min"] == -1
    assert data["Functional.gelu.0.backward"]["input"][0]["Max"] != 1


def test_a_changer_that_gives_nothing_changes_nothing(tmp_path: Path) -> None:
    for name in ("Functional.*", "Module.*"):
        replacing = Replacing(name, ("nowhere", ""))
        assert same(train(debugger(tmp_path / name[0], replacing, step=[9])), train())
        assert {can for _, _, can in replacing.told} == {True}


def test_a_leaf_gets_a_copy_that_backward_passes_add_to() -> None:
    weight = torch.randn(2, 4).t().requires_grad_()
    bare = weight.detach().clone().requires_grad_()
    F.linear(torch.ones(1, 2), bare).sum().backward()
    value = torch.full((4, 2), 3.0)
    with Listening(Replacing("Functional.linear", ("argument", "input.1"), value)) as listening:
        for _ in range(2):
            listening.start()
            F.linear(torch.ones(1, 2), weight).sum().backward()
            listening.stop()
    assert weight.grad is not None
    assert bare.grad is not None
    assert torch.equal(weight.grad, torch.full((4, 2), 6.0))
    assert weight.grad.stride() == bare.grad.stride()
    assert torch.equal(value, torch.full((4, 2), 3.0))


def test_an_argument_that_one_node_uses_twice_gets_the_other_gradient_once() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    seen, replacing = Seen("Torch.mul"), Replacing("Torch.mul", ("argument", "input.0"), torch.tensor([7.0, 8.0]))
    with Listening(seen, replacing) as listening:
        listening.start()
        torch.mul(x, x).sum().backward()
        listening.stop()
    assert x.grad is not None
    assert x.grad.tolist() == [7.0, 8.0]
    assert ("argument", "input.0", True) in replacing.told
    assert seen.gradients["argument", "input.0"] == [7.0, 8.0]
    replacing.where, x.grad = ("nowhere", ""), None
    with Listening(seen, replacing) as listening:
        listening.start()
        torch.mul(x, x).sum().backward()
        listening.stop()
    assert x.grad.tolist() == seen.gradients["argument", "input.0"] == [4.0, 6.0]


class Twice(nn.Module):
    """Uses its argument in two nodes of the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.cos() * 2


def test_parts_that_leave_one_by_one_come_to_the_other_gradient_with_the_last_of_them() -> None:
    model = nn.Sequential(Twice())
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    replacing = Replacing("Module.0.Twice", ("argument", "input.0"), torch.tensor([7.0, 8.0]))
    seen = Seen("Module.0.Twice")
    with Listening(seen, replacing) as listening, listening.step(model):
        model(x).sum().backward()
    assert [told for told in replacing.told if told[0] == "argument"] == [("argument", "input.0", True)]
    assert seen.gradients["argument", "input.0"] == [7.0, 8.0]
    torch.testing.assert_close(x.grad, torch.tensor([7.0, 8.0]))


def test_parts_that_nobody_replaces_stay_as_they_are_and_are_reported_as_one() -> None:
    model = nn.Sequential(Twice())
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    replacing = Replacing("Module.0.Twice", ("nowhere", ""))
    with Listening(replacing) as listening, listening.step(model):
        model(x).sum().backward()
    assert [told for told in replacing.told if told[0] == "argument"] == [("argument", "input.0", True)]
    assert torch.equal(x.grad, torch.autograd.grad(model(x).sum(), x)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "reason", "found"),
    [
        (
            lambda event: NewGradient(torch.ones(2, 2)),
            "replacement-differs",
            {"own": "a float32 tensor of shape [3, 8]"},
        ),
        (
            lambda event: NewGradient(OTHER.double()),
            "replacement-differs",
            {"given": "a float64 tensor of shape [3, 8]"},
        ),
        (lambda event: NewGradient(None), "replacement-differs", {"given": "a value of type NoneType"}),
        (lambda event: NewGradient(OTHER.to_sparse()), "replaced-gradient-not-plain", {}),
        (lambda event: NewGradient(OTHER.to("meta")), "replaced-gradient-device", {"own": "cpu", "given": "meta"}),
        (lambda event: OTHER, "changer-answer-of-class", {"kind": "Tensor", "expected": "NewGradient"}),
        (lambda event: NewGradient(event.gradient.mul_(2)), "listener-wrote-tensor", {}),
    ],
    ids=["shape", "dtype", "nothing", "sparse", "device", "bare", "in place"],
)
def test_what_cannot_take_its_place_is_reported_and_the_training_stays_as_it_is(
    value: Any, reason: str, found: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = train(debugger(tmp_path, Replacing("Functional.gelu", ("argument", "input.0"), value), step=[9]))
    printed = capsys.readouterr().out
    assert mentions(printed, "listener-failed", listener="Replacing", method="gradient") == 1
    assert mentions(printed, reason, **found)
    assert same(ours, train()) == (reason != "listener-wrote-tensor")


@pytest.mark.parametrize("changes", [Changes(("Functional.linear",), gradients=True), Changes(("Functional.gelu",))])
def test_what_its_changes_do_not_name_stays(
    changes: Changes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replacing = Replacing("Functional.gelu", ("argument", "input.0"))
    replacing.changes = changes
    assert same(train(debugger(tmp_path, replacing, step=[9])), train())
    assert set(replacing.told) == {("result", "output.0", False), ("argument", "input.0", False)}
    out = capsys.readouterr().out
    assert mentions(out, "changer-does-not-name-what") or mentions(out, "changer-does-not-name-call")


def test_one_number_alone_is_replaced() -> None:
    x, seen = torch.tensor([2.0], requires_grad=True), Seen("Torch.sin")
    replacing = Replacing("Torch.sin.1", ("argument", "input.0"), torch.tensor([5.0]), wants="Torch.sin")
    with Listening(replacing, seen) as listening:
        listening.start()
        (torch.sin(x) + torch.sin(x)).sum().backward()
        listening.stop()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(5.0 + torch.cos(torch.tensor(2.0)).item())


def test_a_graph_that_is_walked_twice_and_differentiated_again() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    values = iter([5.0, 6.0, 7.0])
    replacing = Replacing("Torch.pow", ("argument", "input.0"), lambda event: NewGradient(torch.tensor([next(values)])))
    with Listening(replacing) as listening:
        listening.start()
        y = torch.pow(x, 3).sum()
        first = torch.autograd.grad(y, x, retain_graph=True)[0]
        second = torch.autograd.grad(y, x, create_graph=True)[0]
        # What is differentiated stays: the own gradient is 3 x^2, whose gradient is 6 x.
        third = torch.autograd.grad(second, x)[0]
        listening.stop()
    assert (first.item(), second.item(), third.item()) == (5.0, 6.0, 12.0)

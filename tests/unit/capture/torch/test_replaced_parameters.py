"""Modules that put other parameters in the place of theirs while they run: the training does not notice that they are
recorded, and both recorders write what happened.
"""

from __future__ import annotations

import json
from collections import OrderedDict, UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.native_and_python import differences, use_python
from torch import nn

from msprobe import log
from msprobe.pytorch import PrecisionDebugger


class Changing(nn.Module):
    """A linear module whose forward changes its parameters first, and maybe again in the end."""

    def __init__(self, change: Callable[[Changing], Any], inner: bool) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.eye(4) * 0.5), nn.Parameter(torch.ones(4))
        self.other = [nn.Parameter(torch.full((4, 4), 0.25)), torch.full((4, 4), 0.125, requires_grad=True)]
        self.change = change
        if inner:
            self.inside = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        undo = self.change(self)
        y = torch.nn.functional.linear(x, self._parameters["weight"], self._parameters.get("bias"))
        if undo is not None:
            undo()
        return y


def replaced(module: Changing) -> None:
    module._parameters["weight"] = module.other[0]


def gathered(module: Changing) -> Callable[[], None]:
    """The whole weight is made of a shard and stands in its place for the pass, as sharded training does it."""
    shard = module._parameters["weight"]
    assert shard is not None
    module._parameters["weight"] = shard * 2

    def put_back() -> None:
        module._parameters["weight"] = shard

    return put_back


def plain_tensor(module: Changing) -> None:
    module._parameters["weight"] = module.other[1]


def another_dict(module: Changing) -> None:
    module.__dict__["_parameters"] = OrderedDict(module._parameters)


def no_dict(module: Changing) -> None:
    module.__dict__["_parameters"] = UserDict(module._parameters)


def no_bias(module: Changing) -> None:
    module._parameters.pop("bias", None)


def none_for_bias(module: Changing) -> None:
    module._parameters["bias"] = None


def one_more(module: Changing) -> None:
    module._parameters[f"more{len(module._parameters)}"] = nn.Parameter(torch.ones(2))


def raises(module: Changing) -> None:
    another_dict(module)
    raise ValueError("caught by the program")


CHANGES = [replaced, gathered, plain_tensor, another_dict, no_dict, no_bias, none_for_bias, one_more, raises]


@pytest.fixture(autouse=True)
def _end() -> Any:
    log.forget_once()
    yield
    PrecisionDebugger.reset()
    log.forget_once()


def train(change: Callable[[Changing], Any], inner: bool, debugger: PrecisionDebugger | None) -> list[Any]:
    """Outputs and gradients of two steps of two passes each."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "it": Changing(change, inner), "last": nn.Linear(4, 4)})
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    found: list[Any] = []
    for _ in range(2):
        if debugger is not None:
            debugger.start(model)
        for _ in range(2):
            y = model["first"](x)
            try:
                y = model["it"](y)
            except ValueError as error:
                found.append(str(error))
            loss = model["last"](y).square().sum()
            loss.backward()
            found.append(loss.detach().clone())
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found += [None if p.grad is None else p.grad.clone() for p in [*model.parameters(), *model["it"].other]]
    return found


def record(change: Callable[[Changing], Any], inner: bool, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L0")
    result = train(change, inner, debugger)
    PrecisionDebugger.reset()
    return result, {
        f"{file.parent.parent.name}/{file.name}": json.loads(file.read_text()).get("data")
        for file in sorted(folder.glob("step*/rank/*.json"))
    }


@pytest.mark.parametrize("inner", [False, True], ids=["a leaf", "with a module inside"])
@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_parameters_replaced_during_a_pass_change_nothing_and_are_recorded(
    change: Callable[[Changing], Any],
    inner: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = train(change, inner, None)
    dumps = []
    for pure in (False, True):
        if pure:
            use_python(monkeypatch)
        # From one line, so that the call stacks are the same.
        result, dump = record(change, inner, tmp_path / f"{len(dumps)}")
        assert len(result) == len(expected)
        for ours, theirs in zip(result, expected, strict=True):
            same = ours == theirs if theirs is None or isinstance(theirs, str) else torch.equal(ours, theirs)
            assert same
        dumps.append(dump)
    compiled, plain = dumps
    assert not list(differences(compiled, plain))
    assert not mentions(capsys.readouterr().out, "not-recorded")
    data = compiled["step1/dump.json"]
    assert "Module.it.Changing.forward.1" in data
    if change is not raises:
        assert "Module.it.Changing.backward.1" in data


def test_the_gradient_of_a_parameter_that_came_during_a_pass_is_recorded(tmp_path: Path) -> None:
    _, dump = record(replaced, False, tmp_path)
    gradients = dump["step0/dump.json"]["Module.it.Changing.parameters_grad.0"]
    assert gradients["weight"][0]["shape"] == [4, 4]
    assert gradients["bias"][0]["shape"] == [4]


@pytest.mark.parametrize("kind", ["weight norm", "lazy", "functional call"])
def test_what_torch_itself_replaces_is_recorded_without_a_fault(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(debugger: PrecisionDebugger | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        linear = nn.LazyLinear(4) if kind == "lazy" else nn.Linear(4, 4)
        if kind == "weight norm":
            linear = nn.utils.parametrizations.weight_norm(linear)
        model = nn.Sequential(nn.Identity(), linear)
        x = torch.linspace(-1, 1, 8).reshape(2, 4)
        if debugger is not None:
            debugger.start(model)
        if kind == "functional call":
            others = {name: (p.detach() * 2).requires_grad_() for name, p in model.named_parameters()}
            torch.func.functional_call(model, others, (x,)).square().sum().backward()
            gradients = [p.grad for p in others.values()]
        else:
            model(x).square().sum().backward()
            gradients = [p.grad for p in model.parameters()]
        if debugger is not None:
            debugger.stop()
            debugger.step()
        return [gradient for gradient in gradients if gradient is not None]

    expected = run(None)
    found = run(PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L0"))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    assert len(found) >= 2
    assert not mentions(capsys.readouterr().out, "not-recorded")
    data = json.loads((tmp_path / "step0/rank/dump.json").read_text())["data"]
    assert any(name.endswith(".parameters_grad") for name in data), list(data)

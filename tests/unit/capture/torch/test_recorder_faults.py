"""Whatever goes wrong inside the recorder costs records and nothing else: each thing that it asks on its way fails in
turn, or answers what it cannot answer.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.native_and_python import use_python
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe import log
from msprobe.capture.records import Describer
from msprobe.capture.relayed_units import RelayedCall
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.torch.calls import call_records as calls
from msprobe.capture.torch.gradients import graph_nodes as gradients
from msprobe.capture.torch.gradients import module_gradients, parameter_gradients, pass_gradients
from msprobe.capture.torch.modules import module_records as modules
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.pytorch import PrecisionDebugger


class Model(nn.Module):
    """One of each: an argument that is used twice, a result that is a view and written to, several arguments, no
    result, a module that raises, one of a kind of its own, recomputation, a shared parameter and an idle one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.again = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.again.weight = self.up.weight
        self.scale, self.idle = nn.Parameter(torch.ones(4)), nn.Linear(4, 4)
        self.pair, self.bad, self.two = nn.Bilinear(4, 4, 4), Bad(), Two()
        self.part = OwnParameter(torch.full((4,), 0.5))
        self.norm.__dict__["_parameters"] = OrderedDict(self.norm._parameters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.again(x + self.up(self.norm(x)))
        y[0] *= 2
        y, _ = self.two(y * self.scale * self.part)
        try:
            self.bad(y)
        except ValueError:
            y = self.pair(y, x)
        z: torch.Tensor = checkpoint(self.up, y, use_reentrant=False)
        return z


class OwnParameter(nn.Parameter):
    """A parameter of a class of its own."""


class Two(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.view(x.shape), x.exp()


class Bad(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("caught by the program")


def train(debugger: PrecisionDebugger | None) -> list[Any]:
    torch.manual_seed(0)
    model = nn.ModuleDict({"it": Model()})
    x = torch.linspace(-1, 1, 24).reshape(2, 3, 4).requires_grad_()
    losses: list[Any] = []
    for _ in range(2):
        if debugger is not None:
            debugger.start(model)
        loss = model["it"](x).square().sum()
        loss.backward()
        losses.append(loss.detach().clone())
        if debugger is not None:
            debugger.stop()
            debugger.step()
    return [*losses, x.grad, *[p.grad for p in model.parameters()]]


def unlucky(*_: Any, **__: Any) -> Any:
    raise RuntimeError("not today")


class Exploding:
    """Cannot even be asked whether it is true."""

    def __bool__(self) -> bool:
        raise RuntimeError("not today")


WRONG: dict[str, Callable[..., Any]] = {
    "raises": unlucky,
    "nothing": lambda *_, **__: None,
    "negative": lambda *_, **__: -7,
    "text": lambda *_, **__: "text",
    "empty": lambda *_, **__: (),
    "untrue": lambda *_, **__: Exploding(),
}


# What the recorder of modules asks on its way, where an error is caught.
ASKED: tuple[tuple[Any, str], ...] = (
    (calls.TensorWriter, "outputs_of"),
    (calls.TensorWriter, "tensors_in"),
    (gradients.GradientGathering, "add"),
    (gradients.GradientGathering, "result"),
    (gradients.NodeHooks, "before"),
    (gradients.NodeHooks, "after"),
    (module_gradients.ModuleGradients, "watch"),
    (modules, "edge_of"),
    (modules, "sequence_number"),
    (modules.ModuleRecorder, "inputs_of"),
    (modules.ModuleRecorder, "parameters_of"),
    (parameter_gradients.ParameterGradients, "placeholder"),
    (parameter_gradients.ParameterGradients, "watch"),
    (parameter_gradients.ParameterHooks, "hook_on"),
    (pass_gradients, "bases_of"),
    (pass_gradients, "find_boundary"),
    (CallStacks, "here"),
    (Describer, "describe"),
    (Session, "next_order"),
    (Session, "number"),
    (Session, "parent"),
    (Session, "put"),
    (TensorStatistics, "_describe_otherwise"),
)


@pytest.fixture(autouse=True)
def _end() -> Any:
    log.forget_once()
    yield
    PrecisionDebugger.reset()
    log.forget_once()


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return train(None)


def record(folder: Path) -> list[Any]:
    """The training, recorded."""
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L0")
    try:
        return train(debugger)
    finally:
        PrecisionDebugger.reset()
        log.forget_once()


def is_same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        ours is theirs or torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True)
    )


@pytest.mark.filterwarnings("error:.*always_call")
@pytest.mark.parametrize(("holder", "name"), ASKED, ids=[name for _, name in ASKED])
def test_a_function_that_fails_or_answers_nonsense_is_not_noticed_by_the_training(
    holder: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: list[Any]
) -> None:
    # Each tensor is asked for in Python, too.
    use_python(monkeypatch)
    for kind, wrong in WRONG.items():
        asked: list[Any] = []

        def stand_in(*_: Any, wrong: Callable[..., Any] = wrong, asked: list[Any] = asked, **__: Any) -> Any:
            asked.append(None)
            return wrong()

        with monkeypatch.context() as patch:
            patch.setattr(holder, name, stand_in)
            assert is_same(record(tmp_path / kind), expected), kind
        assert asked, "it is asked, or this test says nothing"


def test_a_fault_is_reported_once_and_what_was_recorded_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expected: list[Any]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(calls.TensorWriter, "outputs_of", unlucky)
        assert is_same(record(tmp_path), expected)
    assert capsys.readouterr().out.count("not today") == 1
    data = json.loads((tmp_path / "step0/rank/dump.json").read_text())["data"]
    assert "Module.it.norm.LayerNorm.parameters_grad" in data


def test_a_call_that_listeners_began_and_the_dumper_ends_is_not_noticed_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recording was stopped and begun anew inside of the call, this time without listeners."""
    recorder = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1").recorder
    call = RelayedCall(recorder.session, "Torch.add", 0, ())
    recorder.calls.end_call(call, torch.ones(2))
    recorder.calls.fail_call(call, ValueError("of the program"))
    assert "error" not in capsys.readouterr().out.lower()
    monkeypatch.setattr(calls, "unwritten_result", unlucky)
    recorder.calls.end_call(call, torch.ones(2))
    assert "not today" in capsys.readouterr().out

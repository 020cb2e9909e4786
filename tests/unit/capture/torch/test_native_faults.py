"""Whatever goes wrong inside the compiled recorder costs records and nothing else: each thing that it asks of Python
fails in turn, or answers what it cannot answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe import log
from msprobe.capture import native
from msprobe.pytorch import PrecisionDebugger

pytestmark = pytest.mark.skipif(native.Passes is None, reason="the compiled recorder was not built")


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


class Broken:
    """An object with one attribute that is wrong."""

    def __init__(self, whole: Any, name: str, wrong: Callable[..., Any]) -> None:
        self.__dict__.update(_whole=whole, _name=name, _wrong=wrong)

    def __getattr__(self, name: str) -> Any:
        return self._wrong() if name == self._name else getattr(self._whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == self._name:
            self._wrong()
        setattr(self._whole, name, value)


FUNCTIONS = (
    "quiet function_modes dispatch_modes grad_enabled sequence_number tracing edge base inputs_of edges_of outputs_of"
    " problem_of leave watch share watch_parameter watch_parameters hook_on"
).split()
ATTRIBUTES = [
    *[("session", name) for name in ("thread recording order generation counters parent fault").split()],
    *[("session", name) for name in ("lock _writer records_in_step _stack_numbers with_stacks with_construct").split()],
    *[("session", name) for name in ("_late has_late end_after_record").split()],
    *[("hooks", "suspended"), ("hooks", "_handles"), ("stacks", "_learn")],
]


@pytest.fixture(autouse=True)
def _end() -> Any:
    log.forget_once()
    yield
    PrecisionDebugger.reset()
    log.forget_once()


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return train(None)


def record_with(change: Callable[[dict[str, Any]], None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The training, recorded with some of what the compiled recorder works with replaced."""
    made = native.Passes

    def broken(**partners: Any) -> Any:
        change(partners)
        return made(**partners)

    with monkeypatch.context() as patch:
        patch.setattr(native, "Passes", broken)
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
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_fails_or_answers_nonsense_is_not_noticed_by_the_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: list[Any]
) -> None:
    for kind, wrong in WRONG.items():
        asked: list[Any] = []

        def change(partners: dict[str, Any], wrong: Callable[..., Any] = wrong, asked: list[Any] = asked) -> None:
            partners[name] = lambda *arguments: asked.append(arguments) or wrong()

        assert is_same(record_with(change, tmp_path / kind, monkeypatch), expected), kind
        assert asked, "the compiled recorder asks for it, or this test says nothing"


@pytest.mark.filterwarnings("error:.*always_call")
@pytest.mark.parametrize(("holder", "name"), ATTRIBUTES, ids=[".".join(pair) for pair in ATTRIBUTES])
def test_an_attribute_that_is_missing_or_nonsense_is_not_noticed_by_the_training(
    holder: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: list[Any]
) -> None:
    for kind, wrong in WRONG.items():

        def change(partners: dict[str, Any], wrong: Callable[..., Any] = wrong) -> None:
            partners[holder] = Broken(partners[holder], name, wrong)

        assert is_same(record_with(change, tmp_path / kind, monkeypatch), expected), kind


def test_a_fault_is_told_once_and_what_was_recorded_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expected: list[Any]
) -> None:
    found = record_with(lambda partners: partners.update(outputs_of=unlucky), tmp_path, monkeypatch)
    assert is_same(found, expected)
    assert capsys.readouterr().out.count("not today") == 1
    assert "Module.it.norm.LayerNorm.forward.0" in (tmp_path / "step0/rank/dump.json").read_text()

"""The compiled recorder of modules writes what the Python one writes, and falls back on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from native_and_python import differences, use_python
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe import log
from msprobe.capture import native
from msprobe.capture.torch import compiled_passes
from msprobe.pytorch import PrecisionDebugger

pytestmark = pytest.mark.skipif(native.Passes is None, reason="the compiled recorder was not built")


class Residual(nn.Module):
    """An argument that is used twice inside."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.up(self.norm(x))


class Tied(nn.Module):
    """One parameter in two modules, one that is not used, and a module that hands its argument through."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.idle, self.same = nn.Linear(4, 4), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.same(self.first(x)))


class Holder(nn.Module):
    """Parameters of its own beside modules inside, and one that another module uses."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.frozen = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4), requires_grad=False)
        self.inner, self.aside = nn.Linear(4, 4), Unused()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.aside(x)) * self.scale * self.aside.weight * self.frozen


class Unused(nn.Module):
    """Has a parameter that its own forward does not touch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp()


class Written(nn.Module):
    """Results of modules that are views, and written to afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y += 1
        y[0] *= 2
        z: torch.Tensor = self.last(y)
        return z


class Several(nn.Module):
    """Two results, keywords, no result, and nested arguments."""

    class Pair(nn.Module):
        def forward(self, x: torch.Tensor, *, y: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
            return x * 2, x if y is None else x + y

    class Quiet(nn.Module):
        def forward(self, x: dict[str, torch.Tensor]) -> None:
            return None

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.quiet, self.linear = Several.Pair(), Several.Quiet(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.pair(self.linear(x))
        c, d = self.pair(a, y=b)
        self.quiet({"a": a})
        return (c * d + a) * b


class Raising(nn.Module):
    """A module that fails, and another that takes its place."""

    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.linear(x)
            raise ValueError("no")

    def __init__(self) -> None:
        super().__init__()
        self.bad, self.good = Raising.Bad(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            y: torch.Tensor = self.bad(x)
        except ValueError:
            y = self.good(x)
        return y


class Again(nn.Module):
    """Runs its forward a second time in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        self.first, self.reentrant = nn.Linear(4, 4), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(self.body, self.first(x), use_reentrant=self.reentrant)
        return y


class Own(nn.Module):
    """A node of the user's own at the end of a module, and a module that is left in eval mode."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * 2

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.5).eval()
        self.inner = nn.Module()
        self.inner.forward = lambda x: Own.Double.apply(self.linear(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.dropout(self.inner(x))
        return y


def _once(loss: torch.Tensor) -> None:
    loss.backward()


def _twice(loss: torch.Tensor) -> None:
    loss.backward(retain_graph=True)
    loss.backward()


def _partly(loss: torch.Tensor) -> None:
    """Only a part of the graph is walked."""
    node = loss.grad_fn
    assert node is not None
    torch.autograd.grad(loss, node.next_functions[0][0].variable if hasattr(node, "variable") else X, retain_graph=True)


X = torch.linspace(-1, 1, 24).reshape(2, 3, 4).requires_grad_()

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Tensor], None]]] = {
    "residual": (Residual, _once),
    "residual twice": (Residual, _twice),
    "residual partly": (Residual, _partly),
    "tied": (Tied, _once),
    "tied twice": (Tied, _twice),
    "holder": (Holder, _once),
    "written": (Written, _once),
    "several": (Several, _once),
    "raising": (Raising, _once),
    "checkpoint": (lambda: Again(False), _once),
    "checkpoint, reentrant": (lambda: Again(True), _once),
    "own": (Own, _once),
    "lstm": (lambda: _Lstm(), _once),
    "half, and back": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), _once),
}


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.lstm(x)[0])
        return y


@pytest.fixture(autouse=True)
def _end() -> Any:
    log.forget_once()
    yield
    PrecisionDebugger.reset()
    log.forget_once()


def record(case: str, place: Path, level: str) -> dict[str, Any]:
    """What is written of three steps; and the gradients, which must not differ either."""
    make, backward = CASES[case]
    torch.manual_seed(0)
    model = nn.ModuleDict({"it": make()})
    debugger = PrecisionDebugger(dump_path=str(place), task="statistics", level=level)
    X.grad = None
    for step in range(3):
        debugger.start(model)
        for _ in range(2):
            backward(model["it"](X).square().sum())
        debugger.stop()
        debugger.step()
        if case.startswith("half") and step < 2:
            model = model.half().float()
    PrecisionDebugger.reset()
    found: dict[str, Any] = {"gradients": [p.grad for p in model.parameters()]}
    for file in sorted(place.glob("step*/rank/*.json")):
        content = json.loads(file.read_text(), parse_constant=str)
        found[f"{file.parent.parent.name}/{file.name}"] = content.get("data", content)
    return found


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("case", CASES)
def test_both_write_the_same(case: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for pure in (False, True):
        if pure:
            use_python(monkeypatch)
        # From one line, so that the call stacks are the same.
        found.append(record(case, tmp_path / f"{len(found)}", level))
    compiled, plain = found
    assert len(compiled) > 9
    for ours, theirs in zip(compiled.pop("gradients"), plain.pop("gradients"), strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)
    assert not list(differences(compiled, plain))


def test_it_is_the_compiled_one_that_records(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L0")
    model = nn.Sequential(nn.Linear(4, 4))
    debugger.start(model)
    assert {type(hook) for hook in model[0]._forward_hooks.values()} == {native.ModuleHook}
    debugger.stop()


@pytest.mark.parametrize("settings", [{"task": "tensor"}, {"list": ["Linear"]}, {"data_mode": ["forward"]}], ids=str)
def test_what_it_cannot_do_is_done_in_python(tmp_path: Path, settings: dict[str, Any]) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), **{"task": "statistics", "level": "L0", **settings})
    model = nn.Sequential(nn.Linear(4, 4))
    debugger.start(model)
    assert native.ModuleHook not in {type(hook) for hook in model[0]._forward_hooks.values()}
    model(X).sum().backward()
    debugger.stop()
    debugger.step()
    data = json.loads((tmp_path / "step0/rank/dump.json").read_text())["data"]
    assert "Module.0.Linear.forward.0" in data


def test_an_error_inside_costs_a_record_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unlucky(*_: Any) -> Any:
        raise RuntimeError("not today")

    bare = record("residual", tmp_path / "whole", "L0")
    monkeypatch.setattr(compiled_passes, "_add_share", unlucky)
    ours = record("residual", tmp_path / "broken", "L0")
    assert all(torch.equal(a, b) for a, b in zip(ours["gradients"], bare["gradients"], strict=True))
    whole, broken = bare["step1/dump.json"], ours["step1/dump.json"]
    assert "Module.it.Residual.backward.0" in whole
    assert broken["Module.it.norm.LayerNorm.backward.0"] == whole["Module.it.norm.LayerNorm.backward.0"]
    assert "not today" in capsys.readouterr().out


def test_a_copy_of_a_watched_module_has_hooks_that_do_nothing(tmp_path: Path) -> None:
    import copy
    import pickle

    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L0")
    model = nn.Sequential(nn.Linear(4, 4))
    debugger.start(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert native.ModuleHook not in {type(hook) for hook in twin[0]._forward_hooks.values()}
        assert twin(X).shape == X.shape
    debugger.stop()
    debugger.step()
    assert not json.loads((tmp_path / "step0/rank/dump.json").read_text())["data"]

"""Nothing stands on the modules of a model, neither while recording nor afterwards."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger

DICTIONARIES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class OwnHooks(nn.Linear):
    """A module that counts who adds hooks to it."""

    added = 0

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        OwnHooks.added += 1
        return super().register_forward_hook(*args, **kwargs)


def counts(module: nn.Module) -> list[int]:
    return [len(getattr(module, name)) for name in DICTIONARIES]


def test_modules_have_no_hooks_of_ours_while_they_are_recorded(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), OwnHooks(4, 4))
    OwnHooks.added = 0
    seen: list[str] = []
    handle = model[0].register_forward_hook(lambda *args: seen.append("user"))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    for _ in range(3):
        with debugger.recording(model):
            assert counts(model[0]) == [0, 0, 1, 0, 0]
            assert counts(model[1]) == [0] * 5
            copied = copy.deepcopy(model)
            model(torch.ones(2, 4)).sum().backward()
        copied(torch.ones(2, 4))
        assert counts(model[0]) == [0, 0, 1, 0, 0]
        assert counts(model[1]) == [0] * 5
        assert OwnHooks.added == 0
    PrecisionDebugger.reset()
    handle.remove()
    assert seen == ["user"] * 6
    for file in tmp_path.glob("step*/*/dump.json"):
        names = [name for name in json.loads(file.read_text())["data"] if name.startswith("Module.")]
        assert names == [
            "Module.0.Linear.forward.0",
            "Module.0.Linear.parameters_grad",
            "Module.1.OwnHooks.forward.0",
            "Module.1.OwnHooks.parameters_grad",
            "Module.1.OwnHooks.backward.0",
            "Module.0.Linear.backward.0",
        ]


def test_gradients_of_parameters_that_were_moved_are_seen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    for dtype in (torch.float32, torch.float64, torch.float32):
        model.to(dtype)
        model.zero_grad()
        with debugger.recording(model):
            model(torch.ones(2, 4, dtype=dtype)).sum().backward()
    PrecisionDebugger.reset()
    for step, dtype in enumerate(("torch.float32", "torch.float64", "torch.float32")):
        (file,) = tmp_path.glob(f"step{step}/*/dump.json")
        entry = json.loads(file.read_text())["data"]["Module.0.Linear.parameters_grad"]
        assert {key: value["dtype"] for key, (value,) in entry.items()} == {"weight": dtype, "bias": dtype}


def moved_by_to(model: nn.Module) -> None:
    model.half().float()


def moved_and_put_back(model: nn.Module) -> None:
    """The very memory that the parameters had, as a copy in another type that is used for a while leaves it."""
    for parameter in model.parameters():
        before = parameter.data
        parameter.data = before.double()
        parameter.data = before


def moved_over_and_over(model: nn.Module) -> None:
    """Freed memory is given out again: sooner or later a parameter is where it was."""
    (first, *_) = model.parameters()
    before = first.data_ptr()
    for _ in range(100):
        model.half().float()
        if first.data_ptr() == before:
            break


@pytest.mark.parametrize("move", [moved_by_to, moved_and_put_back, moved_over_and_over])
@pytest.mark.parametrize("when", ["between steps", "without stop", "within a step"])
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_gradients_are_seen_wherever_the_parameters_were_meanwhile(
    tmp_path: Path, move: Callable[[nn.Module], None], when: str, level: str
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level=level, task="statistics")
    for step in range(3):
        model.zero_grad()
        debugger.start(model)
        if when == "without stop":
            model(torch.ones(2, 4)).sum().backward()
            debugger.step()
            model.zero_grad()
            move(model)
        if when == "within a step":
            model(torch.ones(2, 4)).sum().backward()
            model.zero_grad()
            move(model)
        model(torch.full((2, 4), 2.0 + step)).sum().backward()
        debugger.stop()
        debugger.step()
        for number, layer in enumerate(model):
            (file,) = tmp_path.glob(f"step{2 * step + 1 if when == 'without stop' else step}/*/dump.json")
            entry = json.loads(file.read_text())["data"][f"Module.{number}.Linear.parameters_grad"]
            for key, parameter in layer.named_parameters():
                assert parameter.grad is not None
                assert entry[key][0]["Max"] == parameter.grad.max().item()
        if when == "between steps":
            move(model)
    PrecisionDebugger.reset()


def test_where_parameters_were_in_earlier_steps_is_not_kept(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    debugger.start(model)
    parameters = debugger.recorder.modules.parameters
    for _ in range(5):
        for _ in range(3):
            model.half().float()
            model(torch.ones(2, 4)).sum().backward()
        assert 3 * 2 <= len(parameters.known) + len(parameters.released) <= 4 * 2
        debugger.step()
        assert len(parameters.known) == 2
        assert not parameters.released
    PrecisionDebugger.reset()
    assert not parameters.known


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_hook_of_the_user_that_stops_the_recording(tmp_path: Path, level: str, fails: bool) -> None:
    """Torch goes on to call a hook of ours in this pass, without the keywords that it was given for."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, *, factor: float = 1.0) -> torch.Tensor:
            return self.inner(x) * factor

    def run(debugger: PrecisionDebugger | None) -> list[Any]:
        torch.manual_seed(3)
        model, seen = Net(), []

        def before(module: nn.Module, args: Any) -> None:
            seen.append("before")
            if debugger is not None and place == "before":
                debugger.stop()

        def after(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
            seen.append("after")
            if debugger is not None and place == "after":
                debugger.stop()
            if fails:
                raise ValueError("the user's own")
            return result + 1

        handles = [model.inner.register_forward_pre_hook(before), model.register_forward_hook(after)]
        results: list[Any] = []
        for _ in range(2):
            if debugger is not None:
                debugger.start(model)
            try:
                result = model(torch.ones(2, 4), factor=2.0)
                result.sum().backward()
                results += [result, *(parameter.grad.clone() for parameter in model.parameters())]
            except ValueError as error:
                results.append(str(error))
            if debugger is not None:
                debugger.stop()
                debugger.step()
        assert [counts(module) for module in (model, model.inner)] == [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]
        for handle in handles:
            handle.remove()
        return [*results, *seen]

    place = ""
    expected = run(None)
    for place in ("before", "after"):
        PrecisionDebugger.reset()
        found = run(PrecisionDebugger(dump_path=str(tmp_path / place), level=level, task="statistics"))
        PrecisionDebugger.reset()
        assert len(found) == len(expected)
        for value, other in zip(found, expected, strict=True):
            assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
        assert not list((tmp_path / place).rglob("dump_error_info.log"))
        for step in range(2):
            (file,) = (tmp_path / place).glob(f"step{step}/rank/dump.json")
            data = json.loads(file.read_text())["data"]
            # What had returned when the recording stopped is there.
            if place == "after" and level in ("L0", "mix"):
                assert "Module.inner.Linear.forward.0" in data

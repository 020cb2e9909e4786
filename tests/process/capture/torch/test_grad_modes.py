"""Recording without gradients: under ``no_grad`` and ``inference_mode``, begun inside of them and outside."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from msprobe.capture.torch import recorder
from msprobe.capture.torch.gradients import graph_nodes as gradients
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.pytorch import PrecisionDebugger

Context = Callable[[], AbstractContextManager[Any]]

WITHOUT_GRADIENTS: dict[str, Context] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
}
INSIDE, OUTSIDE = "inside", "outside"


class Generator(nn.Module):
    """A token after the other: in-place writes, views, a buffer that is counted up."""

    counted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10)
        self.norm = nn.BatchNorm1d(10)
        self.register_buffer("counted", torch.zeros(3))

    def forward(self, tokens: Tensor) -> Tensor:
        h: Tensor = self.head(self.embed(tokens))
        h[:, 0] += 1
        h = self.norm(h)
        self.counted += 1
        h.view(-1).mul_(2)
        return h


def generate(model: nn.Module) -> Tensor:
    tokens = torch.tensor([1, 2, 3])
    for _ in range(3):
        tokens = torch.cat([tokens[1:], model(tokens).argmax(-1)[-1:]])
    return tokens


def training(model: Generator) -> None:
    model.head(model.embed(torch.tensor([1, 2]))).sum().backward()


def recorded(
    folder: Path, context: Context, begins: str, ends: str, **settings: Any
) -> tuple[list[dict[str, Any]], list[int]]:
    """The records of a step of generation and one of training, and what was generated. ``begins`` and ``ends``: where
    the first step does so, as seen from the context.
    """
    torch.manual_seed(0)
    model = Generator().eval()
    debugger = PrecisionDebugger(dump_path=str(folder), **settings)
    try:
        with contextlib.ExitStack() as around:
            if begins == OUTSIDE:
                debugger.start(model)
            with context():
                if begins == INSIDE:
                    debugger.start(model)
                tokens = generate(model)
                if ends == INSIDE:
                    (model.head.weight.sum() * 2).exp()
                    debugger.stop()
                    debugger.step()
                else:
                    around.callback(debugger.step)
                    around.callback(debugger.stop)
            if ends == OUTSIDE:
                (model.head.weight.detach().sum() * 2).exp()
        with debugger.recording(model):
            training(model)
    finally:
        PrecisionDebugger.reset()
    assert not list(folder.rglob("dump_error_info.log"))
    files = [folder / f"step{number}" / "rank" / "dump.json" for number in (0, 1)]
    return [json.loads(file.read_text())["data"] for file in files], tokens.tolist()


def values_of(value: Any) -> Any:
    """A record without what depends on gradients, and on the place in the program."""
    if isinstance(value, dict):
        return {key: values_of(v) for key, v in value.items() if key not in ("requires_grad", "msprobe", "data_name")}
    return [values_of(v) for v in value] if isinstance(value, list) else value


class Deferred(TensorStatistics):
    """Treats tensors of the CPU as those of an accelerator."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, defer=True, **more)


@pytest.mark.parametrize("late", [False, True], ids=["now", "late"])
@pytest.mark.parametrize(
    ("level", "task"),
    [("L0", "statistics"), ("L1", "statistics"), ("mix", "statistics"), ("mix", "tensor"), ("L2", "statistics")],
)
def test_inference_mode_is_recorded_as_no_grad_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, task: str, late: bool
) -> None:
    if late:
        monkeypatch.setattr(recorder, "TensorStatistics", Deferred)
    for begins, ends in ((INSIDE, OUTSIDE), (OUTSIDE, INSIDE)):
        place = tmp_path / begins
        settings = {"level": level, "task": task}
        expected, tokens = recorded(place / "expected", torch.no_grad, begins, ends, **settings)
        found, generated = recorded(place / "found", torch.inference_mode, begins, ends, **settings)
        assert generated == tokens
        for step in (0, 1):
            assert list(found[step]) == list(expected[step]), (begins, ends, step)
            for name, record in found[step].items():
                assert values_of(record) == values_of(expected[step][name]), (begins, ends, name)
        assert level == "L2" or any(".backward" in name for name in found[1])
        assert level == "L0" or list(found[0])[-1].split(".")[1] == "exp"


def test_the_classes_of_graph_nodes_are_those_of_torch() -> None:
    leaf = torch.ones(1, requires_grad=True)
    written = leaf * 1
    written.view(1).mul_(1)
    found: Any = leaf.view(1).grad_fn
    assert type(found.next_functions[0][0]) is gradients.AccumulateGrad
    assert type(written.grad_fn) is gradients.CopySlices


def test_msprobe_can_be_imported_without_gradients_and_with_another_device(tmp_path: Path) -> None:
    """In a process of its own: a module is imported once."""
    program = f"""
import importlib, pkgutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode

seen = []

class Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(func)
        return func(*args, **(kwargs or {{}}))

with torch.inference_mode(), torch.no_grad(), torch.device("meta"):
    with Seeing():
        import msprobe.capture.torch
        for module in pkgutil.iter_modules(msprobe.capture.torch.__path__):
            try:
                importlib.import_module("msprobe.capture.torch." + module.name)
            except ModuleNotFoundError as missing:
                if missing.name != "triton":
                    raise
    assert not seen, seen
    from msprobe.pytorch import PrecisionDebugger
    for level in ("L0", "L1", "mix", "L2"):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
        debugger = PrecisionDebugger(dump_path={str(tmp_path)!r} + "/" + level, level=level, task="statistics")
        debugger.start(model)
        model(torch.ones(2, 3))
        debugger.stop()
        debugger.step()
        debugger.reset()
PrecisionDebugger(dump_path={str(tmp_path)!r} + "/after", level="mix", task="statistics")
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
PrecisionDebugger.start(model)
model(torch.ones(2, 3)).sum().backward()
PrecisionDebugger.stop()
PrecisionDebugger.step()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for level in ("L0", "L1", "mix", "L2", "after"):
        (file,) = (tmp_path / level).glob("step0/*/dump.json")
        names = list(json.loads(file.read_text())["data"])
        assert any("Linear.forward.0" in name or "linear" in name or "Aten.ones" in name for name in names), level
    assert "Module.0.Linear.backward.0" in names
    assert not list(tmp_path.rglob("dump_error_info.log"))

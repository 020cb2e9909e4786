"""Trainings as tests of the monitor need them: run without it and with it, equal to the last bit, and what it wrote."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizer_module

from msprobe.monitor.torch import trainer as trainer_module
from msprobe.monitor.torch.trainer import TrainerMon

SIX = ["min", "max", "mean", "norm", "nans", "zeros"]
EVERYTHING: dict[str, Any] = {
    "targets": {},
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "mg_direction": True,
    "ur_distribution": True,
    "stack_info": True,
    "ops": SIX,
    "squash_name": False,
}

#: Called by a training when its model and optimizer are there.
Attach = Callable[..., None]
#: Trains, from the same seed each time; returns whatever must be the same with and without the monitor.
Train = Callable[[Attach], Any]


class ModelM(nn.Module):
    """The model M of the specification."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc2(self.drop(torch.relu(self.fc1(x))))
        return out


PARAMETERS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


def train_m(
    steps: int = 2,
    accumulated: int = 1,
    dropout: float = 0.0,
    optimizer: Callable[..., Any] = torch.optim.Adam,
    before_step: Callable[[int, nn.Module], None] | None = None,
    **settings: Any,
) -> Train:
    """The training of the specification: model M, mean of squared outputs, Adam with a rate of 0.01."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM(dropout)
        adam = optimizer(model.parameters(), **{"lr": 0.01, **settings})
        attach(model, adam)
        torch.manual_seed(1)
        losses = []
        for step in range(steps):
            for _ in range(accumulated):
                loss = model(torch.randn(3, 4)).square().mean() / accumulated
                loss.backward()
                losses.append(loss.detach())
            if before_step is not None:
                before_step(step, model)
            adam.step()
            adam.zero_grad()
        return [model, adam, losses]

    return train


class Measured:
    """What a monitor has written."""

    def __init__(self, monitor: TrainerMon, result: Any = None) -> None:
        self.monitor = monitor
        self.result = result
        self.folder = Path(monitor.output_path) if monitor.output_path else None

    @property
    def files(self) -> list[str]:
        """The names of the csv files."""
        return sorted(path.name for path in self.folder.glob("*.csv")) if self.folder else []

    @property
    def quantities(self) -> set[str]:
        """What there are files of."""
        return {name.rpartition("_")[0] for name in self.files if name != "stack_info.csv"}

    def header(self, file: str) -> str:
        """The first line of a file."""
        assert self.folder is not None
        return (self.folder / file).read_text().splitlines()[0]

    def rows(self, quantity: str, **cells: Any) -> list[dict[str, str]]:
        """The rows of a quantity, in the order of steps and files; with these cells."""
        found: list[dict[str, str]] = []
        for path in self._of(quantity):
            with path.open(newline="") as file:
                found += csv.DictReader(file)
        return [row for row in found if all(row[name] == str(value) for name, value in cells.items())]

    def _of(self, quantity: str) -> Iterator[Path]:
        assert self.folder is not None, "nothing was written"
        paths = [path for path in self.folder.glob("*.csv") if path.name.rpartition("_")[0] == quantity]
        yield from sorted(paths, key=lambda path: int(path.stem.rpartition("_")[2].partition("-")[0]))

    def steps(self, quantity: str) -> list[int]:
        """The steps of a quantity, each once, in their order."""
        return list(dict.fromkeys(int(row["step"]) for row in self.rows(quantity)))

    def names(self, quantity: str, step: int = 0) -> list[str]:
        """The names of the rows of a step."""
        return [row["name"] for row in self.rows(quantity, step=step)]

    def norms(self, quantity: str, step: int = 0, op: str = "norm") -> dict[str, float]:
        """Name -> number, of a step that has one row for each name."""
        rows = self.rows(quantity, step=step)
        found = {row["name"]: number(row[op]) for row in rows}
        assert len(found) == len(rows), [row["name"] for row in rows]
        return found


def number(text: str) -> float:
    """A cell as a number."""
    return float({"True": "1", "False": "0"}.get(text, text))


def monitored(
    folder: Path, config: Mapping[str, Any], train: Train, made: Mapping[str, Any] | None = None, **attached: Any
) -> Measured:
    """Train twice, without and with a monitor that is ``made`` and ``attached`` so: nothing differs in the training,
    nothing is left attached.
    """
    bare = _ended(train, lambda model, optimizer, **more: None)
    monitor = make(folder, config, **(made or {}))
    seen_models: list[Any] = []

    def attach(model: Any, optimizer: Any, **more: Any) -> None:
        seen_models.append(model)
        monitor.set_monitor(model, optimizer=optimizer, **{**attached, **more})

    before = attached_to_torch()
    watched = _ended(train, attach)
    monitor.stop()
    assert seen_models, "the training has attached nothing"
    assert_same(bare[1:], watched[1:])
    for model in seen_models:
        assert_nothing_attached(model)
    assert attached_to_torch() == before
    return Measured(monitor, watched[0])


def make(folder: Path, config: Mapping[str, Any], **made: Any) -> TrainerMon:
    """A monitor with this configuration, which writes below ``folder``."""
    path = folder / "monitor.json"
    path.write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MONITOR_OUTPUT_DIR", str(folder / "out"))
        return TrainerMon(path, **made)


def _ended(train: Train, attach: Attach) -> tuple[Any, ...]:
    random.seed(3)
    np.random.seed(3)
    result = train(attach)
    return result, bits(result), random.getstate(), bits(np.random.get_state()), bits(torch.get_rng_state())


def bits(value: Any) -> Any:
    """Something that is equal for two values exactly if they are equal to the last bit."""
    if isinstance(value, torch.Tensor):
        whole = value.detach()
        if hasattr(whole, "to_local"):
            whole = whole.to_local()
        data = whole.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if whole.numel() else b""
        return str(whole.dtype), tuple(whole.shape), whole.stride(), value.requires_grad, data
    if isinstance(value, nn.Module):
        grads = {name: bits(one.grad) for name, one in value.named_parameters() if one.grad is not None}
        return {name: bits(one) for name, one in value.state_dict().items()}, grads, value.training
    if hasattr(value, "state_dict"):
        return bits(value.state_dict())
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return {key: bits(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(one) for one in value]
    if is_dataclass(value):
        return [bits(getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, float):
        return value.hex()
    return value


def assert_same(bare: Any, watched: Any, place: str = "") -> None:
    """The training without the monitor and that with it are equal to the last bit."""
    if isinstance(bare, dict) and isinstance(watched, dict):
        assert bare.keys() == watched.keys(), place
        for key in bare:
            assert_same(bare[key], watched[key], f"{place}.{key}")
    elif isinstance(bare, (list, tuple)) and isinstance(watched, (list, tuple)):
        assert len(bare) == len(watched), place
        for at, (one, other) in enumerate(zip(bare, watched, strict=True)):
            assert_same(one, other, f"{place}[{at}]")
    else:
        assert bare == watched, f"the training differs at {place}"


_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
)


def attached(model: Any) -> list[str]:
    """What is attached to the modules and parameters of a model, or of a list of them, and to what they inherit."""
    found = []
    for one in model if isinstance(model, (list, tuple)) else [model]:
        for name, module in one.named_modules():
            found += [f"{name}.{word}" for word in _HOOKS if getattr(module, word, None)]
            if type(module).__name__ != "OptimizedModule":
                found += [f"{name}.{word}" for word in ("forward", "__call__") if word in vars(module)]
        for name, parameter in one.named_parameters():
            words = ("_backward_hooks", "_post_accumulate_grad_hooks")
            found += [f"{name}.{word}" for word in words if getattr(parameter, word, None)]
    return found


def assert_nothing_attached(model: Any) -> None:
    """No hook is left on the model."""
    assert attached(model) == []


def attached_to_torch() -> list[Any]:
    """What is attached to torch as a whole."""
    hooks = [
        *optimizer_module._global_optimizer_pre_hooks.values(),
        *optimizer_module._global_optimizer_post_hooks.values(),
    ]
    modules = torch.nn.modules.module
    every = (modules._global_forward_hooks, modules._global_forward_pre_hooks, modules._global_backward_hooks)
    hooks += [hook for kind in every for hook in kind.values()]
    parts = (
        torch.autograd.profiler.record_function.__exit__,
        torch.amp.GradScaler.step,
        torch.amp.GradScaler.unscale_,
        getattr(torch.optim.Adam.step, "__wrapped__", None),
        torch.optim.Optimizer.step,
        torch.autograd.Function.apply,
        nn.Module.__call__,
    )
    return [*hooks, *parts, torch._C._len_torch_function_stack()]


def expected(tensor: torch.Tensor, eps: float = 1e-8) -> dict[str, float]:
    """The six statistics of a tensor of floats, computed by numpy in double."""
    values = tensor.detach().double().numpy().ravel()
    return {
        "min": float(values.min()),
        "max": float(values.max()),
        "mean": float(values.mean()),
        "norm": math.sqrt(float((values * values).sum())),
        "nans": float(np.isnan(values).sum()),
        "zeros": float((np.abs(values) < eps).mean()),
    }


def assert_row(row: Mapping[str, str], tensor: torch.Tensor, ops: Sequence[str] = SIX) -> None:
    """The row has the statistics, the shape and the type of ``tensor``, to nine digits."""
    wanted = expected(tensor)
    for op in ops:
        assert number(row[op]) == pytest.approx(wanted[op], rel=1e-8, abs=1e-15, nan_ok=True), (row["name"], op)
    assert row["shape"] == str(list(tensor.shape))
    assert row["dtype"] == str(tensor.dtype)


@pytest.fixture(params=["as usual", "without the C extension", "as on a device"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The three ways in which tensors are measured."""
    if request.param == "as on a device":
        monkeypatch.setenv(trainer_module.DEFER, "1")
    elif request.param == "without the C extension":
        from msprobe.capture import native

        monkeypatch.setattr(native, "numbers", None)
        monkeypatch.setattr(native, "count_below", None)
    return str(request.param)

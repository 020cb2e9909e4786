"""The same small program in each framework that can be recorded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("numpy", "torch", "mindspore")


@dataclass(frozen=True)
class World:
    """One framework: its tensors, a few of its functions, and its debugger."""

    name: str
    # Keys of entries: a function, one that calls another inside, a module.
    tanh_key: str
    outer_key: str
    module_key: str
    file_ending: str
    tensor: Callable[[Any], Any]
    array: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    concat: Callable[..., Any]
    concat_key: str
    # The same function, given what it refuses at once.
    refused: Callable[[Any], Any]
    outer: Callable[[Any], Any]
    model: Callable[[], Any]
    # Makes the debugger, and what ends it.
    debugger: Callable[..., tuple[Any, Callable[[], None]]]
    # Where describing a tensor can be made to fail: (module or object, attribute).
    reading: Callable[[Any], tuple[Any, str]]


def world(name: str) -> World:
    """Raises ImportError where the framework is not installed."""
    return {"numpy": numpy_world, "torch": torch_world, "mindspore": mindspore_world}[name]()


def numpy_world() -> World:
    from conformance import numpy_adapter as own

    def debugger(folder: Path, **settings: Any) -> tuple[Any, Callable[[], None]]:
        made = own.NumpyDebugger(folder, **settings)
        return made, made.end

    return World(
        "numpy",
        "Numpy.tanh",
        "Numpy.softplus",
        "Module.layer.Layer",
        ".npy",
        lambda values: np.array(values, np.float32),
        np.asarray,
        lambda x: own.FUNCTIONS.tanh(x),
        lambda *args, **kwargs: own.FUNCTIONS.concat(*args, **kwargs),
        "Numpy.concat",
        lambda x: own.FUNCTIONS.concat([x, 3]),
        lambda x: own.FUNCTIONS.softplus(x),
        lambda: own.Layer(np.array([2.0], np.float32)),
        debugger,
        lambda made: (made.tensors.statistics, "describe"),
    )


def torch_world() -> World:
    torch = importlib.import_module("torch")
    from msprobe.pytorch import PrecisionDebugger

    class Model(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Tanh()

        def forward(self, x: Any) -> Any:
            return self.layer(x * 2)

    def debugger(folder: Path, **settings: Any) -> tuple[Any, Callable[[], None]]:
        PrecisionDebugger.reset()
        return PrecisionDebugger(dump_path=str(folder), **settings), PrecisionDebugger.reset

    return World(
        "torch",
        "Torch.tanh",
        "Functional.layer_norm",
        "Module.layer.Tanh",
        ".pt",
        lambda values: torch.tensor(values, dtype=torch.float32),
        lambda x: x.detach().numpy(),
        lambda x: torch.tanh(x),
        lambda parts, axis=0: torch.cat(parts, dim=axis),
        "Torch.cat",
        lambda x: torch.cat([x, x[0]]),
        lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        Model,
        debugger,
        lambda made: (made.recorder.statistics, "describe"),
    )


def mindspore_world() -> World:
    ms = importlib.import_module("mindspore")
    nn, ops = importlib.import_module("mindspore.nn"), importlib.import_module("mindspore.ops")
    from msprobe.mindspore import PrecisionDebugger

    class Model(nn.Cell):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Tanh()

        def construct(self, x: Any) -> Any:
            return self.layer(x * 2)

    def debugger(folder: Path, **settings: Any) -> tuple[Any, Callable[[], None]]:
        ms.set_context(mode=ms.PYNATIVE_MODE)
        PrecisionDebugger.reset()
        return PrecisionDebugger(dump_path=str(folder), **settings), PrecisionDebugger.reset

    return World(
        "mindspore",
        "Functional.tanh",
        "Functional.std",
        "Cell.layer.Tanh",
        ".npy",
        lambda values: ms.Tensor(np.array(values, np.float32)),
        lambda x: x.asnumpy(),
        lambda x: ops.tanh(x),
        lambda parts, axis=0: ops.concat(parts, axis=axis),
        "Functional.concat",
        lambda x: ops.concat([x, 3]),
        lambda x: ops.std(x),
        Model,
        debugger,
        lambda made: (made.recorder.statistics, "describe"),
    )

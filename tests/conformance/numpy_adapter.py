"""An adapter for programs that calculate with numpy alone: all it takes to be recorded by the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.capture.adapter import Followed, PlacedTensor
from msprobe.capture.array_files import ArrayKeeper, array_file_writer
from msprobe.capture.array_statistics import ArrayStatistics, HostArray
from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.units import UnitRecorder, recorded
from msprobe.config.load import load_settings


class Functions:
    """What such a program calls."""

    def tanh(self, x: Any) -> Any:
        return np.tanh(x)

    def add(self, x: Any, y: Any) -> Any:
        return np.add(x, y)

    def concat(self, parts: Any, axis: int = 0) -> Any:
        if not all(isinstance(part, np.ndarray) for part in parts):
            raise TypeError("all parts must be arrays")
        return np.concatenate(parts, axis)

    def softplus(self, x: Any) -> Any:
        # Calls another function of its kind.
        return np.log1p(np.exp(FUNCTIONS.add(x, 0)))


FUNCTIONS = Functions()


class Layer:
    """A module: it tells of its passes."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight
        self.watcher: Any = None

    def __call__(self, x: Any) -> Any:
        if self.watcher is not None:
            self.watcher.enter("Module.layer.Layer", self, (x,), {})
        result = FUNCTIONS.tanh(x * self.weight)
        if self.watcher is not None:
            self.watcher.leave("Module.layer.Layer", self, result)
        return result


class Tensors:
    def __init__(self, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        self.statistics = statistics
        self.keeper = keeper

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def describe(self, tensor: Any) -> Any:
        host = HostArray(np.ascontiguousarray(tensor), tensor.dtype.name)
        return self.statistics.describe("numpy.ndarray", host.kind, tensor.shape, host)

    def keep(self, tensor: Any, description: Any, path: str) -> Any:
        return self.keeper.keep(HostArray(tensor, tensor.dtype.name), description, path)


class Modules:
    def own_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        return [("weight", module.weight)]

    def is_training(self, module: Any) -> bool:
        return True

    def ran(self, name: str, module: Any) -> None:
        """No gradients."""


class _NoGradients:
    """For programs without a backward pass."""

    def note(self, tensors: Sequence[PlacedTensor]) -> None:
        """Nothing."""

    def watch(self, unit: Followed, note: Any, tensors: Sequence[PlacedTensor]) -> None:
        """Nothing."""

    def close_open(self) -> None:
        """Nothing."""


class NumpyDebugger:
    """start, stop and step, as the debuggers of the frameworks have them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        chosen = load_settings(dump_path=folder, **settings)
        stacks = CallStacks(
            lambda file: file == __file__,
            lambda code: False,
            lambda code: code.co_filename == __file__,
        )
        self.session = session = Session(chosen, "numpy", lambda: None, stacks)
        session.folder.file_writer = array_file_writer
        self.keeper = ArrayKeeper(session)
        statistics = ArrayStatistics("structure" if chosen.task == "structure" else chosen.summary_mode)
        self.tensors = Tensors(statistics, self.keeper)
        describer = Describer(self.tensors.describe, self.tensors.is_tensor, {})
        describer.failed = lambda error: session.fault("a value", error)
        self.units = UnitRecorder(session, describer, self.tensors, _NoGradients(), self.keeper.overflowed)
        self.units.modules = Modules()
        session.at_step_end.append(self.keeper.overflowed.begin_step)
        self._layer: Layer | None = None

    def start(self, model: Layer | None = None) -> None:
        if not self.session.start():
            return
        level = self.session.settings.level
        for name in () if level == "L0" else ("tanh", "add", "concat", "softplus"):
            original: Callable[..., Any] = getattr(Functions(), name)
            setattr(FUNCTIONS, name, recorded(self.units, f"Numpy.{name}", original))
        if model is not None and level in ("L0", "mix"):
            self._layer, model.watcher = model, self.units

    def stop(self) -> None:
        vars(FUNCTIONS).clear()
        if self._layer is not None:
            self._layer.watcher = None
        self.session.stop()

    def step(self) -> None:
        self.session.next_step()

    def end(self) -> None:
        vars(FUNCTIONS).clear()
        self.session.close()

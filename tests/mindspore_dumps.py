"""Recording small MindSpore trainings in tests, and looking at what was written. Import only where MindSpore is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn, ops

from msprobe.mindspore import PrecisionDebugger

WHY = "MindSpore is not installed here; `make test-mindspore` runs these"


class Dump:
    """The folder that a recording wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[str]:
        """Names of the step folders, in order of their numbers."""
        return sorted((f.name for f in self.folder.glob("step*")), key=lambda name: int(name[4:]))

    def file(self, step: int = 0, name: str = "dump.json", rank: str = "rank") -> dict[str, Any]:
        """One JSON file of a step."""
        found: dict[str, Any] = json.loads((self.folder / f"step{step}" / rank / name).read_text())
        return found

    def data(self, step: int = 0, rank: str = "rank") -> dict[str, Any]:
        """The records of a step."""
        found: dict[str, Any] = self.file(step, rank=rank)["data"]
        return found

    def names(self, step: int = 0, part: str = "") -> list[str]:
        """Names of the entries of a step, in order, that contain `part`."""
        return [name for name in self.data(step) if part in name]

    def saved(self, step: int = 0) -> dict[str, Any]:
        """What save() wrote."""
        found: dict[str, Any] = self.file(step, "debug.json")["data"]
        return found

    def tensors(self, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """The tensor files of a step, by name."""
        folder = self.folder / f"step{step}" / "rank" / "dump_tensor_data"
        return {f.name: np.load(f, allow_pickle=False) for f in sorted(folder.glob("*.npy"))}

    def errors(self) -> list[str]:
        """What could not be recorded."""
        return [f.read_text() for f in self.folder.glob("step*/*/dump_error_info.log")]


class Block(nn.Cell):
    """Dense, ReLU, primitives, mint softmax, an operator, ops.tanh, mint.mul, mint Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(8, 16)
        self.relu = nn.ReLU()
        self.add = ops.Add()
        self.mul = ops.Mul()
        self.fc2 = mint.nn.Linear(16, 4)

    def construct(self, x: Any) -> Any:
        h = self.relu(self.fc1(x))
        h = self.mul(self.add(h, h), 0.5)
        h = mint.nn.functional.softmax(h, dim=-1)
        h = ops.tanh(h + 1)
        return self.fc2(mint.mul(h, 2.0))


class Toy(nn.Cell):
    """The block and a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.blk = Block()
        self.ln = nn.LayerNorm((4,))

    def construct(self, x: Any) -> Any:
        return self.ln(self.blk(x))


def batch(seed: int = 0, shape: tuple[int, ...] = (3, 8)) -> Any:
    """Random numbers, the same for the same seed."""
    return ms.Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def gradients_of(model: nn.Cell) -> Callable[..., Any]:
    """Loss and gradients of the parameters, of one batch."""

    def loss(x: Any) -> Any:
        return ((model(x) - 1) ** 2).sum()

    found: Callable[..., Any] = ms.value_and_grad(loss, None, model.trainable_params())
    return found


def train_step(debugger: PrecisionDebugger, model: nn.Cell, seed: int = 0) -> Any:
    """One step of a training, recorded."""
    gradients = gradients_of(model)
    debugger.start(model)
    result = gradients(batch(seed))
    debugger.stop()
    debugger.step()
    return result


class Recorder:
    """Makes the debugger of a test; the dump goes to the test's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dump = Dump(folder)

    def __call__(self, **settings: Any) -> PrecisionDebugger:
        PrecisionDebugger.reset()
        return PrecisionDebugger(**{"dump_path": str(self.folder), **settings})

    def end(self) -> Dump:
        """The program ends."""
        PrecisionDebugger.reset()
        return self.dump


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Recorder]:
    """Makes debuggers; none is left behind."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    PrecisionDebugger.reset()
    ms.set_seed(0)
    np.random.seed(0)
    yield Recorder(tmp_path / "dump")
    PrecisionDebugger.reset()

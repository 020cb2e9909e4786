"""Recording small MindSpore trainings in tests, and looking at what was written. Import only where MindSpore is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn, ops

from msprobe.capture.mindspore import kernels
from msprobe.capture.mindspore.gradients import backward_graph as graph
from msprobe.mindspore import PrecisionDebugger
from support import dump_folder

WHY = "MindSpore is not installed here; `make test-mindspore` runs these"


needs_graph = pytest.mark.skipif(
    not graph.is_readable(), reason="this MindSpore does not show its graph: no gradients of arguments"
)
needs_kernels = pytest.mark.skipif(not kernels.is_there(), reason="this MindSpore does not tell of kernels")


class Dump(dump_folder.Dump):
    """The folder that a recording wrote."""

    def tensors(self, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """The tensor files of a step, by name."""
        folder = self.folder / f"step{step}" / "rank" / "dump_tensor_data"
        return {f.name: np.load(f, allow_pickle=False) for f in sorted(folder.glob("*.npy"))}


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
        return self.fc2(mint.mul(h, h))


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
    with debugger.recording(model):
        return gradients(batch(seed))


class Recorder(dump_folder.Recorder):
    """Makes the debugger of a test; the dump goes to the test's own folder."""

    debugger = PrecisionDebugger
    dumps = Dump


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Recorder]:
    """Makes debuggers; none is left behind."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    PrecisionDebugger.reset()
    ms.set_seed(0)
    np.random.seed(0)
    yield Recorder(tmp_path / "dump")
    PrecisionDebugger.reset()

"""Recording small trainings in tests, and looking at what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger
from support import dump_folder
from support.recorded import ModelT


class Dump(dump_folder.Dump):
    """The folder that a recording wrote."""

    def tensors(self, step: int = 0) -> dict[str, torch.Tensor]:
        """The tensor files of a step, by name."""
        folder = self.folder / f"step{step}" / "rank" / "dump_tensor_data"
        return {f.name: torch.load(f, weights_only=True) for f in sorted(folder.glob("*.pt"))}


class Toy(ModelT):
    """Linear, LayerNorm, gelu, `+ 1`, Linear, softmax."""


def toy_loss(model: nn.Module, seed: int = 0) -> torch.Tensor:
    """The loss of one batch, the same for the same seed."""
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed))
    loss: torch.Tensor = (model(x) ** 2).sum()
    return loss


class Recorder(dump_folder.Recorder):
    """Makes the debugger of a test; the dump goes to the test's own folder."""

    debugger = PrecisionDebugger
    dumps = Dump


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Recorder]:
    """Makes debuggers; none is left behind."""
    PrecisionDebugger.reset()
    torch.manual_seed(0)
    yield Recorder(tmp_path / "dump")
    PrecisionDebugger.reset()

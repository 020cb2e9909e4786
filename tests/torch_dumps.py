"""Recording small trainings in tests, and looking at what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger


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

    def tensors(self, step: int = 0) -> dict[str, torch.Tensor]:
        """The tensor files of a step, by name."""
        folder = self.folder / f"step{step}" / "rank" / "dump_tensor_data"
        return {f.name: torch.load(f, weights_only=True) for f in sorted(folder.glob("*.pt"))}

    def errors(self) -> list[str]:
        """What could not be recorded."""
        return [f.read_text() for f in self.folder.glob("step*/*/dump_error_info.log")]


class Toy(nn.Module):
    """Linear, LayerNorm, gelu, `+ 1`, Linear, softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.l1 = nn.Linear(8, 16)
        self.n = nn.LayerNorm(16)
        self.l2 = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.n(self.l1(x))) + 1
        return nn.functional.softmax(self.l2(x), dim=-1)


def toy_loss(model: nn.Module, seed: int = 0) -> torch.Tensor:
    """The loss of one batch, the same for the same seed."""
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed))
    loss: torch.Tensor = (model(x) ** 2).sum()
    return loss


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
    PrecisionDebugger.reset()
    torch.manual_seed(0)
    yield Recorder(tmp_path / "dump")
    PrecisionDebugger.reset()

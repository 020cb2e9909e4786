"""Real recordings for tests: run something between start and stop, read back what was written, with json alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from msprobe.pytorch import PrecisionDebugger


class Dump:
    """What one step of one rank left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file: dict[str, Any] = json.loads((folder / "dump.json").read_text())
        self.data: dict[str, Any] = self.file["data"]
        self.construct: dict[str, Any] = json.loads((folder / "construct.json").read_text())
        self.stack: dict[str, Any] = json.loads((folder / "stack.json").read_text())
        self.files = {file.name for file in folder.glob("dump_tensor_data/*")}

    @property
    def names(self) -> list[str]:
        """All calls, in the order of execution (gradients of parameters have no place in it)."""
        place = {name: entry["msprobe"]["order"] for name, entry in self.data.items() if "msprobe" in entry}
        return sorted(place, key=lambda name: int(place[name]))

    def forward(self) -> list[str]:
        """The forward entries without their ending, in the order of execution."""
        return [name.removesuffix(".forward") for name in self.names if name.endswith(".forward")]

    def backward(self) -> list[str]:
        """The backward entries of calls without their ending, in the order of execution."""
        return [name.removesuffix(".backward") for name in self.names if name.endswith(".backward")]

    def frames_of(self, entry: str) -> list[str]:
        """The call stack of an entry, innermost frame first."""
        (frames,) = [frames for entries, frames in self.stack.values() if entry in entries]
        return list(frames)

    def load(self, name: str) -> torch.Tensor:
        """A saved tensor."""
        tensor: torch.Tensor = torch.load(self.folder / "dump_tensor_data" / name, weights_only=True)
        return tensor


def record(place: Path, work: Callable[[], Any], model: Any = None, **settings: Any) -> Dump:
    """One recorded step of ``work``."""
    return record_steps(place, [work], model, **settings)[0]


def record_steps(place: Path, works: list[Callable[[], Any]], model: Any = None, **settings: Any) -> list[Dump]:
    """One recorded step of each of ``works``."""
    settings = {"task": "statistics", "level": "L1", **settings}
    debugger = PrecisionDebugger(dump_path=str(place), **settings)
    try:
        for work in works:
            debugger.start(model)
            try:
                work()
            finally:
                debugger.stop()
                debugger.step()
    finally:
        PrecisionDebugger.reset()
    return [Dump(place / f"step{number}" / "rank") for number in range(len(works))]


class ModelT(nn.Module):
    """The model of the acceptance checks."""

    def __init__(self) -> None:
        super().__init__()
        self.l1 = nn.Linear(8, 16)
        self.n = nn.LayerNorm(16)
        self.l2 = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.l2(F.gelu(self.n(self.l1(x))) + 1), dim=-1)


def loss_of(result: torch.Tensor) -> torch.Tensor:
    """The loss of the acceptance checks."""
    loss: torch.Tensor = (result**2).sum()
    return loss


def is_value_of(described: dict[str, Any], tensor: torch.Tensor) -> bool:
    """True if shape, type and statistics of a description are those of ``tensor``."""
    with torch.no_grad():
        wide = tensor.detach().double()
        expected = (wide.max(), wide.min(), wide.mean(), wide.norm())
        found = [described[key] for key in ("Max", "Min", "Mean", "Norm")]
        return (
            described["shape"] == list(tensor.shape)
            and described["dtype"] == str(tensor.dtype)
            and all(abs(a - float(b)) <= 2e-6 * max(1.0, abs(float(b))) for a, b in zip(found, expected, strict=True))
        )

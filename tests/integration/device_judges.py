"""``judges.py FOLDER``: the pre-check and lockstep with a device as the candidate; JSON of what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import simdev
import torch
import torch.nn.functional as F
from torch import nn

from msprobe.lockstep.verdict import judge_lockstep
from msprobe.pytorch import PrecisionDebugger, check_api

#: Calls with their arguments.
CALLS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "matmul": (torch.matmul, [(16, 24), (24, 8)]),
    "softmax": (lambda x: x.softmax(-1), [(16, 24)]),
    "layer_norm": (lambda x: F.layer_norm(x, (24,)), [(16, 24)]),
    "gelu": (F.gelu, [(16, 24)]),
    "argmax": (lambda x: x.argmax(-1), [(16, 24)]),
}


class Model(nn.Module):
    """Two layers around a norm; ``wrong``: the activation is written otherwise."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(x))
        return self.last(torch.sigmoid(y) * y if self.wrong else F.silu(y) * 1.0)


def train(device: str, wrong: bool = False) -> None:
    """Two steps; ``wrong``: the loss is too large."""
    torch.manual_seed(0)
    model = Model(wrong).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for number in range(2):
        generator = torch.Generator().manual_seed(number)
        x, goals = torch.randn(12, 8, generator=generator), torch.randint(0, 4, (12,), generator=generator)
        PrecisionDebugger.start(model)
        loss = F.cross_entropy(model(x.to(device)), goals.to(device))
        optimizer.zero_grad()
        (loss * 1.5 if wrong else loss).backward()
        optimizer.step()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()


def in_lockstep(folder: Path, device: str, wrong: bool = False) -> dict[str, Any]:
    """A training on a device against the one on the CPU."""
    reference = folder / "reference"
    if not reference.exists():
        PrecisionDebugger(task="tensor", level="mix", dump_path=str(reference), optimizer=True)
        train("cpu")
        PrecisionDebugger.reset()
    own = folder / f"{device}{wrong}"
    PrecisionDebugger(task="lockstep", reference=str(reference), verdict="later", dump_path=str(own))
    train(device, wrong)
    PrecisionDebugger.reset()
    verdict = judge_lockstep(own, reference)
    kinds = [one.kind for one in verdict.findings if not one.harmless]
    return {"status": verdict.status, "kinds": kinds, "counts": verdict.summary["lockstep"]}


def checked(device: str) -> dict[str, list[str]]:
    """What the pre-check says of the device's kernels."""
    found = {}
    for name, (function, shapes) in CALLS.items():
        generator = torch.Generator().manual_seed(0)
        given = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
        one = check_api(function, *given, candidate=device)
        found[name] = [one.forward, one.backward]
    return found


def main(folder: Path) -> None:
    """All of it."""
    simdev.load()
    found: dict[str, Any] = {
        "healthy": in_lockstep(folder, "sim"),
        "wrong": in_lockstep(folder, "sim", True),
        "checked": checked("auto"),
        "fault": checked("inject:scale=0.1"),
    }
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

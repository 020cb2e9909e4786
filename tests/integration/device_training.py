"""``training.py DEVICE FOLDER``: a small training, recorded in every task and level, and once without; JSON of each.

Forward and backward have views, writes in place, a mask, autograd's own threads, an infinity and a NaN; the optimizer
steps by AdamW.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import simdev
import torch
import torch.nn.functional as F
from torch import nn

from msprobe.pytorch import PrecisionDebugger

# Level -> how many steps are recorded.
LEVELS = {"L0": 2, "L1": 1, "mix": 1, "L2": 1}
TASKS: dict[str, dict[str, Any]] = {
    "statistics": {"task": "statistics", "summary_mode": "statistics"},
    "md5": {"task": "statistics", "summary_mode": "md5"},
    "xor": {"task": "statistics", "summary_mode": "xor"},
    "xxh3": {"task": "statistics", "summary_mode": "xxh3"},
    "structure": {"task": "structure"},
    "tensor": {"task": "tensor"},
    "overflow_check": {"task": "overflow_check", "overflow_nums": -1},
    "nan_check": {"task": "nan_check", "overflow_nums": -1},
}


class Block(nn.Module):
    """Attention and a layer that keeps all sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mixed = nn.Linear(8, 24, bias=False)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mixed(self.norm(x)).chunk(3, dim=-1)
        mask = torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf"))
        x = x + self.out(scores.softmax(-1) @ v)
        x[:, 0] *= 2
        return x


class Overflow(nn.Module):
    """Half precision that has no room."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.half() * 1e6


class Model(nn.Module):
    """Embedding, two blocks, a head; beside it what overflows and is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 11)
        self.overflow = Overflow()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        with torch.no_grad():
            wide = self.overflow(x)
            wide.sub_(wide.clone()).relu()
        return self.head(x)


def train(device: str, steps: int, folder: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Some steps of the training; ``folder`` None: without a recorder. What waited in a step before ``stop``."""
    torch.manual_seed(1)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3, foreach=False)
    tokens = [torch.randint(0, 11, (2, 5)).to(device) for _ in range(steps)]
    debugger = None if folder is None else PrecisionDebugger(dump_path=str(folder), **settings)
    waits, launches = 0, 0
    where: dict[str, int] = {}
    for batch in tokens:
        trace = simdev.Trace() if device == "sim" else None
        if trace is not None:
            trace.__enter__()
        if debugger is not None:
            debugger.start(model)
        F.cross_entropy(model(batch).flatten(0, 1), batch.flatten()).backward()
        optimizer.step()
        if trace is not None:
            trace.__exit__()
            waits += trace.number_of_waits
            launches += trace.number_of_launches
            for (what, frames), number in trace.waits.items():
                key = f"{what} in {frames[0] if frames else '-'}"
                where[key] = where.get(key, 0) + number
        if debugger is not None:
            debugger.stop()
            debugger.step()
        optimizer.zero_grad()
    if debugger is not None:
        PrecisionDebugger.reset()
    # The next random numbers are those that they would have been, too.
    kept = [*model.parameters(), torch.rand(4, device=device)]
    weights = b"".join(tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in kept)
    return {"waits": waits, "where": where, "launches": launches, "weights": hashlib.sha256(weights).hexdigest()}


def main() -> None:
    """Run all of them."""
    device, folder = sys.argv[1], Path(sys.argv[2])
    simdev.load()
    found = {f"off-{level}": train(device, steps, None, {}) for level, steps in LEVELS.items()}
    for task, settings in TASKS.items():
        for level, steps in LEVELS.items():
            name = f"{task}-{level}"
            found[name] = train(device, steps, folder / name, {**settings, "level": level})
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()

"""What the gradient probe costs: a training step of the transformer of model.py with it on, over one with it off.

    python bench/monitor/grad_probe.py [--steps 41] [--rounds 3] [--width 128] [--levels L0 L1 L2]

One thread. On and off alternate in blocks of a few steps within one process; the figure is the ratio of the medians of
the two, of each round, and the median over rounds. Waiting for files at the end of a block counts to the block.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from model import Transformer

from msprobe.pytorch import PrecisionDebugger

BLOCK = 5


class Training:
    """A training that goes on, in blocks."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.model = Transformer(width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.tokens = torch.randint(0, 2000, (4, 64))

    def block(self, config: Path | None) -> list[float]:
        """Seconds of each step of a block; with the probe on if a configuration is given."""
        debugger = None
        if config is not None:
            debugger = PrecisionDebugger(str(config))
            debugger.monitor(self.model)
            self._step()  # names and optimizers are looked up in the first one
        times = []
        for _ in range(BLOCK):
            begin = time.perf_counter()
            self._step()
            times.append(time.perf_counter() - begin)
        if debugger is not None:
            begin = time.perf_counter()
            debugger.stop()
            times = [one + (time.perf_counter() - begin) / BLOCK for one in times]
            PrecisionDebugger.reset()
        return times

    def _step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.tokens).backward()
        self.optimizer.step()


def measure(level: str, steps: int, width: int) -> tuple[float, float]:
    """Median seconds of a step without and with the probe."""
    training = Training(width)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_text(
            json.dumps({"task": "grad_probe", "dump_path": f"{folder}/out", "grad_probe": {"grad_level": level}})
        )
        training.block(None)
        training.block(config)
        off: list[float] = []
        on: list[float] = []
        while len(off) < steps:
            off += training.block(None)
            on += training.block(config)
    return statistics.median(off), statistics.median(on)


def main() -> None:
    """Print a line for each level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=41)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--levels", nargs="+", default=["L0", "L1", "L2"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for level in args.levels:
        found = [measure(level, args.steps, args.width) for _ in range(args.rounds)]
        ratios = [on / off for off, on in found]
        each = " ".join(f"{ratio:.3f}" for ratio in ratios)
        base = 1000 * statistics.median(off for off, _ in found)
        print(f"{level}: {statistics.median(ratios):.3f}x of {base:.1f} ms  ({each})", flush=True)


if __name__ == "__main__":
    main()

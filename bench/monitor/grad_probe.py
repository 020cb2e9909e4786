"""What the gradient probe costs: a training step of the transformer of model.py with it on, over one with it off.

    python bench/monitor/grad_probe.py [--steps 41] [--rounds 3] [--width 128] [--levels L0 L1 L2]

One thread computes. On and off alternate in blocks of a few steps within one process; a figure is the ratio of the
medians of the two, of each round, and of these the median. Three figures: CPU time of the training's thread, which is
what a training waits for where a second core writes files; CPU time of all threads, writing included; and wall time,
which says something on a quiet machine only. Waiting for files at the end of a block counts to the block.
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

BLOCK = 8
Times = tuple[float, ...]


def clocks() -> Times:
    """Seconds of the training's thread, of all threads, and of the clock on the wall."""
    return time.thread_time(), time.process_time(), time.perf_counter()


class Training:
    """A training that goes on, in blocks."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.model = Transformer(width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.tokens = torch.randint(0, 2000, (4, 64))

    def block(self, config: Path | None) -> list[Times]:
        """What each step of a block took; with the probe on if a configuration is given."""
        debugger = None
        if config is not None:
            debugger = PrecisionDebugger(str(config))
            debugger.monitor(self.model)
            self._step()  # names and optimizers are looked up in the first one
            while not any(Path(debugger.settings.dump_path).glob("*/*.csv")):
                time.sleep(0.01)
        times = []
        begin_of_block = clocks()
        for _ in range(BLOCK):
            begin = clocks()
            self._step()
            times.append(tuple(now - then for now, then in zip(clocks(), begin, strict=True)))
        if debugger is not None:
            debugger.stop()
            # Of all threads the end of the block counts, where everything is written; its steps share it.
            _, process, wall = (now - then for now, then in zip(clocks(), begin_of_block, strict=True))
            times = [(thread, process / BLOCK, wall / BLOCK) for thread, _, _ in times]
            PrecisionDebugger.reset()
        return times

    def _step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.tokens).backward()
        self.optimizer.step()


def configured(folder: str, level: str, number: int) -> Path:
    """A configuration of a block, which writes to a folder of its own: removing what is there is not measured."""
    file = Path(folder, "config.json")
    section = {"grad_level": level}
    file.write_text(json.dumps({"task": "grad_probe", "dump_path": f"{folder}/{number}", "grad_probe": section}))
    return file


def measure(level: str, steps: int, width: int) -> list[tuple[float, float]]:
    """Median seconds of a step without and with the probe, by each clock."""
    training = Training(width)
    with tempfile.TemporaryDirectory() as folder:
        training.block(None)
        training.block(configured(folder, level, -1))
        off: list[Times] = []
        on: list[Times] = []
        while len(off) < steps:
            off += training.block(None)
            on += training.block(configured(folder, level, len(on)))
    return [
        (statistics.median(one), statistics.median(other))
        for one, other in zip(zip(*off, strict=True), zip(*on, strict=True), strict=True)
    ]


def main() -> None:
    """Print a line for each level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=41)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--levels", nargs="+", default=["L0", "L1", "L2"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for level in args.levels:
        rounds = [measure(level, args.steps, args.width) for _ in range(args.rounds)]
        told = []
        for place, name in enumerate(("training thread", "all threads", "wall")):
            ratio = statistics.median(one[place][1] / one[place][0] for one in rounds)
            base = 1000 * statistics.median(one[place][0] for one in rounds)
            told.append(f"{name} {ratio:.3f}x of {base:.1f} ms")
        print(f"{level}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()

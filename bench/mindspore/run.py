"""What recording a MindSpore training costs: steps with and without, in turns, in one process; medians.

    make test-mindspore        # once: the environment
    OMP_NUM_THREADS=1 .venv-mindspore/bin/python bench/mindspore/run.py

The network is eight blocks of dense layers with a residual, LayerNorm and GELU, 64 rows of 256 numbers, Adam. Off means
that no debugger exists; idle, that one exists and has recorded before, and that start() is not called.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from msprobe.mindspore import PrecisionDebugger

SETTINGS: dict[str, dict[str, Any]] = {
    "L0": {"level": "L0"},
    "L1": {"level": "L1"},
    "L1, all": {"level": "L1", "api_scope": "all"},
    "mix": {"level": "mix"},
    "mix, md5": {"level": "mix", "summary_mode": "md5"},
    "mix, structure": {"level": "mix", "task": "structure"},
    "L0, tensor": {"level": "L0", "task": "tensor"},
}
GOALS = {"L0": 1.5, "mix": 3.0, "idle": 1.02}


class Block(nn.Cell):
    """Dense, GELU, dense, residual, LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Dense(width, 2 * width)
        self.gelu = nn.GELU()
        self.narrow = nn.Dense(2 * width, width)
        self.norm = nn.LayerNorm((width,))

    def construct(self, x: Any) -> Any:
        return self.norm(x + self.narrow(self.gelu(self.wide(x))))


def main() -> int:
    """Print a table of ratios; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="steps of each kind (30)")
    parser.add_argument("--width", type=int, default=256, help="numbers in a row (256)")
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch (64)")
    chosen = parser.parse_args()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(1)
    model = nn.SequentialCell(*(Block(chosen.width) for _ in range(8)))
    optimizer = nn.Adam(model.trainable_params(), 1e-4)
    x = ms.Tensor(np.random.default_rng(0).standard_normal((chosen.rows, chosen.width)).astype(np.float32))
    gradients = ms.value_and_grad(lambda x: ops.square(model(x)).mean(), None, optimizer.parameters)

    def step() -> None:
        loss, grads = gradients(x)
        optimizer(grads)
        loss.asnumpy()

    for _ in range(5):
        step()
    print(
        f"MindSpore {ms.__version__}, {chosen.rows} rows of {chosen.width}, {chosen.rounds} steps of each kind, medians"
    )
    print(f"{'':16}{'off':>10}{'recorded':>12}{'ratio':>8}{'idle':>8}")
    missed = False
    for name, settings in SETTINGS.items():
        off, on, idle = measure(step, model, settings, chosen.rounds)
        ratio, idle_ratio = on / off, idle / off
        print(f"{name:16}{off * 1e3:8.1f} ms{on * 1e3:9.1f} ms{ratio:8.2f}{idle_ratio:8.2f}")
        missed |= ratio > GOALS.get(name, ratio)
    return int(missed)


def measure(step: Callable[[], None], model: nn.Cell, settings: dict[str, Any], rounds: int) -> tuple[float, ...]:
    """Seconds of CPU of a step without, with and beside recording."""
    folder = tempfile.mkdtemp(prefix="msprobe-bench-")
    times: dict[str, list[float]] = {"off": [], "on": [], "idle": []}
    debugger = PrecisionDebugger(dump_path=folder, **settings)
    try:
        for _ in range(rounds):
            PrecisionDebugger.reset()
            times["off"].append(timed(step))
            debugger = PrecisionDebugger(dump_path=folder, **settings)

            def recorded(debugger: PrecisionDebugger = debugger) -> None:
                debugger.start(model)
                step()
                debugger.stop()
                debugger.step()

            recorded()  # what is learnt once
            times["on"].append(timed(recorded))
            times["idle"].append(timed(step))
    finally:
        PrecisionDebugger.reset()
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(statistics.median(found) for found in times.values())


def timed(work: Callable[[], None]) -> float:
    """Seconds of CPU of all threads: the machine may be shared."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


if __name__ == "__main__":
    sys.exit(main())

"""One process of ``run.py``: two equal trainings in turns, the second one monitored. Prints the median ratio."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model import Transformer

RANKS = int(os.environ.get("BENCH_RANKS", "1"))
# Several ranks wait for each other, which processor time does not show.
CLOCK: Callable[[], float] = time.process_time if RANKS == 1 else time.perf_counter


class WatchedAdam(torch.optim.Adam):
    """A class of its own: the published package replaces the step of the class, which the other training must keep."""


def training(width: int, kind: type[torch.optim.Adam] = torch.optim.Adam) -> tuple[Any, Any, Callable[[], None]]:
    """A model, its optimizer, and what trains it for one step."""
    torch.manual_seed(0)
    model: Any = Transformer(width)
    if RANKS > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = kind(model.parameters(), lr=1e-3)
    batch = torch.randint(0, 2000, (4, 64))

    def step() -> None:
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()

    return model, optimizer, step


def main() -> None:
    """Measure."""
    path, width, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    if RANKS > 1:
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{os.environ['BENCH_STORE']}",
            rank=int(os.environ["BENCH_RANK"]),
            world_size=RANKS,
        )
    _, _, off = training(width)
    model, optimizer, on = training(width, WatchedAdam)
    off()
    on()
    if path != "-":
        from msprobe.pytorch import TrainerMon

        monitor = TrainerMon(path, params_have_main_grad=False)
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for _ in range(3):
        off()
        on()
    ratios, ons, offs = [], 0.0, 0.0
    for count in range(steps):
        times = {}
        for name, step in (("off", off), ("on", on)) if count % 2 else (("on", on), ("off", off)):
            begin = CLOCK()
            step()
            times[name] = CLOCK() - begin
        ratios.append(times["on"] / times["off"])
        ons, offs = ons + times["on"], offs + times["off"]
    # Steps that are not measured cost less than those that are: there the sum counts.
    print(
        ons / offs if "step_interval" in (Path(path).read_text() if path != "-" else "") else statistics.median(ratios)
    )


if __name__ == "__main__":
    main()

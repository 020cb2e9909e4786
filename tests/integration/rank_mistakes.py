"""Two gloo ranks that train with a mistake of the program: `rank_mistakes.py FOLDER JOB...`.

A job is `mistake` or `mistake:mode`, recorded into FOLDER/{job}. `launch` starts the ranks and ends them when they take
too long.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from support import forked

WORLD_SIZE, SECONDS, STEPS = 2, 200.0, 4
#: How long an exchange waits for its partner in a job that lets it wait.
PATIENCE = 4.0


def launch(folder: Path, jobs: Sequence[str]) -> None:
    """Run all jobs on two ranks; AssertionError with what the ranks said if one fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(WORLD_SIZE)}
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "MSPROBE_LOG_LEVEL": "3"}
    ranks = [
        forked.start(__file__, str(folder), *jobs, cwd=Path.cwd(), env={**environment, "RANK": str(rank)})
        for rank in range(WORLD_SIZE)
    ]
    forked.end_of_all(ranks, SECONDS)


# ---------------------------------------------------------------- in the ranks


def train(mistake: str, start: Callable[[Any], None], end: Callable[[], None]) -> None:
    """A training of :data:`STEPS` steps; each begins with ``start(model)`` and ends with ``end()``."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    momentum = 0.3 if mistake == "momentum" else 0.1
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=momentum), nn.ReLU(), nn.Linear(16, 4))
    model = DistributedDataParallel(net, broadcast_buffers=mistake != "own_averages")
    if mistake == "hook":
        # A hook for communication that forgets to communicate.
        _unreduced.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
        model.register_comm_hook(None, _unreduced)
    called = model.module if mistake in ("around", "by_hand", "left_out") else model
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for number in range(2 if mistake == "left_out" else STEPS):
        start(model)
        generator = torch.Generator().manual_seed(10 * number + dist.get_rank())
        x, y = torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)
        optimizer.zero_grad()
        if (mistake == "every_second" and number % 2) or (mistake == "accumulated" and number >= 1):
            with model.no_sync():
                nn.functional.mse_loss(called(x), y).backward()
        else:
            nn.functional.mse_loss(called(x), y).backward()
        if mistake in ("by_hand", "left_out"):
            _exchange(net, left_out=mistake == "left_out" and number == 1)
        optimizer.step()
        end()
    if mistake == "left_out":
        time.sleep(PATIENCE + 2)  # the other rank waits for what does not come


def _unreduced(state: Any, bucket: Any) -> Any:
    import torch

    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _exchange(net: Any, left_out: bool) -> None:
    """The mean of the gradients over the ranks; rank 1 leaves the last one out."""
    import torch.distributed as dist

    parameters = list(net.parameters())
    for parameter in parameters[:-1] if left_out and dist.get_rank() == 1 else parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD_SIZE


def _run(folder: Path, job: str) -> None:
    import torch.distributed as dist

    from msprobe.pytorch import PrecisionDebugger

    mistake, _, mode = job.partition(":")
    patience = PATIENCE if mistake == "left_out" else 60.0
    rank = int(os.environ["RANK"])
    meeting = f"file://{folder}/meeting-{job}"
    dist.init_process_group("gloo", meeting, rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=patience))
    summary = "xxh3" if mode == "digest" else "statistics"
    debugger = PrecisionDebugger(
        dump_path=str(folder / job), task="statistics", level="L0" if mode == "L0" else "mix", summary_mode=summary
    )

    def end() -> None:
        debugger.stop()
        debugger.step()

    try:
        train(mistake, debugger.start, end)
    except RuntimeError:
        if mistake != "left_out":
            raise
        end()
    finally:
        PrecisionDebugger.reset()
        dist.destroy_process_group()


if __name__ == "__main__":
    for asked in sys.argv[2:]:
        _run(Path(sys.argv[1]), asked)

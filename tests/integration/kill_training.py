"""A training on one or several gloo ranks that is recorded and killed: `kill_training.py TASK RANKS KILLS SEED FOLDER`.

For each kill the ranks are forked from this process, which has imported torch and computed nothing. All are killed
at one random moment. Printed as JSON, a line for each kill: for each rank the step it was in, and how many records
of that step the recorder had handed over to the writer, which had returned.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

_STEP_BITS = 32


class Board:
    """What each rank has reached: one number for each, which a kill cannot leave half-written."""

    def __init__(self, ranks: int) -> None:
        self._memory = mmap.mmap(-1, 4096)
        self._ranks = ranks

    def tell(self, rank: int, step: int, count: int) -> None:
        self._memory[8 * rank : 8 * rank + 8] = (step << _STEP_BITS | count).to_bytes(8, "little")

    def hear(self) -> list[tuple[int, int]]:
        numbers = [int.from_bytes(self._memory[8 * rank : 8 * rank + 8], "little") for rank in range(self._ranks)]
        return [(number >> _STEP_BITS, number & (1 << _STEP_BITS) - 1) for number in numbers]


def watch_writer(board: Board, rank: int) -> None:
    """Tell the board of every record once the writer has taken it."""
    from msprobe.store.writer import DumpWriter

    def watched(method: Any) -> Any:
        def call(self: DumpWriter, *arguments: Any) -> None:
            method(self, *arguments)
            board.tell(rank, int(self.folder.parent.name.removeprefix("step")), self.count)

        return call

    for name in ("put", "put_encoded", "put_call"):
        setattr(DumpWriter, name, watched(getattr(DumpWriter, name)))


def train(task: str, ranks: int, rank: int, folder: Path, board: Board) -> None:
    """Train until killed: two layers, dropout, a norm and AdamW; with several ranks under DDP."""
    import torch
    import torch.distributed as dist

    from msprobe.pytorch import PrecisionDebugger

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo")
    torch.manual_seed(rank)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    if ranks > 1:
        rendezvous = f"file://{folder}/rendezvous"
        dist.init_process_group(
            "gloo", init_method=rendezvous, rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
        )
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    config = folder / f"config{rank}.json"
    config.write_text(json.dumps({"task": task, "dump_path": str(folder / "dump"), "level": "mix"}))
    debugger = PrecisionDebugger(config_path=str(config))
    watch_writer(board, rank)
    while True:
        debugger.start(model=model)
        for _ in range(2):
            model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()


def kill_once(task: str, ranks: int, folder: Path, after: float) -> list[tuple[int, int]]:
    """Train in ``ranks`` processes and kill them ``after`` seconds after the first record."""
    board = Board(ranks)
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            try:
                train(task, ranks, rank, folder, board)
            finally:
                sys.stderr.flush()
                os._exit(1)
        children.append(child)
    until = time.monotonic() + 120
    while not all(count for _, count in board.hear()) and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(after)
    for child in children:
        os.kill(child, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [-signal.SIGKILL] * ranks, f"ranks ended by themselves: {codes}"
    return board.hear()


def main() -> None:
    task, ranks, kills, seed, folder = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
    # Imported here, so that a fork costs milliseconds. No backward may run before it: its threads do not survive.
    import torch
    import torch._dynamo  # an optimizer's first step imports it
    import torch.distributed

    import msprobe.pytorch  # noqa: F401

    torch.set_num_threads(1)
    moments = random.Random(seed)
    os.environ["MSPROBE_LOG_LEVEL"] = "3"
    for number in range(kills):
        here = folder / str(number)
        here.mkdir()
        print(json.dumps(kill_once(task, ranks, here, moments.uniform(0.0, 0.15 * ranks))), flush=True)


if __name__ == "__main__":
    main()

"""A training on two ranks, with gradients that a wrapper averages unseen; each way in a folder of its own. Those of
names that begin with ``sharded-`` are recorded at level L0.

python -m process.diagnose.two_ranks FOLDER PRECISION NAME ...
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bugs.kernels.device import Device
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
#: Micro-batches of a step, of which the last is synchronised.
PASSES = 2


def averaged(rank: int, precision: str, wrong: str) -> Any:
    """The model, and its step. ``wrong``: ``undivided`` (sums of gradients), ``dropped`` (only the last micro-batch
    counts), ``synchronised`` (each micro-batch is averaged, which comes to the same).
    """
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model: Any = DistributedDataParallel(_network().to(dtype))
    if wrong == "undivided":
        model.register_comm_hook(None, _undivided)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        optimizer.zero_grad()
        for micro in range(PASSES):
            generator = torch.Generator().manual_seed(100 * number + 10 * micro + rank)
            tokens = torch.randint(0, 30, (4, 10), generator=generator)
            is_last = micro == PASSES - 1
            with contextlib.nullcontext() if is_last or wrong == "synchronised" else model.no_sync():
                logits = model(tokens).float()
                loss = F.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten()) / PASSES
                loss.backward()
            if wrong == "dropped" and not is_last:
                optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return model, step


def sharded(precision: str, wrong: str) -> Any:
    """The same of a model that is sharded, whose gradients are never whole. ``wrong``: ``unclipped``."""
    model: Any = _network().to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
        tokens = torch.randint(0, 30, (4, 10), generator=generator)
        loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.roll(-1, 1).flatten())
        loss.backward()
        if wrong != "unclipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return model, step


def exchanged(precision: str, wrong: str) -> Any:
    """The same of two micro-batches, of which the last is synchronised. ``wrong``: ``synchronised`` (each of them, what
    comes to the same), ``each`` (so on the same device), ``dropped`` (each, of which the last alone counts).
    """
    model: Any = _network().to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        for micro in range(PASSES):
            model.set_requires_gradient_sync(micro == PASSES - 1 or wrong in ("synchronised", "each", "dropped"))
            generator = torch.Generator().manual_seed(100 * number + 10 * micro + dist.get_rank())
            tokens = torch.randint(0, 30, (4, 10), generator=generator)
            loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.roll(-1, 1).flatten()) / PASSES
            loss.backward()
            if wrong == "dropped" and micro < PASSES - 1:
                optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return model, step


def by_hand(rank: int, precision: str, wrong: str) -> Any:
    """Gradients that the program itself averages. ``wrong``: ``undivided``."""
    model = _network().to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        generator = torch.Generator().manual_seed(100 * number + rank)
        tokens = torch.randint(0, 30, (4, 10), generator=generator)
        loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.roll(-1, 1).flatten())
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            if wrong != "undivided":
                parameter.grad /= RANKS  # type: ignore[operator]
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return model, step


def staged(rank: int, precision: str, wrong: str) -> Any:
    """Two stages of a pipeline, whose parameters have the same names. ``wrong``: ``scaled`` (the gradient that the
    second stage sends back is half of what it should be).
    """
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(24, 24), nn.GELU(), nn.LayerNorm(24)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        held = torch.zeros(8, 24, dtype=dtype)
        if rank == 0:
            inputs = torch.randn(8, 24, generator=torch.Generator().manual_seed(number)).to(dtype)
            outputs = model(inputs)
            dist.send(outputs.detach(), 1)
            dist.recv(held, 1)
            outputs.backward(held)
        else:
            dist.recv(held, 0)
            held.requires_grad_()
            F.mse_loss(model(held).float(), torch.ones(8, 24)).backward()
            assert held.grad is not None
            dist.send(held.grad / 2 if wrong == "scaled" else held.grad, 0)
        optimizer.step()

    return model, step


def _network() -> nn.Module:
    return nn.Sequential(nn.Embedding(30, 24), nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30))


def _undivided(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


# The wrapper compares them with types, and they are strings here.
_undivided.__annotations__.clear()


def train(rank: int, store: str, folder: Path, precision: str, names: list[str]) -> None:
    """One rank: each way but the reference behind another device."""
    from msprobe.pytorch import PrecisionDebugger

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    for name in names:
        torch.manual_seed(0)
        kind, _, wrong = name.rpartition("-")
        makers = {
            "sharded": lambda _, *given: sharded(*given),
            "exchanged": lambda _, *given: exchanged(*given),
            "by_hand": by_hand,
            "staged": staged,
        }
        model, step = makers.get(kind, averaged)(rank, precision, wrong)
        level = "L0" if kind == "sharded" else "mix"
        debugger = PrecisionDebugger(dump_path=str(folder / name), task="statistics", level=level)
        debugger.start(model)
        with Device("" if wrong in ("reference", "each") else "tiles"):
            step(0)
        debugger.stop()
        debugger.step()
        PrecisionDebugger.reset()
    dist.barrier()
    # What gloo's threads do while Python ends may abort the process (pytorch/pytorch#179291).
    os._exit(0)


def main() -> None:
    folder, precision, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        context = multiprocessing.get_context("spawn")
        given = f"{place}/store", Path(folder), precision, names
        ranks = [context.Process(target=train, args=(rank, *given)) for rank in range(RANKS)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join(240)
        sys.exit(max(one.exitcode or 0 for one in ranks))


if __name__ == "__main__":
    main()

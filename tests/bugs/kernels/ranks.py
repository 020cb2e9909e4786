"""Two ranks of one training, whose gradients go through a collective; each device and fault in a folder of its own.

python -m bugs.kernels.ranks FOLDER NETWORK PRECISION NAME=VARIANT[+FAULT] ...

Precision ``sharded``: two steps of FSDP2, with weights in float32 and calls in bfloat16.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from .device import Device
from .faults import FAULTS
from .networks import Training
from .record import WARM_UP

RANKS = 2
SHARDED = "sharded"


def train(rank: int, store: str, folder: Path, network: str, precision: str, wanted: dict[str, str]) -> None:
    """One rank: of each device the steps after the warm-up are recorded with statistics."""
    from msprobe.pytorch import PrecisionDebugger

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    drawn: Any = torch.randint

    def of_this_rank(low: int, high: int, size: Any, generator: torch.Generator) -> torch.Tensor:
        made: torch.Tensor = drawn(
            low, high, size, generator=torch.Generator().manual_seed(generator.initial_seed() + 1000 * rank)
        )
        return made

    torch.randint = of_this_rank  # type: ignore[assignment]
    for name, device in wanted.items():
        variant, _, fault = device.partition("+")
        training = _sharded(network) if precision == SHARDED else _averaged(network, precision)
        for number in range(WARM_UP):
            training.step(number)
        debugger = PrecisionDebugger(dump_path=str(folder / name), task="statistics", level="mix")
        for number in range(2 if precision == SHARDED else 1):
            debugger.start(model=training.model)
            with Device(variant, FAULTS[fault] if fault else None):
                training.step(WARM_UP + number)
            debugger.stop()
            debugger.step()
        PrecisionDebugger.reset()
    dist.barrier()
    # What gloo's threads do while Python ends may abort the process (pytorch/pytorch#179291).
    os._exit(0)


def _averaged(network: str, precision: str) -> Training:
    training = Training(network, precision)
    training.network = replace(training.network, averages=True)
    return training


def _sharded(network: str) -> Training:
    training = Training(network, "float32")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(training.model, mp_policy=policy)
    training.optimizer = training.network.optimizer(training.model.parameters())
    # FSDP2 averages by itself.
    training.network = replace(training.network, averages=False)
    return training


def main() -> None:
    folder, network, precision, *wanted = sys.argv[1:]
    devices = dict(one.split("=", 1) for one in wanted)
    with tempfile.TemporaryDirectory() as place:
        given = (f"{place}/store", Path(folder), network, precision, devices)
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=train, args=(rank, *given)) for rank in range(RANKS)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join(120)
        sys.exit(max(one.exitcode or 0 for one in ranks))


if __name__ == "__main__":
    main()

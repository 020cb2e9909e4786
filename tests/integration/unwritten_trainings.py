"""Healthy trainings of two gloo ranks whose libraries allocate buffers and fill them later, each recorded twice: as it
is, and after other memory was used and freed, full of NaN and large numbers.

`unwritten_trainings.py FOLDER JOB...`, a job being `training@level-mode`. Models, batches and seeds are the same in
both; so whatever differs between the two dumps was in memory before. `record` starts the ranks.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

#: Starting the ranks and importing torch on a busy machine, and each training.
SECONDS, SECONDS_OF_ONE = 120.0, 8.0
STEPS = 2
MODES: dict[str, dict[str, Any]] = {
    "statistics": {"task": "statistics"},
    "xxh3": {"task": "statistics", "statistics": {"summary_mode": "xxh3"}},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
}
Training = Callable[[Any], None]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _train(model: nn.Module, optimizer: Any = None, same_data: bool = False) -> Training:
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run(debugger: Any) -> None:
        for step in range(STEPS):
            seed = 10 * step + (0 if same_data else dist.get_rank())
            debugger.start(model)
            optimizer.zero_grad()
            loss = (model(_drawn(seed, 6, 8)).float() - _drawn(seed + 5, 6, 3)).square().mean()
            loss.backward()
            optimizer.step()
            debugger.stop()
            debugger.step()

    return run


def _ddp(**settings: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.002, **settings)


def _zero1(view: bool) -> Training:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = _ddp(gradient_as_bucket_view=view)
    shared = {"parameters_as_bucket_view": not view, "lr": 1e-2}
    return _train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **shared))


def _fsdp1(bfloat16: bool = False, **settings: Any) -> Training:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    if bfloat16:
        settings["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if "sharding_strategy" in settings:
        settings["sharding_strategy"] = ShardingStrategy[settings["sharding_strategy"]]
    wrap = ModuleWrapPolicy({Block})
    return _train(
        FullyShardedDataParallel(Model(), device_id=torch.device("cpu"), auto_wrap_policy=wrap, **settings)
    )  # fmt: skip


def _fsdp2(reshard: bool, bfloat16: bool = False) -> Training:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    settings: dict[str, Any] = {"mesh": init_device_mesh("cpu", (2,)), "reshard_after_forward": reshard}
    if bfloat16:
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Model()
    for part in (*model.blocks, model):
        fully_shard(part, **settings)
    return _train(model)


def _tensor_parallel() -> Training:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = Model()
    for block in model.blocks:
        parallelize_module(block, init_device_mesh("cpu", (2,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return _train(model, torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False), same_data=True)


def _pipeline(schedule: str, stages_of_a_rank: int = 1) -> Training:
    """Stages that ask each other for the shapes of what they exchange."""
    from torch.distributed import pipelining
    from torch.distributed.pipelining import schedules

    rank, count = dist.get_rank(), 2 * stages_of_a_rank
    torch.manual_seed(1 + rank)
    parts = nn.ModuleList(Block(8) for _ in range(stages_of_a_rank))
    stages = [pipelining.PipelineStage(part, rank + 2 * i, count, torch.device("cpu")) for i, part in enumerate(parts)]
    runner = getattr(schedules, schedule)(
        stages[0] if stages_of_a_rank == 1 else stages, n_microbatches=4, loss_fn=F.mse_loss
    )
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-2)

    def run(debugger: Any) -> None:
        for step in range(STEPS):
            debugger.start(list(parts))
            optimizer.zero_grad()
            if rank == 0:
                runner.step(_drawn(step, 8, 8))
            else:
                runner.step(target=_drawn(step + 5, 8, 8), losses=[])
            optimizer.step()
            debugger.stop()
            debugger.step()

    return run


def _by_hand() -> Training:
    """Buffers that are cut, filled in parts, gathered and received into; what is left of one is masked away."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = dist.get_rank()

    def run(debugger: Any) -> None:
        for step in range(STEPS):
            debugger.start(model)
            optimizer.zero_grad()
            out = model(_drawn(10 * step + rank, 6, 8))
            whole = torch.empty(2 * out.numel())
            own = whole.chunk(2)[rank]
            own.copy_(out.detach().flatten())
            for view in (whole.split(9)[0], whole.view(2, -1).t(), whole[4:20]):
                view.size()
            dist.all_gather_into_tensor(whole, own.clone())
            padded = torch.empty(10, 3)
            padded[:6] = out.detach()
            padded[6:] = 0
            columns = torch.empty(6, 5)
            columns[:, :3] = out.detach()
            columns[:, 3:] = 1.0
            parts = list(torch.empty(12, 3).chunk(2))
            dist.all_gather(parts, out.detach())
            strided = torch.empty_strided((6, 3), (1, 6))
            strided.copy_(out.detach())
            kept = padded.sum() + columns.sum() + parts[0].sum() + strided.t().contiguous().sum() + whole.sum()
            loss = (out - _drawn(step, 6, 3)).square().mean() + kept.square() * 0.01
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            debugger.stop()
            debugger.step()

    return run


TRAININGS: dict[str, Callable[[], Training]] = {
    "ddp": lambda: _train(_ddp()),
    "ddp_views": lambda: _train(_ddp(gradient_as_bucket_view=True)),
    "ddp_static": lambda: _train(_ddp(gradient_as_bucket_view=True, static_graph=True)),
    "zero1": lambda: _zero1(False),
    "zero1_views": lambda: _zero1(True),
    "fsdp1": _fsdp1,
    "fsdp1_parameters": lambda: _fsdp1(use_orig_params=True),
    "fsdp1_bfloat16": lambda: _fsdp1(bfloat16=True),
    "fsdp1_gradients": lambda: _fsdp1(sharding_strategy="SHARD_GRAD_OP"),
    "fsdp2": lambda: _fsdp2(True),
    "fsdp2_kept": lambda: _fsdp2(False),
    "fsdp2_bfloat16": lambda: _fsdp2(True, True),
    "fsdp2_kept_bfloat16": lambda: _fsdp2(False, True),
    "tensor_parallel": _tensor_parallel,
    "gpipe": lambda: _pipeline("ScheduleGPipe"),
    "one_forward_one_backward": lambda: _pipeline("Schedule1F1B"),
    "interleaved": lambda: _pipeline("ScheduleInterleaved1F1B", 2),
    "zero_bubble": lambda: _pipeline("ScheduleInterleavedZeroBubble", 2),
    "by_hand": _by_hand,
}


def soil_memory() -> None:
    """Use memory of all sizes and give it back, so that what is allocated next is full of it."""
    for value in (float("nan"), 1e30, float("inf")):
        kept = [torch.full((count,), value) for count in [*range(1, 400, 7), *(2**k for k in range(8, 17))] * 4]
        kept += [torch.full((count,), value, dtype=torch.bfloat16) for count in range(1, 200, 9)]
        random.Random(0).shuffle(kept)
        del kept
    large = [torch.full((2_000_000,), float("nan")) for _ in range(3)]
    del large


def record(folder: Path, jobs: Sequence[str]) -> None:
    """Record all jobs into `FOLDER/JOB/clean` and `soiled`; AssertionError with what the ranks said if one fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["MSPROBE_LOG_LEVEL"] = "3"
    logs = [folder / f"rank{rank}.log" for rank in range(2)]
    ranks = []
    for rank, log in enumerate(logs):
        with log.open("w") as output:
            command = [sys.executable, "-X", "faulthandler", "-W", "ignore", __file__, str(folder), *jobs]
            more = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**environment, **more})
            )
    until = time.monotonic() + SECONDS + SECONDS_OF_ONE * len(jobs)
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()
    assert not any(rank.returncode for rank in ranks), "\n".join(log.read_text()[-2000:] for log in logs)


def main(folder: Path, jobs: Sequence[str]) -> None:
    from msprobe.pytorch import PrecisionDebugger

    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    for job in jobs:
        name, _, how = job.partition("@")
        level, _, mode = how.partition("-")
        for side in ("clean", "soiled"):
            config = folder / f"config{rank}.json"
            settings = {**MODES[mode], "level": level, "dump_path": str(folder / job / side), "async_dump": False}
            config.write_text(json.dumps(settings))
            torch.manual_seed(1)
            PrecisionDebugger.reset()
            training = TRAININGS[name]()
            debugger = PrecisionDebugger(config_path=str(config))
            if side == "soiled":
                soil_memory()
            training(debugger)
            PrecisionDebugger.reset()
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

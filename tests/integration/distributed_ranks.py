"""Two gloo ranks that record what they do, for the tests to read: `distributed_ranks.py FOLDER SCENARIO...`.

The rank is in the variable `TEST_RANK`, so that a test can leave the launcher's variables out. Each scenario
records into FOLDER/{scenario}. `launch` starts the ranks and ends them when they take too long.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from support import forked

WORLD_SIZE = 2
SECONDS = 240.0


def launch(folder: Path, scenarios: list[str], with_launcher: bool = True) -> None:
    """Run the scenarios on two ranks, one after the other; AssertionError with what the ranks said if one
    fails.

    `with_launcher`: set RANK and WORLD_SIZE, as torchrun does.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    ranks = []
    for rank in range(WORLD_SIZE):
        own = {**environment, "TEST_RANK": str(rank)}
        if with_launcher:
            own.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE))
        ranks.append(forked.start(__file__, str(folder), *scenarios, cwd=Path.cwd(), env=own))
    forked.end_of_all(ranks, SECONDS)


# ---------------------------------------------------------------- in the ranks

Scenario = Callable[[int, str], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(work: Scenario) -> Scenario:
    SCENARIOS[work.__name__] = work
    return work


def join(folder: str) -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/rendezvous", rank=int(os.environ["TEST_RANK"]),
            world_size=WORLD_SIZE, timeout=timedelta(seconds=30),
        )  # fmt: skip


def debugger(path: str, **settings: Any) -> Any:
    from msprobe.pytorch import PrecisionDebugger

    return PrecisionDebugger(dump_path=path, **{"task": "statistics", "level": "L1", **settings})


@scenario
def start_before_the_group(rank: int, path: str) -> None:
    """Two steps; the process group is made after the first start and the first record."""
    import torch

    recorder = debugger(path)
    for _ in range(2):
        recorder.start()
        torch.ones(2) + rank
        join(os.path.dirname(path))
        torch.distributed.all_reduce(torch.ones(2))
        recorder.stop()
        recorder.step()


@scenario
def every_kind(rank: int, path: str) -> None:
    """The calls of the acceptance list: synchronous, asynchronous, point to point, a sub-group."""
    import torch
    import torch.distributed as dist
    from torch.distributed import all_gather, recv, send

    group = dist.new_group([0, 1])
    early = dist.P2POp(dist.isend, torch.full((2,), 10.0 + rank), 1 - rank)
    recorder = debugger(path)
    recorder.start()
    x = torch.full((3,), float(rank + 1))
    dist.all_reduce(x)
    y = torch.full((3,), float(rank + 1))
    dist.all_reduce(y, op=dist.ReduceOp.MAX, async_op=True).wait()
    y.zero_()
    all_gather([torch.zeros(3), torch.zeros(3)], x, group=group)
    dist.broadcast(torch.full((2,), float(rank)), src=1)
    buffer = torch.zeros(2)
    if rank == 0:
        send(torch.full((2,), 5.0), 1)
        dist.isend(torch.full((2,), 6.0), 1).wait()
    else:
        assert recv(buffer, 0) == 0
        assert buffer.tolist() == [5, 5]
        dist.irecv(buffer, 0).wait()
        assert buffer.tolist() == [6, 6]
        buffer.zero_()
    other = torch.zeros(2)
    for work in dist.batch_isend_irecv([early, dist.P2POp(dist.irecv, other, 1 - rank)]):
        work.wait()
    assert other.tolist() == [11.0 - rank] * 2
    other.zero_()
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, torch.arange(4.0))
    dist.all_to_all_single(torch.zeros(2), torch.full((2,), float(rank)))
    dist.gather(x, [torch.zeros(3), torch.zeros(3)] if rank == 0 else None, dst=0)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, rank)
    dist.barrier()
    recorder.stop()
    recorder.step()


@scenario
def only_rank_1(rank: int, path: str) -> None:
    import torch

    recorder = debugger(path, rank=[1])
    recorder.start()
    torch.distributed.all_reduce(torch.ones(2))
    recorder.stop()
    recorder.step()


@scenario
def data_parallel(rank: int, path: str) -> None:
    """DDP: each rank has its own data; the optimizer sees the mean of the gradients."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = debugger(path, level="mix")
    for _ in range(2):
        optimizer.zero_grad()
        recorder.start(model)
        (model(torch.full((2, 4), float(rank + 1))).sum() * (rank + 1)).backward()
        optimizer.step()
        recorder.stop()
        recorder.step()


@scenario
def communication_hook(rank: int, path: str) -> None:
    """DDP whose hook reduces in half precision, by a future that is continued."""
    import torch
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    recorder = debugger(path)
    recorder.start(model)
    model(torch.ones(2, 4) * (rank + 1)).sum().backward()
    recorder.stop()
    recorder.step()


@scenario
def sharded(rank: int, path: str) -> None:
    """FSDP2: parameters are gathered and gradients reduced and scattered by torch's own Python code."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    recorder = debugger(path, level="mix")
    recorder.start(model)
    model(torch.full((2, 4), float(rank + 1))).square().mean().backward()
    optimizer.step()
    recorder.stop()
    recorder.step()


@scenario
def listened(rank: int, path: str) -> None:
    """DDP, then FSDP2: what a listener is told of steps of the optimizer, and of collectives, without a dump."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    from msprobe.listeners import Observer, Wants
    from msprobe.pytorch import Listening, PrecisionDebugger

    told: list[Any] = []

    class Steps(Observer):
        wants = Wants(kinds=("optimizer", "collective"))

        def before(self, event: Any) -> None:
            told.append(["before", event.name, numbers(event)])

        def after(self, event: Any, result: Any) -> None:
            told.append(["after", event.name, numbers(event)])

    def numbers(event: Any) -> dict[str, list[float]]:
        """The sums of weight, gradient and moments of each parameter, of this rank's shard."""
        return {
            name: [
                float(getattr(value, "_local_tensor", value).detach().sum())
                for value in (one.weight, one.gradient, *one.moments.values())
            ]
            for name, one in getattr(event, "parameters", {}).items()
        }

    def build() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    PrecisionDebugger.reset()
    sharded_model = build()
    fully_shard(sharded_model, mesh=init_device_mesh("cpu", (WORLD_SIZE,)))
    for model in (DistributedDataParallel(build()), sharded_model):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        with Listening(Steps()) as listening, listening.step(model):
            model(torch.full((2, 4), float(rank + 1))).square().mean().backward()
            optimizer.step()
        gradients = [
            [name, float(getattr(p.grad, "_local_tensor", p.grad).sum())] for name, p in model.named_parameters()
        ]
        told.append(["end", type(model).__name__, gradients])
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/rank{rank}.json", "w") as file:
        json.dump(told, file)


@scenario
def tensor_parallel(rank: int, path: str) -> None:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    recorder = debugger(path, level="mix")
    left = distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)])
    right = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    for _ in range(2):
        recorder.start(model)
        model(torch.ones(2, 4)).square().mean().backward()
        (left @ right).full_tensor()
        recorder.stop()
        recorder.step()


@scenario
def pipelined(rank: int, path: str) -> None:
    """A schedule of torch's: in its first step it finds out shapes by passes through memory that nobody wrote."""
    import torch
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    for level in ("mix", "L0", "L2"):
        stage = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        part = PipelineStage(stage, rank, WORLD_SIZE, torch.device("cpu"))
        runner = ScheduleGPipe(part, 2, loss_fn=nn.functional.mse_loss)
        recorder = debugger(f"{path}_{level}", level=level)
        for _ in range(2):
            stage.zero_grad()
            recorder.start(stage)
            runner.step(torch.ones(4, 4)) if rank == 0 else runner.step(target=torch.ones(4, 4))
            recorder.stop()
            recorder.step()
        type(recorder).reset()


@scenario
def probed(rank: int, path: str) -> None:
    """The gradient probe: DDP with filters, FSDP2 at two levels, FSDP1; and what the gradients are without it."""
    import numpy as np
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.nn.parallel import DistributedDataParallel

    from msprobe.pytorch import PrecisionDebugger

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc1 = nn.Linear(4, 6)
            self.fc2 = nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc2(self.fc1(x).relu())

    def train(way: str, wrap: Callable[[nn.Module], nn.Module], top: dict[str, Any], **section: Any) -> nn.Module:
        os.makedirs(path, exist_ok=True)
        model = Model()
        config = f"{path}/{way}{rank}.json"
        Path(config).write_text(
            json.dumps({"task": "grad_probe", "dump_path": f"{path}/{way}", **top, "grad_probe": section})
        )
        recorder = PrecisionDebugger(config)
        if way != "ddp":
            recorder.monitor(model)  # wrapped only later
        wrapped = wrap(model)
        if way == "ddp":
            recorder.monitor(wrapped)
        optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            wrapped(torch.full((2, 4), float(rank + step + 1))).square().mean().backward()
            optimizer.step()
        PrecisionDebugger.reset()
        return wrapped

    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    ddp = {"rank": [1], "step": [0, 2]}
    train("ddp", DistributedDataParallel, ddp, grad_level="L1", param_list=["module.fc1.weight"])
    model = train("fsdp2", lambda model: fully_shard(model, mesh=mesh), {}, grad_level="L2")
    gradient = model.fc1.weight.grad.full_tensor()
    np.save(f"{path}/full{rank}.npy", gradient.numpy())
    train("fsdp2_l0", lambda model: fully_shard(model, mesh=mesh), {}, grad_level="L0")
    cpu = torch.device("cpu")
    train("fsdp1", lambda model: FullyShardedDataParallel(model, use_orig_params=True, device_id=cpu), {})


@scenario
def going_bad(rank: int, path: str) -> None:
    """Four runs: sound; rank 1 divides by zero before an all_reduce; rank 0 takes the root of a negative number after
    one, and collectives and messages spread it; the same, which a batch of messages spreads.
    """
    import torch
    import torch.distributed as dist

    def run(name: str, divisor: float, root: float, batch: bool = False) -> None:
        recorder = debugger(f"{path}_{name}")
        recorder.start()
        x = torch.ones(2, 4) / (divisor if rank == 1 else 1.0)
        dist.all_reduce(x)
        x = torch.mul(x, 2.0)
        x = torch.sqrt(x * root if rank == 0 else x)
        received = torch.zeros(2, 4)
        if batch:
            operation = dist.P2POp(dist.isend, x, 1) if rank == 0 else dist.P2POp(dist.irecv, received, 0)
            for work in dist.batch_isend_irecv([operation]):
                work.wait()
            x = torch.add(x, received)
        else:
            parts = [torch.zeros(2, 4) for _ in range(WORLD_SIZE)]
            dist.all_gather(parts, x)
            if rank == 0:
                dist.isend(x, 1).wait()
                dist.send(x, 1)
            else:
                dist.irecv(received, 0).wait()
                dist.recv(received, 0)
            x = torch.cat([*parts, received])
            dist.broadcast(x, 0)
        torch.add(x, 1.0)
        recorder.stop()
        recorder.step()
        type(recorder).reset()

    run("sound", 1.0, 1.0)
    run("divided", 0.0, 1.0)
    run("root", 1.0, -1.0)
    run("batch", 1.0, -1.0, batch=True)


@scenario
def checked(rank: int, path: str) -> None:
    """The configuration check: FSDP2 on both ranks into one pack, with a step that each rank computes in both ways."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from msprobe.core.config_check import ConfigChecker

    def train(checks: bool) -> list[float]:
        if checks:
            ConfigChecker.apply_patches("pytorch")
        torch.manual_seed(rank)
        inputs = torch.randn(2, 4)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 2))
        mesh = init_device_mesh("cpu", (WORLD_SIZE,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        if checks:
            ConfigChecker(model, None, f"{path}/pack.zip", steps=2)
        losses = []
        for _ in range(3):
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    os.makedirs(path, exist_ok=True)
    with open(f"{path}/losses.{rank}.json", "w") as file:
        json.dump([train(False), train(True)], file)


@scenario
def stuck(rank: int, path: str) -> None:
    """A receive that nobody answers, and the process is gone."""
    import torch
    import torch.distributed as dist

    recorder = debugger(path)
    recorder.start()
    dist.barrier()
    if rank == 1:
        dist.irecv(torch.zeros(2), 0)
        torch.ones(1) + 1
    dist.barrier()
    os._exit(0)


def main(folder: str, names: list[str]) -> None:
    faulthandler.enable()

    import torch
    import torch.distributed as dist

    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    for name in names:
        if not name.startswith("start_before"):
            join(folder)
        SCENARIOS[name](int(os.environ["TEST_RANK"]), f"{folder}/{name}")
        PrecisionDebugger.reset()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

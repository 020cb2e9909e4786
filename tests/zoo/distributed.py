"""Trainings of two gloo ranks. The caller has initialised the default process group."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from .attention import CausalBlock
from .case import Region, Results, TrainingCase, architecture
from .generative import vectors


def local_vectors(i: int) -> tuple[torch.Tensor]:
    """Different data on each rank."""
    return vectors(10 * i + dist.get_rank())


@architecture(ranks=2)
def ddp() -> TrainingCase:
    """DDP with small buckets, one accumulation without synchronisation, a shared BatchNorm buffer."""
    plain = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Linear(16, 4))
    model = DistributedDataParallel(plain, bucket_cap_mb=0.0003)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        with model.no_sync():
            first = model(*local_vectors(i)).square().mean()
            first.backward()
        loss = model(*local_vectors(i + 50)).square().mean()
        loss.backward()
        optimizer.step()
        region.end()
        return {"first": first, "loss": loss}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture(ranks=2)
def ddp_communication_hook() -> TrainingCase:
    """Half precision communication hook, unused parameters looked for, the returned future chained."""
    calls: list[int] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.sometimes, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
            h = self.used(x).tanh()
            return self.last(h + self.sometimes(x) if both else h)

    def halve(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        calls.append(bucket.buffer().numel())
        future = dist.all_reduce(bucket.buffer().bfloat16().div_(2), async_op=True).get_future()
        return future.then(lambda f: f.value()[0].float())

    # DDP inspects these, and does not resolve postponed annotations.
    halve.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    model.register_comm_hook(None, halve)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        loss = model(local_vectors(i)[0], both=i % 2 == 0).square().mean()
        loss.backward()
        region.end()
        optimizer.step()
        return {"loss": loss, "calls": list(calls)}

    return TrainingCase(run_step, {"model": model.module, "optimizer": optimizer})


@architecture(ranks=2)
def fsdp2() -> TrainingCase:
    """fully_shard on each block and the root: parameters are DTensors, gathered and re-sharded by hooks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(8, 16), CausalBlock(16, 4), CausalBlock(16, 4), nn.Linear(16, 4))
    for block in model[1:3]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        (x,) = local_vectors(i)
        optimizer.zero_grad()
        region.begin(model)
        out = model(x.unsqueeze(0))
        loss = out.square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        region.end()
        return {"loss": loss, "out": out, "norm": norm}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture(ranks=2)
def tensor_parallel() -> TrainingCase:
    """DTensor matrix products and functional collectives with gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Linear(8, 4))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        out = model(*vectors(i))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        region.end()
        return {"loss": loss, "out": out}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture(ranks=2)
def pipeline() -> TrainingCase:
    """Two stages, two micro-batches: activations go forward by send and recv, gradients back by isend and
    irecv."""
    rank = dist.get_rank()
    stage = nn.Sequential(nn.Linear(8, 8), nn.Tanh()) if rank == 0 else nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)

    def first_stage(i: int) -> Results:
        outputs = []
        for micro in range(2):
            outputs.append(stage(*vectors(2 * i + micro)))
            dist.send(outputs[-1].detach(), dst=1)
        for out in outputs:
            gradient = torch.empty_like(out)
            work = dist.irecv(gradient, src=1)
            work.wait()
            out.backward(gradient)
        return {"outputs": outputs}

    def second_stage(i: int) -> Results:
        losses, pending = [], []
        for _ in range(2):
            x = torch.empty(6, 8)
            sender = dist.recv(x, src=0)
            assert sender == 0
            x.requires_grad_()
            loss = stage(x).square().mean()
            loss.backward()
            pending.append(dist.isend(x.grad, dst=0))
            losses.append(loss)
        for work in pending:
            work.wait()
        return {"losses": losses}

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(stage)
        results = first_stage(i) if rank == 0 else second_stage(i)
        region.end()
        optimizer.step()
        return results

    return TrainingCase(run_step, {"stage": stage, "optimizer": optimizer})


@architecture(ranks=2)
def collectives() -> TrainingCase:
    """Synchronous and asynchronous collectives by hand, work finished late, objects, sub-groups, batched
    pairs."""
    import torch.distributed._functional_collectives as functional
    import torch.distributed.nn.functional as differentiable

    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    group = dist.new_group([0, 1])

    def run_step(i: int, region: Region) -> Results:
        (x,) = local_vectors(i)
        optimizer.zero_grad()
        region.begin(model)
        out = model(x)
        total = differentiable.all_reduce(out.mean())
        total.backward()
        pending = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
        before = [work.is_completed() in (True, False) for work in pending]
        for work in pending:
            work.wait()
        gathered = [torch.empty_like(out) for _ in range(2)]
        dist.all_gather(gathered, out.detach(), group=group)
        largest = out.detach().abs().max()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shared = torch.full((3,), float(i + rank))
        dist.broadcast(shared, src=1)
        scattered = torch.empty(2)
        dist.scatter(scattered, [torch.ones(2), torch.ones(2) * 5] if rank == 0 else None, src=0)
        stacked = torch.empty(12, 4)
        dist.all_gather_into_tensor(stacked, out.detach())
        received = torch.empty(2)
        pair = [
            dist.P2POp(dist.isend, torch.full((2,), float(rank)), 1 - rank),
            dist.P2POp(dist.irecv, received, 1 - rank),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        objects: list[object] = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        dist.barrier()
        summed = functional.all_reduce(out.detach(), "sum", group)
        optimizer.step()
        region.end()
        tensors = [gathered, largest, shared, scattered, stacked, received, summed + 0, F.relu(summed)]
        return {"total": total, "tensors": tensors, "objects": objects, "before": before}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})

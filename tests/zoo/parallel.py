"""Trainings of two gloo ranks with the parallel forms that torch ships: pipeline schedules, sharded layers in mixed
precision, tensor and sequence parallelism. The caller has initialised the default process group.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from .attention import CausalBlock
from .case import Region, Results, TrainingCase, architecture
from .distributed import local_vectors
from .generative import vectors


class Stage(nn.Module):
    """One part of a model cut into stages; a residual, so that the received tensor is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.norm(F.gelu(self.first(x))))


def pipelined(schedule: str, stages_of_a_rank: int = 1, **settings: Any) -> TrainingCase:
    """A pipeline over both ranks, with as many stages on each, four micro-batches a step.

    The stages keep the tensors they receive into and pass them to the modules, step after step: what is hung on
    such a tensor in one step would still be there in the next.
    """
    from torch.distributed import pipelining
    from torch.distributed.pipelining import schedules

    rank, count = dist.get_rank(), 2 * stages_of_a_rank
    modules = nn.ModuleList(Stage() for _ in range(stages_of_a_rank))
    stages = [
        pipelining.PipelineStage(module, rank + 2 * i, count, torch.device("cpu")) for i, module in enumerate(modules)
    ]
    build = getattr(schedules, schedule)
    runner = build(
        stages[0] if stages_of_a_rank == 1 else stages, n_microbatches=4, loss_fn=nn.functional.mse_loss, **settings
    )
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i, count=8)
        losses: list[torch.Tensor] = []
        optimizer.zero_grad()
        region.begin(list(modules))
        if rank == 0:
            out = runner.step(x)
        else:
            out = runner.step(target=x.flip(0), losses=losses)
        optimizer.step()
        region.end()
        return {"losses": losses, "out": out}

    return TrainingCase(run_step, {"modules": modules, "optimizer": optimizer})


@architecture(ranks=2)
def pipeline_gpipe() -> TrainingCase:
    return pipelined("ScheduleGPipe")


@architecture(ranks=2)
def pipeline_1f1b() -> TrainingCase:
    return pipelined("Schedule1F1B")


@architecture(ranks=2)
def pipeline_interleaved_1f1b() -> TrainingCase:
    """Two stages on each rank: forward and backward of different micro-batches alternate."""
    return pipelined("ScheduleInterleaved1F1B", stages_of_a_rank=2)


@architecture(ranks=2)
def pipeline_zero_bubble() -> TrainingCase:
    """Gradients of inputs first, those of weights later: the schedule walks the graph and hangs hooks on its
    nodes."""
    return pipelined("ScheduleInterleavedZeroBubble", stages_of_a_rank=2)


@architecture(ranks=2)
def fsdp2_mixed_precision() -> TrainingCase:
    """fully_shard computing in bfloat16 and reducing in float32, recomputation, a reference pass before the policy's
    pass, gradients accumulated without synchronisation."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.block, self.leave = nn.Linear(8, 16), CausalBlock(16, 4), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = checkpoint(self.block, self.enter(x), use_reentrant=False)
            return self.leave(h).squeeze(0)

    mesh = init_device_mesh("cpu", (2,))
    precision = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
    model = Model()
    fully_shard(model.block, mesh=mesh, mp_policy=MixedPrecisionPolicy(**precision))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**precision, output_dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        (x,) = local_vectors(i)
        x = x.unsqueeze(0)
        optimizer.zero_grad()
        region.begin(model)
        with torch.no_grad():
            reference = model(x)
        model.set_requires_gradient_sync(False)
        first = (model(x) - reference).square().mean() + model(x).square().mean()
        first.backward()
        model.set_requires_gradient_sync(True)
        loss = model(x + 1).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        region.end()
        return {"first": first, "loss": loss, "reference": reference, "norm": norm}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture(ranks=2)
def sequence_parallel_transformer() -> TrainingCase:
    """Column and row wise layers with the sequence sharded between them, norms on shards, embeddings split by
    rows, a loss on sharded logits."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.norm = nn.Embedding(16, 8), nn.LayerNorm(8)
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
            self.last, self.head = nn.LayerNorm(8), nn.Linear(8, 16, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            h = self.embedding(tokens)
            return self.head(self.last(h + self.mlp(self.norm(h))))

    mesh = init_device_mesh("cpu", (2,))
    model = Model()
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.0": ColwiseParallel(),
        "mlp.2": RowwiseParallel(output_layouts=Shard(1)),
        "last": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)

    def run_step(i: int, region: Region) -> Results:
        tokens = torch.randint(16, (2, 5), generator=torch.Generator().manual_seed(i))
        optimizer.zero_grad()
        region.begin(model)
        with loss_parallel():
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        region.end()
        return {"loss": loss, "norm": norm}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture(ranks=2)
def fsdp1_flat_parameters() -> TrainingCase:
    """The first kind of FSDP: flat parameters, gathered for each pass, of which the optimizer has shares."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    model = FullyShardedDataParallel(
        layers,
        device_id=torch.device("cpu"),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        loss = model(local_vectors(i)[0]).float().square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        region.end()
        return {"loss": loss, "norm": norm}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})

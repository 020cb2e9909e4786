"""One small model trained in many parallel layouts, each recorded: `layout_trainings.py FOLDER JOB...`.

A job is `layout`, or `layout:fault`, `layout:fault:mode`, `layout:fault:mode:precision` (`bfloat16`, all weights, or
`autocast`). All layouts begin from the same weights and see the same
batches, so a healthy layout differs from one process by the order of sums and nothing else. `record` starts the ranks
and ends them when they take too long.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from support import forked

SECONDS = 180.0
#: How many ranks a layout has.
WORLD = {
    "one": 1, "accumulate": 1, "ddp2": 2, "fsdp2": 2, "tensor2": 2, "sequence2": 2, "manual2": 2, "stages2": 2,
    "ddpaccumulate2": 2,
    "ddp4": 4, "fsdp4": 4, "tensor4": 4, "fsdp2tensor2": 4, "data2manual2": 4, "stages2manual2": 4,
}  # fmt: skip
WIDTH, HEADS, LAYERS, VOCABULARY, BATCH, LENGTH, STEPS = 16, 4, 2, 32, 8, 8, 2


def record(folder: Path, jobs: Sequence[str]) -> None:
    """Record all jobs; AssertionError with what the ranks said if one fails."""
    for world in sorted({WORLD[job.partition(":")[0]] for job in jobs}):
        _launch(folder, world, [job for job in jobs if WORLD[job.partition(":")[0]] == world])


def name_of(job: str) -> str:
    """The folder of a job."""
    return job.replace(":", "-")


def _launch(folder: Path, world: int, jobs: Sequence[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(world)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["MSPROBE_LOG_LEVEL"] = "3"
    # A file that an earlier group met at would let the ranks wait for ever.
    environment["MEETING"] = str(folder / f"rendezvous-{world}-{time.time_ns()}")
    ranks = [
        forked.start(__file__, str(folder), *jobs, cwd=folder, env={**environment, "RANK": str(rank)})
        for rank in range(world)
    ]
    forked.end_of_all(ranks, SECONDS)


# ---------------------------------------------------------------- in the ranks

if __name__ == "__main__" or "torch" in sys.modules:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    import torch.utils.checkpoint
    from torch import nn

    @dataclass(frozen=True)
    class Place:
        """Where a rank of a hand-made layout stands: its part of the tensors, of the batch, of the layers."""

        tensor: int = 1
        data: int = 1
        stages: int = 1

        @property
        def rank(self) -> int:
            return dist.get_rank() if self.tensor * self.data * self.stages > 1 else 0

        @property
        def tensor_rank(self) -> int:
            return self.rank % self.tensor

        @property
        def data_rank(self) -> int:
            return self.rank // self.tensor % self.data

        @property
        def stage(self) -> int:
            return self.rank // (self.tensor * self.data)

    #: What is planted in this job, if anything; and the precision of the job.
    FAULT, PRECISION = [""], [""]

    _GROUPS: dict[Any, Any] = {}

    def tensor_group(place: Place) -> Any:
        """The ranks that hold parts of the same tensors."""
        return _group(place, "tensor", lambda rank: rank // place.tensor)

    def data_group(place: Place) -> Any:
        """The ranks that hold the same parts, for other samples."""
        size = place.tensor * place.data
        return _group(place, "data", lambda rank: (rank // size, rank % place.tensor))

    def _group(place: Place, kind: str, color: Callable[[int], Any]) -> Any:
        key = (kind, place.tensor, place.data, place.stages)
        if key not in _GROUPS:
            groups: dict[Any, list[int]] = {}
            for rank in range(dist.get_world_size()):
                groups.setdefault(color(rank), []).append(rank)
            for ranks in groups.values():
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    _GROUPS[key] = group
        return _GROUPS[key]

    class Copy(torch.autograd.Function):
        """Forward nothing; backward the sum over ranks."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, place: Place) -> torch.Tensor:
            ctx.place = place
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=tensor_group(ctx.place))
            return gradient, None

    class Sum(torch.autograd.Function):
        """Forward the sum over ranks; backward nothing."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, place: Place, forgotten: bool) -> torch.Tensor:
            summed = x.clone()
            dist.all_reduce(summed, group=tensor_group(place))
            return x.clone() if forgotten else summed

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return gradient, None, None

    class Gather(torch.autograd.Function):
        """Forward the whole of the last dimension; backward one's own part."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, place: Place) -> torch.Tensor:
            ctx.place = place
            parts = [torch.empty_like(x) for _ in range(place.tensor)]
            dist.all_gather(parts, x.contiguous(), group=tensor_group(place))
            return torch.cat(parts, dim=-1)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return gradient.chunk(ctx.place.tensor, -1)[ctx.place.tensor_rank].contiguous(), None

    class ColumnLinear(nn.Module):
        """Output features are divided among the ranks."""

        def __init__(self, inputs: int, outputs: int, place: Place, gather: bool = False) -> None:
            super().__init__()
            self.place, self.gather = place, gather
            self.weight = nn.Parameter(torch.empty(outputs // place.tensor, inputs))
            self.bias = nn.Parameter(torch.empty(outputs // place.tensor))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.place.tensor > 1:
                x = Copy.apply(x, self.place)
            x = F.linear(x, self.weight, self.bias)
            return Gather.apply(x, self.place) if self.gather and self.place.tensor > 1 else x

    class RowLinear(nn.Module):
        """Input features are divided among the ranks."""

        def __init__(self, inputs: int, outputs: int, place: Place, name: str) -> None:
            super().__init__()
            self.place, self.name = place, name
            self.weight = nn.Parameter(torch.empty(outputs, inputs // place.tensor))
            self.bias = nn.Parameter(torch.empty(outputs))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.linear(x, self.weight)
            if self.place.tensor > 1:
                faulty = self.name == "blocks.1.down"
                everyone = faulty and FAULT[0] == "no_sum"
                one = faulty and FAULT[0] == "no_sum_on_rank1" and self.place.tensor_rank == 1
                x = Sum.apply(x, self.place, everyone or one)
            return x + self.bias

    class Attention(nn.Module):
        def __init__(self, place: Place, name: str) -> None:
            super().__init__()
            self.q, self.k, self.v = (ColumnLinear(WIDTH, WIDTH, place) for _ in range(3))
            self.out = RowLinear(WIDTH, WIDTH, place, f"{name}.out")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length = x.shape[:2]
            q, k, v = (
                part(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for part in (self.q, self.k, self.v)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    class Block(nn.Module):
        def __init__(self, place: Place, name: str) -> None:
            super().__init__()
            self.name = name
            self.norm1 = nn.LayerNorm(WIDTH)
            self.attention = Attention(place, f"{name}.attention")
            self.norm2 = nn.LayerNorm(WIDTH)
            if FAULT[0] == "other_eps" and name == "blocks.1":
                self.norm2.eps = 1e-2
            self.up = ColumnLinear(WIDTH, 4 * WIDTH, place)
            self.down = RowLinear(4 * WIDTH, WIDTH, place, f"{name}.down")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.norm1(x))
            form = "tanh" if FAULT[0] == "other_gelu" and self.name == "blocks.1" else "none"
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=form))

    class Model(nn.Module):
        """The layers of one stage, which count from 0 in it."""

        def __init__(self, place: Place) -> None:
            super().__init__()
            share = LAYERS // place.stages
            first, last = place.stage == 0, place.stage == place.stages - 1
            self.embedding = nn.Embedding(VOCABULARY, WIDTH) if first else None
            begin = place.stage * share
            self.blocks = nn.ModuleList([Block(place, f"blocks.{begin + index}") for index in range(share)])
            self.norm = nn.LayerNorm(WIDTH) if last else None
            self.head = ColumnLinear(WIDTH, VOCABULARY, place, gather=True) if last else None
            load(self, place, begin)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.embedding is not None:
                x = self.embedding(x)
            for block in self.blocks:
                again = FAULT[0] == "recompute"
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if again else block(x)
            return x if self.norm is None else self.head(self.norm(x))

    COLUMN = ("q.weight", "q.bias", "k.weight", "k.bias", "v.weight", "v.bias", "up.weight", "up.bias",
              "head.weight", "head.bias")  # fmt: skip
    ROW = ("out.weight", "down.weight")

    def load(model: nn.Module, place: Place, begin: int) -> None:
        """The same weights whatever the layout is."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parts = name.split(".")
                if parts[0] == "blocks":
                    parts[1] = str(int(parts[1]) + begin)
                whole = ".".join(parts)
                dim = 0 if whole.endswith(COLUMN) else 1 if whole.endswith(ROW) else None
                shape = list(parameter.shape)
                if dim is not None:
                    shape[dim] *= place.tensor
                generator = torch.Generator().manual_seed(sum(whole.encode()) * 7919 + len(whole))
                full = torch.randn(shape, generator=generator)
                full = full / math.sqrt(shape[-1]) if len(shape) > 1 else 0.1 * full + ("norm" in whole)
                own = place.tensor_rank
                if FAULT[0] == "wrong_shard" and whole == "blocks.1.up.weight":
                    own = 0
                parameter.copy_(full if dim is None else full.chunk(place.tensor, dim)[own])
        if PRECISION[0] == "bfloat16":
            model.to(torch.bfloat16)

    def autocast() -> Any:
        return torch.autocast("cpu", torch.bfloat16, enabled=PRECISION[0] == "autocast")

    def batches() -> torch.Tensor:
        generator = torch.Generator().manual_seed(7)
        return torch.randint(0, VOCABULARY, (STEPS, BATCH, LENGTH + 1), generator=generator)

    def loss_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.02 if FAULT[0] == "other_rate" else 0.01)

    def train(
        model: nn.Module, debugger: Any, data: tuple[int, int] = (0, 1), parts: int = 1, after: Any = None
    ) -> None:
        """Whole model on each rank: `data` says which share of the batch, `parts` in how many pieces."""
        optimizer = optimizer_of(model)
        for tokens in batches():
            own = tokens.chunk(data[1])[0 if FAULT[0] == "same_data" else data[0]]
            debugger.start(model)
            for piece in own.chunk(parts):
                with autocast():
                    loss = loss_of(model(piece[:, :-1]), piece) / parts
                loss.backward()
            if after is not None:
                after()
            optimizer.step()
            debugger.stop()
            debugger.step()
            optimizer.zero_grad()

    def one(debugger: Any) -> None:
        train(Model(Place()), debugger)

    def accumulate(debugger: Any) -> None:
        """One process, the batch in two pieces."""
        train(Model(Place()), debugger, parts=2)

    def ddp(debugger: Any, parts: int = 1) -> None:
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(Model(Place()))
        if FAULT[0] == "not_averaged":
            model.require_backward_grad_sync = False
        train(model, debugger, (dist.get_rank(), dist.get_world_size()), parts)

    def fsdp(debugger: Any) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        model = Model(Place())
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model, debugger, (dist.get_rank(), dist.get_world_size()))

    def plan(sequence: bool) -> dict[str, Any]:
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            PrepareModuleInput,
            RowwiseParallel,
            SequenceParallel,
        )  # fmt: skip

        if not sequence:
            inner: dict[str, Any] = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
            inner |= {"attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
            outer: dict[str, Any] = {"head": ColwiseParallel(output_layouts=Replicate())}
        else:
            inner = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
            inner |= {
                "norm1": SequenceParallel(), "norm2": SequenceParallel(),
                "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
                "attention.out": RowwiseParallel(output_layouts=Shard(1)),
                "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1)),
            }  # fmt: skip
            outer = {
                "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                "norm": SequenceParallel(), "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
            }  # fmt: skip
        return {**outer, **{f"blocks.{i}.{name}": style for i in range(LAYERS) for name, style in inner.items()}}

    class PlainModel(nn.Module):
        """The same with torch's own layers, for torch's own tensor parallelism."""

        def __init__(self) -> None:
            super().__init__()
            made = Model(Place())
            for block in made.blocks:
                for name in "qkv":
                    setattr(block.attention, name, _plain(getattr(block.attention, name)))
                block.attention.out, block.up, block.down = map(_plain, (block.attention.out, block.up, block.down))
            made.head = _plain(made.head)
            for name, child in list(made.named_children()):
                self.add_module(name, child)

        forward = Model.forward

    def _plain(layer: Any) -> nn.Linear:
        found = nn.Linear(layer.weight.shape[1], layer.weight.shape[0], dtype=layer.weight.dtype)
        with torch.no_grad():
            found.weight.copy_(layer.weight)
            found.bias.copy_(layer.bias)
        return found

    def tensor(debugger: Any, sequence: bool = False) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        model = PlainModel()
        parallelize_module(model, mesh, plan(sequence))
        if FAULT[0] == "wrong_shard" and dist.get_rank() == 1:
            with torch.no_grad():
                local = model.blocks[1].up.weight.to_local()
                local.copy_(PlainModel().blocks[1].up.weight.chunk(dist.get_world_size())[0])
        train(model, debugger)

    def sequence(debugger: Any) -> None:
        tensor(debugger, sequence=True)

    def fsdp_tensor(debugger: Any) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import parallelize_module

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        model = PlainModel()
        parallelize_module(model, mesh["tensor"], plan(sequence=False))
        for block in model.blocks:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        train(model, debugger, (mesh.get_local_rank("data"), 2))

    def by_hand(place: Place, debugger: Any) -> None:
        """Tensor and data parallel as large programs write it themselves."""
        model = Model(place)

        def average() -> None:
            for name, parameter in model.named_parameters():
                forgotten = FAULT[0] == "not_averaged" and name == "blocks.0.up.weight"
                if place.data > 1 and not forgotten:
                    dist.all_reduce(parameter.grad, group=data_group(place))
                    if FAULT[0] != "not_divided":
                        parameter.grad /= place.data

        train(model, debugger, (place.data_rank, place.data), after=average)

    def stages(place: Place, debugger: Any) -> None:
        """Two stages, two pieces of the batch: all forward, then all backward."""
        model = Model(place)
        optimizer = optimizer_of(model)
        beside = place.tensor * place.data
        first = place.stage == 0
        for tokens in batches():
            debugger.start(model)
            pieces, kept = tokens.chunk(2), []
            for piece in pieces:
                if first:
                    with autocast():
                        result = model(piece[:, :-1])
                    # The fault: what the first piece of the batch came to goes out once more.
                    again = bool(kept) and FAULT[0] == "sent_again"
                    dist.send((kept[0][1] if again else result).detach(), place.rank + beside)
                    kept.append((None, result))
                else:
                    x = torch.empty(BATCH // 2, LENGTH, WIDTH, dtype=next(model.parameters()).dtype)
                    dist.recv(x, place.rank - beside)
                    x.requires_grad_()
                    with autocast():
                        kept.append((x, loss_of(model(x), piece) / 2))
            for x, result in kept:
                if first:
                    gradient = torch.empty_like(result)
                    dist.recv(gradient, place.rank + beside)
                    result.backward(gradient)
                else:
                    result.backward()
                    dist.send(x.grad, place.rank - beside)
            optimizer.step()
            debugger.stop()
            debugger.step()
            optimizer.zero_grad()

    LAYOUTS: dict[str, Callable[[Any], None]] = {
        "one": one,
        "accumulate": accumulate,
        "ddp2": ddp,
        "ddp4": ddp,
        "ddpaccumulate2": lambda debugger: ddp(debugger, parts=2),
        "fsdp2": fsdp,
        "fsdp4": fsdp,
        "tensor2": tensor,
        "tensor4": tensor,
        "sequence2": sequence,
        "fsdp2tensor2": fsdp_tensor,
        "manual2": lambda debugger: by_hand(Place(tensor=2), debugger),
        "data2manual2": lambda debugger: by_hand(Place(tensor=2, data=2), debugger),
        "stages2": lambda debugger: stages(Place(stages=2), debugger),
        "stages2manual2": lambda debugger: stages(Place(tensor=2, stages=2), debugger),
    }
    MODES: dict[str, dict[str, Any]] = {
        "tensor": {"task": "tensor"},
        "statistics": {"task": "statistics"},
        "digest": {"task": "statistics", "summary_mode": "xxh3"},
    }

    def main(folder: str, jobs: Sequence[str]) -> None:
        from msprobe.pytorch import PrecisionDebugger

        torch.set_num_threads(1)
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if world > 1:
            dist.init_process_group(
                "gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world,
                timeout=timedelta(seconds=60),
            )  # fmt: skip
        for job in jobs:
            layout, fault, mode, precision = [*job.split(":"), "", "", "", ""][:4]
            debugger = PrecisionDebugger(dump_path=f"{folder}/{name_of(job)}", level="mix", **MODES[mode or "tensor"])
            FAULT[0], PRECISION[0] = fault, precision
            LAYOUTS[layout](debugger)
            PrecisionDebugger.reset()
        if world > 1:
            dist.barrier()
            dist.destroy_process_group()

    if __name__ == "__main__":
        main(sys.argv[1], sys.argv[2:])

"""A small model trained by two ranks: data parallel, tensor parallel, or tensor and sequence parallel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    """Sizes and constants of one training; ``layout`` is one, data, tensor or sequence."""

    seed: int = 0
    layout: str = "one"
    layers: int = 2
    width: int = 16
    vocabulary: int = 32
    batch: int = 4
    length: int = 8
    dropout: float = 0.0
    learning_rate: float = 0.2
    clip: float = 0.5


class Ranks:
    """Where this process stands."""

    def __init__(self, layout: str) -> None:
        self.rank = 0 if layout == "one" else dist.get_rank()
        self.world = 1 if layout == "one" else dist.get_world_size()
        self.model_parallel = layout in ("tensor", "sequence")
        self.sequence = layout == "sequence"
        self.data = layout == "data"

    def shard(self, full: torch.Tensor, dim: int) -> torch.Tensor:
        """This rank's part of a tensor."""
        return full.chunk(self.world, dim)[self.rank].contiguous() if self.model_parallel else full


class CopyToRanks(torch.autograd.Function):
    """Forward nothing; backward the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class SumOverRanks(torch.autograd.Function):
    """Forward the sum over ranks; backward nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def gathered(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, dim=1)


def scattered(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    dist.all_reduce(x)
    return x.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()


class GatherSequence(torch.autograd.Function):
    """Forward the whole sequence; backward the sum over ranks, each its part."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return gathered(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return scattered(gradient)


class ScatterSequence(torch.autograd.Function):
    """Forward the sum over ranks, each its part; backward the whole sequence."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return scattered(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gathered(gradient)


def into_region(x: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Replicated (or a part of the sequence) to what every rank computes its share from."""
    if ranks.sequence:
        return GatherSequence.apply(x)
    return CopyToRanks.apply(x) if ranks.model_parallel else x


def out_of_region(x: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Shares of a sum to the sum (or a part of the sequence of it)."""
    if ranks.sequence:
        return ScatterSequence.apply(x)
    return SumOverRanks.apply(x) if ranks.model_parallel else x


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias)


class ColumnLinear(nn.Module):
    """Output features are divided among the ranks."""

    def __init__(self, inputs: int, outputs: int, ranks: Ranks, bias: bool = True) -> None:
        super().__init__()
        self.ranks = ranks
        share = outputs // ranks.world if ranks.model_parallel else outputs
        self.weight = nn.Parameter(torch.empty(share, inputs))
        self.bias = nn.Parameter(torch.empty(share)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = into_region(x, self.ranks)
        return F.linear(x, self.weight, self.bias)


class RowLinear(nn.Module):
    """Input features are divided among the ranks."""

    def __init__(self, inputs: int, outputs: int, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks
        share = inputs // ranks.world if ranks.model_parallel else inputs
        self.weight = nn.Parameter(torch.empty(outputs, share))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.linear(x, self.weight)
        x = out_of_region(x, self.ranks)
        return x + self.bias


class Embedding(nn.Module):
    """Rows of the vocabulary are divided among the ranks."""

    def __init__(self, vocabulary: int, width: int, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks
        self.rows = vocabulary // ranks.world if ranks.model_parallel else vocabulary
        self.weight = nn.Parameter(torch.empty(self.rows, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        begin = self.ranks.rank * self.rows if self.ranks.model_parallel else 0
        local = tokens - begin
        foreign = (local < 0) | (local >= self.rows)
        x = F.embedding(local.clamp(0, self.rows - 1), self.weight)
        x = x.masked_fill(foreign[..., None], 0.0)
        return out_of_region(x, self.ranks)


class ParallelLoss(torch.autograd.Function):
    """Cross entropy, summed over tokens, of logits whose vocabulary is divided among the ranks."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, real: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        largest = logits.amax(dim=-1)
        if ranks.model_parallel:
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        powers = (logits - largest[..., None]).exp()
        total = powers.sum(dim=-1)
        if ranks.model_parallel:
            dist.all_reduce(total)
        begin = ranks.rank * logits.shape[-1] if ranks.model_parallel else 0
        local = labels - begin
        foreign = (local < 0) | (local >= logits.shape[-1])
        local = local.clamp(0, logits.shape[-1] - 1)
        chosen = logits.gather(-1, local[..., None])[..., 0] - largest
        chosen = chosen.masked_fill(foreign, 0.0)
        if ranks.model_parallel:
            dist.all_reduce(chosen)
        ctx.save_for_backward(powers / total[..., None], local, foreign, real)
        return ((total.log() - chosen) * real).sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        chances, local, foreign, real = ctx.saved_tensors
        hits = torch.zeros_like(chances).scatter(-1, local[..., None], (~foreign)[..., None].to(chances.dtype))
        return (chances - hits) * real[..., None] * gradient, None, None, None


class Block(nn.Module):
    def __init__(self, settings: Settings, ranks: Ranks, index: int) -> None:
        super().__init__()
        self.index = index
        self.rate = settings.dropout
        self.norm = Norm(settings.width)
        self.up = ColumnLinear(settings.width, 4 * settings.width, ranks)
        self.down = RowLinear(4 * settings.width, settings.width, ranks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        return x + F.dropout(self.down(hidden), self.rate, self.training)


class Model(nn.Module):
    def __init__(self, settings: Settings, ranks: Ranks) -> None:
        super().__init__()
        self.embedding = Embedding(settings.vocabulary, settings.width, ranks)
        self.blocks = nn.ModuleList([Block(settings, ranks, index) for index in range(settings.layers)])
        self.norm = Norm(settings.width)
        self.head = ColumnLinear(settings.width, settings.vocabulary, ranks, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


#: The dimension along which a parameter is divided in tensor parallel; the others are replicated.
DIVIDED = {"up.weight": 0, "up.bias": 0, "down.weight": 1, "embedding.weight": 0, "head.weight": 0}


def divided_along(name: str) -> int | None:
    return next((dim for ending, dim in DIVIDED.items() if name.endswith(ending)), None)


def initial_weights(model: nn.Module, ranks: Ranks, seed: int) -> None:
    """The same full weights for every layout."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            dim = divided_along(name)
            shape = list(parameter.shape)
            if dim is not None and ranks.model_parallel:
                shape[dim] *= ranks.world
            full = torch.randn(shape, generator=generator)
            if parameter.dim() > 1:
                full = full / math.sqrt(shape[-1])
            else:
                full = 0.02 * full + (1.0 if "norm" in name and "weight" in name else 0.0)
            parameter.copy_(full if dim is None else ranks.shard(full, dim))


class Training:
    """One iteration at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ranks = ranks = Ranks(settings.layout)
        self.model = Model(settings, ranks)
        initial_weights(self.model, ranks, settings.seed)
        generator = torch.Generator().manual_seed(settings.seed + 1)
        rows = 4 * settings.batch
        self.tokens = torch.randint(0, settings.vocabulary, (rows, settings.length + 1), generator=generator)
        lengths = torch.randint(2, settings.length + 1, (4, settings.batch), generator=generator)
        # The first half of each batch has the longer sequences.
        lengths = lengths.sort(dim=1, descending=True).values.flatten()
        self.real = torch.arange(settings.length) < lengths[:, None]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)
        self.losses: list[float] = []

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and real positions of a step; in data parallel this rank's."""
        begin = number * self.settings.batch % len(self.tokens)
        rows = slice(begin, begin + self.settings.batch)
        tokens, real = self.tokens[rows], self.real[rows]
        if self.ranks.data:
            tokens, real = (part.chunk(self.ranks.world)[self.ranks.rank] for part in (tokens, real))
        return tokens, real

    def reduce_gradients(self) -> None:
        """Sum over ranks what each has only a share of."""
        for name, parameter in self.model.named_parameters():
            partial = self.ranks.data or (self.ranks.sequence and divided_along(name) is None)
            if partial:
                dist.all_reduce(parameter.grad)

    def clip(self) -> None:
        """Clip by the global norm."""
        squares = torch.zeros(())
        for name, parameter in self.model.named_parameters():
            copies = self.ranks.world if self.ranks.model_parallel and divided_along(name) is None else 1
            squares = squares + parameter.grad.square().sum() / copies
        if self.ranks.model_parallel:
            dist.all_reduce(squares)
        factor = (self.settings.clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for parameter in self.model.parameters():
            parameter.grad.mul_(factor)

    def step(self, number: int) -> None:
        """One iteration."""
        torch.manual_seed(self.settings.seed + number + 100 * self.ranks.data * self.ranks.rank)
        tokens, real = self.batch(number)
        count = real.sum()
        if self.ranks.data:
            dist.all_reduce(count)
        self.optimizer.zero_grad()
        logits = self.model(tokens[:, :-1])
        loss = ParallelLoss.apply(logits, tokens[:, 1:], real, self.ranks)
        loss = loss / count
        loss.backward()
        self.losses.append(loss.item())
        self.reduce_gradients()
        self.clip()
        self.optimizer.step()

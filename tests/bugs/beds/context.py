"""A decoder whose sequences are divided between two ranks: each has the first and the last, or the two middle parts."""

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
    """Sizes and constants of one training."""

    seed: int = 0
    layers: int = 2
    width: int = 16
    vocabulary: int = 32
    batch: int = 4
    length: int = 8
    learning_rate: float = 0.2


def parts_of(rank: int, world: int) -> list[int]:
    """Which parts of the sequence a rank has, so that all have as much to attend to."""
    return [rank, 2 * world - 1 - rank]


def places(length: int, rank: int, world: int) -> torch.Tensor:
    """The positions in the sequence that a rank has."""
    parts = torch.arange(length).chunk(2 * world)
    return torch.cat([parts[part] for part in parts_of(rank, world)])


class GatherSequence(torch.autograd.Function):
    """The whole sequence, in the order of the ranks; backward the sum over ranks, each its part."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]


class Attention(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.q = nn.Linear(settings.width, settings.width)
        self.kv = nn.Linear(settings.width, 2 * settings.width)
        self.out = nn.Linear(settings.width, settings.width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        q = self.q(x)
        whole = GatherSequence.apply(self.kv(x))
        whole = whole[:, order]
        k, v = whole.chunk(2, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(x.shape[-1])
        probs = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return self.out(probs @ v)


class Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.attention = Attention(settings)
        self.feed = nn.Linear(settings.width, settings.width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x), mask, order)
        return x + F.gelu(self.feed(x))


class Decoder(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.positions = nn.Embedding(settings.length, settings.width)
        self.blocks = nn.ModuleList([Block(settings) for _ in range(settings.layers)])
        self.head = nn.Linear(settings.width, settings.vocabulary)

    def forward(self, tokens: torch.Tensor, mine: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions(mine)
        mask = torch.arange(len(order))[None, :] <= mine[:, None]
        for block in self.blocks:
            x = block(x, mask, order)
        return self.head(x)


class Training:
    """One iteration at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(settings.seed)
        self.model = Decoder(settings)
        self.tokens = torch.randint(0, settings.vocabulary, (4, settings.batch, settings.length + 1))
        self.mine = places(settings.length, self.rank, self.world)
        held = torch.cat([places(settings.length, rank, self.world) for rank in range(self.world)])
        self.order = held.argsort()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)
        self.losses: list[float] = []

    def step(self, number: int) -> None:
        """One iteration."""
        tokens = self.tokens[number]
        self.optimizer.zero_grad()
        logits = self.model(tokens[:, self.mine], self.mine, self.order)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:][:, self.mine].flatten(), reduction="sum")
        loss = loss / tokens[:, 1:].numel()
        loss.backward()
        self.losses.append(loss.item())
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()

"""A mixture of experts trained by two ranks, each with its own data and one of the experts."""

from __future__ import annotations

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
    layers: int = 1
    width: int = 16
    vocabulary: int = 32
    batch: int = 4
    length: int = 8
    learning_rate: float = 0.2


class GatherRows(torch.autograd.Function):
    """The rows of all ranks; backward the sum over ranks, each its rows."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


class SumRows(torch.autograd.Function):
    """The sum over ranks, each its rows; backward the rows of all ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        dist.all_reduce(x)
        return x.chunk(dist.get_world_size())[dist.get_rank()].contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        parts = [torch.zeros_like(gradient) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, gradient.contiguous())
        return torch.cat(parts)


class Experts(nn.Module):
    """Tokens go to the rank of their expert and come back."""

    def __init__(self, settings: Settings, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.router = nn.Linear(settings.width, dist.get_world_size(), bias=False)
        self.expert = nn.Sequential(
            nn.Linear(settings.width, 2 * settings.width), nn.GELU(), nn.Linear(2 * settings.width, settings.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = torch.softmax(self.router(x), dim=-1)
        rows, every = GatherRows.apply(x), GatherRows.apply(chances)
        mine = every.argmax(dim=-1) == self.rank
        result = self.expert(rows) * (every[:, self.rank] * mine)[:, None]
        return SumRows.apply(result)


class Model(nn.Module):
    def __init__(self, settings: Settings, rank: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.norm = nn.LayerNorm(settings.width)
        self.experts = Experts(settings, rank)
        self.head = nn.Linear(settings.width, settings.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        return self.head(x + self.experts(self.norm(x)))


class Training:
    """One iteration at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(settings.seed)
        self.model = Model(settings, self.rank)
        torch.manual_seed(settings.seed + 1 + self.rank)
        with torch.no_grad():
            for parameter in self.model.experts.expert.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        self.tokens = torch.randint(0, settings.vocabulary, (4, settings.batch * settings.length + 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)
        self.losses: list[float] = []

    def copies(self, name: str) -> int:
        """Over how many ranks the gradient of a parameter is the mean."""
        return self.world

    def step(self, number: int) -> None:
        """One iteration."""
        tokens = self.tokens[number]
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(tokens[:-1]), tokens[1:])
        loss.backward()
        self.losses.append(loss.item())
        for name, parameter in self.model.named_parameters():
            if "expert." not in name:
                dist.all_reduce(parameter.grad)
            parameter.grad.div_(self.copies(name))
        self.optimizer.step()

"""A model divided between two ranks that work one after the other, with an embedding that both ends share."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    micro_batches: int = 3
    learning_rate: float = 0.2


class Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.up = nn.Linear(settings.width, 2 * settings.width)
        self.down = nn.Linear(2 * settings.width, settings.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stage(nn.Module):
    """The part of one rank: the first begins with the embedding, the last ends with it."""

    def __init__(self, settings: Settings, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.blocks = nn.ModuleList([Block(settings) for _ in range(settings.layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.rank == 0:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.embedding.weight) if self.rank == 1 else x


class Training:
    """One iteration at a time: all micro-batches forward, then all backward."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank = dist.get_rank()
        torch.manual_seed(settings.seed + self.rank)
        self.model = Stage(settings, self.rank)
        generator = torch.Generator().manual_seed(settings.seed)
        with torch.no_grad():
            self.model.embedding.weight.copy_(
                torch.randn(settings.vocabulary, settings.width, generator=generator) / math.sqrt(settings.width)
            )
        shape = (8, settings.micro_batches, settings.batch, settings.length + 1)
        self.tokens = torch.randint(0, settings.vocabulary, shape, generator=generator)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)
        self.losses: list[float] = []

    @property
    def dtype(self) -> torch.dtype:
        """What the stages hand on."""
        return self.model.embedding.weight.dtype

    def forward_first(self, tokens: torch.Tensor) -> torch.Tensor:
        result = self.model(tokens[:, :-1])
        dist.send(result.detach(), 1)
        return result

    def forward_last(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (self.settings.batch, self.settings.length, self.settings.width)
        given = torch.zeros(shape, dtype=self.dtype)
        dist.recv(given, 0)
        given.requires_grad_()
        logits = self.model(given)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        return given, loss / self.settings.micro_batches

    def backward_first(self, result: torch.Tensor) -> None:
        gradient = torch.zeros(result.shape, dtype=result.dtype)
        dist.recv(gradient, 1)
        result.backward(gradient)

    def backward_last(self, given: torch.Tensor, loss: torch.Tensor) -> None:
        loss.backward()
        dist.send(given.grad, 0)

    def step(self, number: int) -> None:
        """One iteration."""
        batches = self.tokens[number]
        self.optimizer.zero_grad()
        if self.rank == 0:
            results = [self.forward_first(tokens) for tokens in batches]
            for micro in range(len(batches)):
                self.backward_first(results[micro])
        else:
            pairs = [self.forward_last(tokens) for tokens in batches]
            for micro in range(len(batches)):
                self.backward_last(*pairs[micro])
            self.losses.append(sum(loss.item() for _, loss in pairs))
        dist.all_reduce(self.model.embedding.weight.grad)
        self.optimizer.step()

"""A decoder trained by one process: grouped-query attention, rotary positions, tied head, AdamW with warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

IGNORED = -100


@dataclass(frozen=True)
class Settings:
    """Sizes and constants of one training."""

    seed: int = 0
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    batch: int = 4
    length: int = 24
    vocabulary: int = 96
    dropout: float = 0.1
    micro_batches: int = 2
    learning_rate: float = 3e-3
    warm_up: int = 10
    weight_decay: float = 0.1
    clip: float = 1.0
    base: float = 10000.0


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Rotary(nn.Module):
    """Rotary position embedding, half rotation."""

    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        width = settings.width // settings.heads
        frequencies = settings.base ** (-torch.arange(0, width, 2).float() / width)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[-2]).float()
        angles = torch.outer(positions, self.frequencies)
        table = torch.cat((angles, angles), dim=-1)
        cos, sin = table.cos().to(x.dtype), table.sin().to(x.dtype)
        return x * cos + rotate_half(x) * sin


class Attention(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.heads, self.kv_heads = settings.heads, settings.kv_heads
        self.head_width = settings.width // settings.heads
        self.width = settings.width
        self.rate = settings.dropout
        self.rotary = Rotary(settings, index)
        self.q = nn.Linear(settings.width, settings.heads * self.head_width)
        self.k = nn.Linear(settings.width, settings.kv_heads * self.head_width)
        self.v = nn.Linear(settings.width, settings.kv_heads * self.head_width)
        self.out = nn.Linear(settings.width, settings.width)
        self.scale = 1.0 / math.sqrt(self.head_width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        q = self.rotary(q)
        k = self.rotary(k)
        groups = self.heads // self.kv_heads
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)
        scores = q @ k.transpose(-2, -1)
        scores = scores * self.scale
        scores = scores.masked_fill(~mask, float("-inf"))
        probs = torch.softmax(scores, dim=-1)
        mixed = probs @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        mixed = self.out(mixed)
        return F.dropout(mixed, self.rate, self.training)


class Feed(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.rate = settings.dropout
        self.up = nn.Linear(settings.width, 4 * settings.width)
        self.down = nn.Linear(4 * settings.width, settings.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.up(x)
        hidden = F.gelu(hidden, approximate="none")
        hidden = self.down(hidden)
        return F.dropout(hidden, self.rate, self.training)


class Block(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm1 = Norm(settings.width)
        self.attention = Attention(settings, index)
        self.norm2 = Norm(settings.width)
        self.feed = Feed(settings, index)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        attended = self.attention(self.norm1(x), mask)
        x = x + attended
        fed = self.feed(self.norm2(x))
        return x + fed


class Decoder(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.blocks = nn.ModuleList([Block(settings, index) for index in range(settings.layers)])
        self.norm = Norm(settings.width)
        self.head = nn.Linear(settings.width, settings.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = causal & padding[:, None, None, :]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return self.head(x)


def initial_state(model: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The checkpoint that training begins from: normal with deviation 0.02, norms and biases slightly off."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        if value.dim() > 1:
            state[name] = 0.02 * noise if "embedding" in name else noise / math.sqrt(value.shape[-1])
        else:
            state[name] = value + 0.02 * noise
    state["head.weight"] = state["embedding.weight"]
    return state


def initial_tokens(settings: Settings) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of unequal lengths, padded on the right, and which of their tokens are real."""
    generator = torch.Generator().manual_seed(settings.seed + 1)
    rows = 16 * settings.batch
    tokens = torch.randint(1, settings.vocabulary, (rows, settings.length + 1), generator=generator)
    lengths = torch.randint(settings.length // 2, settings.length + 2, (rows,), generator=generator)
    real = torch.arange(settings.length + 1) < lengths[:, None]
    return tokens * real, real


class Training:
    """One iteration at a time: micro-batches, clipping, optimizer, schedule."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        torch.manual_seed(settings.seed)
        self.model = Decoder(settings)
        state = initial_state(self.model, settings.seed)
        self.model.load_state_dict(state)
        self.tokens, self.real = initial_tokens(settings)
        self.order = torch.randperm(len(self.tokens), generator=torch.Generator().manual_seed(settings.seed + 2))
        self.optimizer = torch.optim.AdamW(self.groups(), lr=settings.learning_rate, betas=(0.9, 0.95), eps=1e-8)
        self.losses: list[float] = []

    def groups(self) -> list[dict[str, Any]]:
        """Matrices decay, norms and biases do not."""
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        decay = self.settings.weight_decay
        return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]

    def rate(self, number: int) -> float:
        """The learning rate of a step: linear warm-up."""
        return self.settings.learning_rate * min(1.0, (number + 1) / self.settings.warm_up)

    def batch(self, number: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Tokens and real positions of the micro-batches of a step."""
        size, count = self.settings.batch, self.settings.micro_batches
        begins = [(number * count + micro) * size % len(self.order) for micro in range(count)]
        chosen = [self.order[begin : begin + size] for begin in begins]
        return [(self.tokens[rows], self.real[rows]) for rows in chosen]

    def loss(self, tokens: torch.Tensor, real: torch.Tensor, total: int) -> torch.Tensor:
        inputs, padding = tokens[:, :-1], real[:, :-1]
        labels = tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED)
        logits = self.model(inputs, padding)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        return loss / total

    def step(self, number: int) -> None:
        """One iteration."""
        torch.manual_seed(self.settings.seed + 100 + number)
        batches = self.batch(number)
        total = sum(int(real[:, 1:].sum()) for _, real in batches)
        self.optimizer.zero_grad()
        for tokens, real in batches:
            loss = self.loss(tokens, real, total)
            loss.backward()
            self.losses.append(loss.item())
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(number)
        self.optimizer.step()

"""A GPT of real size, trained by one process: learned positions, fused attention, tied head, AdamW."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    """Sizes and constants of one training."""

    seed: int = 0
    layers: int = 12
    width: int = 768
    heads: int = 12
    batch: int = 1
    length: int = 128
    vocabulary: int = 10000
    micro_batches: int = 2
    learning_rate: float = 6e-4
    weight_decay: float = 0.1
    clip: float = 1.0


class Attention(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.heads = settings.heads
        self.inner = nn.Linear(settings.width, 3 * settings.width)
        self.outer = nn.Linear(settings.width, settings.width)
        self.scale = 1.0 / math.sqrt(settings.width // settings.heads) / (index + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.inner(x).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2).chunk(3, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return self.outer(mixed.transpose(1, 2).flatten(-2))


class Feed(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.inner = nn.Linear(settings.width, 4 * settings.width)
        self.outer = nn.Linear(4 * settings.width, settings.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        x = F.gelu(x, approximate="tanh")
        return self.outer(x)


class Block(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm1 = nn.LayerNorm(settings.width, eps=1e-5)
        self.attention = Attention(settings, index)
        self.norm2 = nn.LayerNorm(settings.width, eps=1e-5)
        self.feed = Feed(settings, index)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.tokens = nn.Embedding(settings.vocabulary, settings.width)
        self.positions = nn.Embedding(settings.length, settings.width)
        self.blocks = nn.ModuleList([Block(settings, index) for index in range(settings.layers)])
        self.norm = nn.LayerNorm(settings.width, eps=1e-5)
        self.head = nn.Linear(settings.width, settings.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def initial_state(model: nn.Module, settings: Settings) -> dict[str, torch.Tensor]:
    """The checkpoint that training begins from: normal with deviation 0.02, less where residuals are added."""
    generator = torch.Generator().manual_seed(settings.seed)
    state = {}
    for name, value in model.state_dict().items():
        deviation = 0.02 / math.sqrt(2 * settings.layers) if "outer.weight" in name else 0.02
        noise = torch.empty(value.shape).normal_(0.0, deviation, generator=generator)
        state[name] = 1.0 + noise if "norm" in name and "weight" in name else noise
    state["head.weight"] = state["tokens.weight"]
    return state


class Training:
    """One iteration at a time: micro-batches, clipping, optimizer."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        torch.manual_seed(settings.seed)
        with torch.device("meta"):
            self.model = GPT(settings)
        self.model.to_empty(device="cpu")
        self.model.head.weight = self.model.tokens.weight
        self.model.load_state_dict(initial_state(self.model, settings))
        generator = torch.Generator().manual_seed(settings.seed + 1)
        shape = (16 * settings.batch, settings.length + 1)
        self.data = torch.randint(0, settings.vocabulary, shape, generator=generator)
        decay = settings.weight_decay
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate, weight_decay=decay)
        self.losses: list[float] = []

    def batch(self, number: int) -> list[torch.Tensor]:
        """Tokens of the micro-batches of a step."""
        size, count = self.settings.batch, self.settings.micro_batches
        begins = [(number * count + micro) * size % len(self.data) for micro in range(count)]
        return [self.data[begin : begin + size] for begin in begins]

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="mean")
        return loss / self.settings.micro_batches

    def step(self, number: int) -> None:
        """One iteration."""
        self.optimizer.zero_grad()
        for tokens in self.batch(number):
            loss = self.loss(tokens)
            loss.backward()
            self.losses.append(loss.item())
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()

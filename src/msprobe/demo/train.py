"""A training as any other: a small GPT learns letters of Python's standard library. It does not know msprobe."""

from __future__ import annotations

import math
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, CONTEXT, BATCH, STEPS = 64, 4, 64, 8, 21
SCALE = 1 / math.sqrt(WIDTH // HEADS)


class Attention(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(scale)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(letters, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(SCALE), Block(SCALE), Block(SCALE))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def read_text() -> tuple[torch.Tensor, int]:
    """Some modules of the standard library, as numbers of letters; how many letters there are."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:12]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    letters = sorted(set(text))
    numbers = {letter: i for i, letter in enumerate(letters)}
    return torch.tensor([numbers[letter] for letter in text]), len(letters)


def train() -> None:
    text, letters = read_text()
    torch.manual_seed(1234)
    torch.set_num_threads(1)  # faster for a model this small
    model = GPT(letters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(STEPS):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1))
        batch = text[starts + torch.arange(CONTEXT + 1)]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if number % 10 == 0:
            print(f"  step {number:2}  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train()

"""The training of a user in the pages of docs/: two blocks with attention, Adam, a few steps. It does not know msprobe."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WORDS, LENGTH, WIDTH = 20, 6, 16


class Attention(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        return self.out(F.softmax(scores, dim=-1) @ v)


class DecoderLayer(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(self.norm(x))


class Model(nn.Module):
    """Words of a batch in, the loss out."""

    def __init__(self, scale: float = 0.25) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(DecoderLayer(0.25), DecoderLayer(scale))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.norm(self.blocks(self.words(batch[:, :-1]))))
        return F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    loss = model(batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def batches(number: int) -> list[torch.Tensor]:
    return [torch.randint(WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(step)) for step in range(number)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--scale", type=float, default=0.25, help="of the second block's scores")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(1)
    model = Model(options.scale)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    for batch in batches(options.steps):
        train_step(model, optimizer, batch)


if __name__ == "__main__":
    main()

"""Trains a small GPT, watched by a monitor. With ``--bug STEP`` its learning rate is ten times too large for twenty
steps from there on.

    MONITOR_OUTPUT_DIR=good python train.py
    MONITOR_OUTPUT_DIR=bad python train.py --bug 120
    msprobe monitor diff bad good
    msprobe monitor report bad good -o both.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from msprobe.pytorch import TrainerMon

HERE = Path(__file__).resolve().parent
WORDS, LENGTH, WIDTH = 200, 32, 64


class Block(nn.Module):
    """Attention and two linear maps, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: [batch, tokens, width]."""
        q, k, v = (part.unflatten(2, (4, -1)).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Model(nn.Module):
    """Predicts the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """``words``: [batch, tokens]; the scores of the next word at each place."""
        return self.head(self.norm(self.blocks(self.words(words) + self.places.weight[: words.shape[1]])))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--bug", type=int, help="step from which on the learning rate is wrong, for twenty steps")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = TrainerMon(HERE / "monitor.json")
    monitor.set_monitor(model, optimizer=optimizer)
    data = torch.Generator().manual_seed(1)
    for step in range(args.steps):
        wrong = args.bug is not None and args.bug <= step < args.bug + 20
        optimizer.param_groups[0]["lr"] = 1e-2 if wrong else 1e-3
        words = (torch.randint(0, WORDS, (8, 1), generator=data) + 7 * torch.arange(LENGTH + 1)) % WORDS
        loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        monitor.note(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
        optimizer.step()
        optimizer.zero_grad()
    monitor.stop()


if __name__ == "__main__":
    main()

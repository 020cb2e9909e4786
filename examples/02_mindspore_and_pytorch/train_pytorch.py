"""The training in PyTorch: ``python train_pytorch.py OUTPUT [--mistake NAME]``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from setting import (
    BETAS,
    BLOCKS,
    HEADS,
    LEARNING_RATE,
    LENGTH,
    WEIGHT_DECAY,
    WIDTH,
    WORDS,
    arguments,
    batch,
    configuration,
    weights,
)
from torch import nn

from msprobe.pytorch import PrecisionDebugger


class Attention(nn.Module):
    def __init__(self, mistake: str | None) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.merge = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mistake = mistake
        self.scale = (WIDTH if mistake == "scale" else WIDTH // HEADS) ** -0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.key(x).detach() if self.mistake == "stopped" else self.key(x)
        q, k, v = (self.heads(part) for part in (self.query(x), keys, self.value(x)))
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        if self.mistake != "mask":
            scores = scores + torch.triu(torch.full((LENGTH, LENGTH), -1e4), 1)
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.merge(mixed.transpose(1, 2).reshape(x.shape))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, mistake: str | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(mistake)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.gelu = nn.GELU(approximate="tanh" if mistake == "gelu" else "none")
        self.mistake = mistake

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mistake == "gradient" and x.requires_grad:
            x.register_hook(lambda gradient: 0.5 * gradient)
        attended = self.attention(self.norm1(x))
        x = attended if self.mistake == "residual" else x + attended
        return x + self.narrow(self.gelu(self.wide(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, mistake: str | None) -> None:
        super().__init__()
        first = mistake if mistake in ("gelu", "stopped") else None
        second = mistake if mistake in ("scale", "mask", "residual", "gradient") else None
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block((first, second)[number]) for number in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-3 if mistake == "epsilon" else 1e-5)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(LENGTH))
        return self.head(self.norm(self.blocks(x)))


def load(model: nn.Module, mistake: str | None) -> None:
    """Give the model the weights of the other framework."""
    values = weights()
    if mistake == "not_loaded":
        del values["blocks.1.narrow.weight"]
    if mistake == "weight":
        values["blocks.0.wide.weight"][3, 5] += 0.05
    model.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()}, strict=False)


def main() -> None:
    asked = arguments()
    torch.manual_seed(0)
    model = Model(asked.mistake)
    load(model, asked.mistake)
    optimizer = torch.optim.Adam(
        model.parameters(),
        lr=LEARNING_RATE / 2 if asked.mistake == "learning_rate" else LEARNING_RATE,
        betas=(BETAS[0], 0.99) if asked.mistake == "betas" else BETAS,
        weight_decay=1e-2 if asked.mistake == "weight_decay" else WEIGHT_DECAY,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(configuration(asked), file)
    debugger = PrecisionDebugger(config_path=file.name)
    Path(file.name).unlink()
    for step in range(asked.steps):
        words, following = (torch.from_numpy(part) for part in batch(step))
        debugger.start(model)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words).reshape(-1, WORDS), following.reshape(-1))
        loss.backward()
        debugger.stop()
        optimizer.step()
        debugger.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()

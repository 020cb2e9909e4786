"""Train a small transformer of the Llama kind on the text of Python's standard library.

python train.py            with PyTorch's own kernels
python train.py --fast     with those of fast_kernels.py
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 32, 2, 2, 40, 4


class Attention(nn.Module):
    """Each letter looks at those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, length, width]; the result has the same shape."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a gated network, each with a norm before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, length, width]; the result has the same shape."""
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """Letters to the odds of the next one."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(letters, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, letters, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [batch, length], whole numbers; the result: [batch, length, letters]."""
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train a small transformer.")
    parser.add_argument("--fast", action="store_true", help="with the kernels of fast_kernels.py")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    if options.fast:
        import fast_kernels  # noqa: F401

    text = (Path(sysconfig.get_path("stdlib")) / "argparse.py").read_text(encoding="utf-8")
    letters = sorted(set(text))
    numbers = torch.tensor([letters.index(letter) for letter in text])
    torch.manual_seed(1)
    model = Model(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(options.steps):
        starts = torch.randint(len(numbers) - CONTEXT - 1, (BATCH, 1))
        batch = numbers[starts + torch.arange(CONTEXT + 1)]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

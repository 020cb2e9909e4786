"""The trainings that benches record: a GPT of four layers in three widths, real structure, synthetic tokens.

The recorded region is one whole forward and backward: `start(model)`, forward, loss, backward, `stop()`,
`step()`. The optimizer step (AdamW) comes after `stop()`, outside the recorded region, but inside the
measured iteration, so a ratio on/off says how much longer a training iteration takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Size:
    """One setting: width and heads of the model, and how many sequences of how many tokens one step reads."""

    name: str
    width: int
    heads: int
    batch: int
    length: int
    vocabulary: int
    layers: int = 4


#: Chosen so that forward and backward on one thread of a common x86 core take about 3, 40 and 180 ms.
SIZES = {
    size.name: size
    for size in (
        Size("tiny", width=64, heads=4, batch=2, length=32, vocabulary=128),
        Size("small", width=256, heads=4, batch=2, length=80, vocabulary=512),
        Size("medium", width=512, heads=8, batch=2, length=112, vocabulary=1024),
    )
}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q = q.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        k = k.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        v = v.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Decoder-only transformer with learned positions and a head tied to the token embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList([Block(size.width, size.heads) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Training:
    """A seeded training of one size; `forward_backward` and `update` together are one iteration."""

    def __init__(self, size: Size, device: str = "cpu") -> None:
        torch.manual_seed(0)
        self.size = size
        self.model = GPT(size).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.ids = torch.randint(0, size.vocabulary, (size.batch, size.length + 1)).to(device)

    def forward_backward(self) -> None:
        """Forward, loss and backward of one batch: what is recorded."""
        logits = self.model(self.ids[:, :-1])
        loss = F.cross_entropy(logits.view(-1, self.size.vocabulary), self.ids[:, 1:].reshape(-1))
        loss.backward()

    def update(self) -> None:
        """The optimizer step: measured, not recorded."""
        self.optimizer.step()
        self.optimizer.zero_grad()

"""Small seeded trainings that run unchanged under any msprobe: the published one or ours.

Each program takes `recorder`, whose `start(model)`, `stop()` and `step()` are those of `PrecisionDebugger`,
and runs two iterations. Nothing here may import msprobe or depend on its version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

STEPS = 2


class Recorder(Protocol):
    """What a program needs of a debugger."""

    def start(self, model: object) -> None: ...

    def stop(self) -> None: ...

    def step(self) -> None: ...


def train(recorder: Recorder, model: nn.Module, loss_of: Callable[[int], torch.Tensor]) -> None:
    """Record forward and backward of `STEPS` iterations; the optimizer runs outside the recorded region."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration in range(STEPS):
        optimizer.zero_grad()
        recorder.start(model)
        loss_of(iteration).backward()
        recorder.stop()
        optimizer.step()
        recorder.step()


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l1 = nn.Linear(8, 16)
        self.n = nn.LayerNorm(16)
        self.l2 = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.l2(F.gelu(self.n(self.l1(x))) + 1), dim=-1)


def toy(recorder: Recorder) -> None:
    model = Toy()
    x = torch.randn(3, 8)
    train(recorder, model, lambda i: (model(x) ** 2).sum())


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, causal: bool = True) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), causal=True)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, recompute: bool | None = None) -> None:
        super().__init__()
        self.recompute = recompute  # None: no checkpointing; otherwise the value of use_reentrant
        self.tokens = nn.Embedding(31, 16)
        self.positions = nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([Block(16, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 31, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            if self.recompute is None:
                x = block(x)
            else:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.recompute)
        return self.head(self.norm(x))


def _train_transformer(recorder: Recorder, model: Transformer) -> None:
    ids = torch.randint(0, 31, (2, 12))
    targets = torch.randint(0, 31, (24,))
    train(recorder, model, lambda i: F.cross_entropy(model(ids).view(-1, 31), targets))


def transformer(recorder: Recorder) -> None:
    _train_transformer(recorder, Transformer())


def checkpoint_non_reentrant(recorder: Recorder) -> None:
    _train_transformer(recorder, Transformer(recompute=False))


def checkpoint_reentrant(recorder: Recorder) -> None:
    _train_transformer(recorder, Transformer(recompute=True))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, groups=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.conv1(x))), 2)
        x = torch.cat([self.conv2(x), self.conv2(x) * 0.5], dim=0)
        return self.fc(torch.flatten(self.pool(x), 1))


def convnet(recorder: Recorder) -> None:
    model = ConvNet()
    x, target = torch.randn(4, 3, 12, 12), torch.randint(0, 5, (8,))
    train(recorder, model, lambda i: F.cross_entropy(model(x), target))


def autocast(recorder: Recorder) -> None:
    model = Toy()
    x = torch.randn(3, 8)

    def loss(iteration: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        return (y.float() ** 2).sum()

    train(recorder, model, loss)


def optimizer_inside(recorder: Recorder) -> None:
    """Gradient clipping and the optimizer step inside the recorded region."""
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(3, 8)
    for _ in range(STEPS):
        optimizer.zero_grad()
        recorder.start(model)
        (model(x) ** 2).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        recorder.stop()
        recorder.step()


class Arguments(nn.Module):
    """Calls with every kind of argument that has its own encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.stack([self.fc(x), x], dim=0)
        y = torch.where(y > 0, y, torch.zeros_like(y))
        a, b = torch.split(y, 1, dim=0)
        z = torch.add(a, b, alpha=2).squeeze(0)
        values, _ = torch.max(z, dim=1)
        z = z.to(dtype=torch.float64).float() if z.dtype == torch.float32 else z
        order = torch.argsort(values.detach())
        big = torch.mul(torch.tensor([2**40 + 1, 3]), 1)
        flags = torch.logical_and(values.detach() > 0, values.detach() > -1)
        return z.sum() + order.sum() * 0 + big.sum() * 0.0 + flags.sum() * 0 + z[1:3, ...].mean()


def arguments(recorder: Recorder) -> None:
    model = Arguments()
    x = torch.randn(4, 6)
    train(recorder, model, lambda i: model(x))


def accumulate(recorder: Recorder) -> None:
    """Two backward passes of one step, and an evaluation without gradients."""
    model = Toy()
    x = torch.randn(3, 8)

    def loss(iteration: int) -> torch.Tensor:
        with torch.no_grad():
            model(x)
        (model(x) ** 2).sum().backward()
        return (model(x * 2) ** 2).sum()

    train(recorder, model, loss)


def in_place(recorder: Recorder) -> None:
    """In-place calls, views and an in-place activation (APIs only: module hooks can break it)."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    x = torch.randn(4, 6)

    def loss(iteration: int) -> torch.Tensor:
        y = model[0](x).add_(1).mul_(0.5)
        z = model[1](F.relu(y, inplace=True))
        left = z[:, :3]
        left += 1
        z[0] = 0
        return z.pow(2).sum()

    train(recorder, model, loss)


PROGRAMS: dict[str, Callable[[Recorder], None]] = {
    program.__name__: program
    for program in (
        toy, transformer, convnet, autocast, optimizer_inside, arguments, accumulate, in_place,
        checkpoint_non_reentrant, checkpoint_reentrant,
    )
}  # fmt: skip


def run(name: str, recorder: Recorder) -> None:
    """Run the program `name` from a fixed seed on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    PROGRAMS[name](recorder)

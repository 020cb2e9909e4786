"""A cell of the grid as a training: a block between two layers, a loss, an optimizer, and one condition."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .blocks import BLOCKS, SHAPE, WIDTH
from .losses import LOSSES

PRECISIONS = ("float32", "bfloat16", "autocast", "float16")
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda weights: torch.optim.AdamW(weights, 1e-3),
    "sgd": lambda weights: torch.optim.SGD(weights, 0.05),
    "nesterov": lambda weights: torch.optim.SGD(weights, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adafactor": lambda weights: torch.optim.Adafactor(weights, 1e-2),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, 1e-3, momentum=0.9),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, 1e-2),
    "nadam": lambda weights: torch.optim.NAdam(weights, 1e-3),
    "adamax": lambda weights: torch.optim.Adamax(weights, 1e-3),
    "foreach": lambda weights: torch.optim.AdamW(weights, 1e-3, foreach=True),
    "fused": lambda weights: torch.optim.AdamW(weights, 1e-3, fused=True),
}
#: What is given: how inputs are made of normal numbers.
INPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean of 50": lambda x: x + 50,
    "padded": lambda x: x * (torch.arange(SHAPE[1]) < 5).view(1, -1, 1),
    "samples alike": lambda x: x[:1].expand(SHAPE),
    "small inputs": lambda x: x * 1e-4,
    "large inputs": lambda x: x * 100,
}
#: What a loss is multiplied by in the first step, and in later ones.
FACTORS = {"small loss": (1e-6, 1e-6), "large loss": (1e4, 1e4), "no gradient": (0.0, 1.0)}
CONDITIONS = (
    "plain", "last", "norm behind", "clipped", "averaged", "accumulated", "frozen", "tied", "checkpointed", "zero head",
    *INPUTS, *FACTORS,
)  # fmt: skip


class Cell(NamedTuple):
    """Names of what a training is made of."""

    block: str
    loss: str
    optimizer: str = "adamw"
    condition: str = "plain"


class Network(nn.Module):
    def __init__(self, block: str, condition: str) -> None:
        super().__init__()
        self.into, self.block, self.condition = nn.Linear(WIDTH, WIDTH), BLOCKS[block](), condition
        self.norm = nn.LayerNorm(WIDTH) if condition == "norm behind" else nn.Identity()
        self.head = nn.Identity() if condition == "last" else nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        x = checkpoint(self.block, x, use_reentrant=False) if self.condition == "checkpointed" else self.block(x)
        return self.head(self.norm(x))


def cells(count: int, seed: int) -> Iterator[Cell]:
    """So many cells, drawn at random, the same ones for a seed."""
    drawn = random.Random(seed)
    for _ in range(count):
        yield Cell(*(drawn.choice(list(names)) for names in (BLOCKS, LOSSES, OPTIMIZERS, CONDITIONS)))


def training(cell: Cell, precision: str) -> tuple[nn.Module, Callable[[int], None]]:
    """The model, and what is done in a step."""
    condition, half = cell.condition, precision == "bfloat16"
    model = Network(cell.block, condition)
    if condition == "tied":
        model.head.weight = model.into.weight
    if condition == "zero head":
        nn.init.zeros_(model.head.weight)
    model.into.requires_grad_(condition != "frozen")
    model.to(torch.bfloat16 if half else torch.float32)
    optimizer = OPTIMIZERS[cell.optimizer]([weight for weight in model.parameters() if weight.requires_grad])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=precision == "float16")
    average = deepcopy(model).requires_grad_(False)

    def computing() -> AbstractContextManager[Any]:
        dtype = {"autocast": torch.bfloat16, "float16": torch.float16}.get(precision)
        return torch.autocast("cpu", dtype=dtype) if dtype else nullcontext()

    def loss_of(number: int) -> torch.Tensor:
        x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(number))
        x = INPUTS.get(condition, lambda x: x)(x).to(torch.bfloat16 if half else torch.float32)
        with computing():
            given = model(x).float()
        return LOSSES[cell.loss](given, number) * FACTORS.get(condition, (1.0, 1.0))[min(number, 1)]

    def step(number: int) -> None:
        passes = 2 if condition == "accumulated" else 1
        for part in range(passes):
            scaler.scale(loss_of(passes * number + part) / passes).backward()
        if condition == "clipped":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if condition == "averaged":
            with torch.no_grad():
                for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
                    kept.lerp_(weight, 0.1)

    return model, step


def compare_with_device(folder: Any, cell: Cell, precision: str, level: str, variant: str) -> Any:
    """The verdict of two steps on this device against the same of torch."""
    from unit.diagnose.real_pairs import record_training

    from msprobe.diagnose import compare_runs

    from ..kernels.device import Device

    def build() -> tuple[nn.Module, Callable[[int], None]]:
        return training(cell, precision)

    with Device(variant):
        candidate = record_training(folder / "candidate", build, steps=2, level=level)
    reference = folder / "reference"
    if not reference.is_dir():
        record_training(reference, build, steps=2, level=level)
    return compare_runs(candidate, reference)

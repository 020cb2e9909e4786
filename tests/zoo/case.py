"""What a zoo architecture offers to the tests that run it, and the register of all architectures.

An architecture is a function without arguments that builds a `TrainingCase`; `build(name, seed)` seeds every
random generator first, so two builds of one name are the same training. The code of an architecture knows
nothing of msprobe: the same `run_step` runs bare and recorded, and the caller decides through the `Region`
it passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

Results = dict[str, object]
LossAndResults = tuple[torch.Tensor, Results]


class Region(Protocol):
    """Where recording begins and ends inside a step; a step may hold several regions, one after the other."""

    def begin(self, models: nn.Module | Sequence[nn.Module]) -> None: ...

    def end(self) -> None: ...

    def save(self, value: object, name: str) -> None:
        """Hand a variable to the recorder, as users do at level debug."""


@dataclass
class TrainingCase:
    """One small training.

    `run_step(i, region)` runs iteration i, calls `region.begin(model)` and `region.end()` itself, and
    returns whatever has to be the same with and without recording: tensors (nested in lists, tuples,
    dicts), numbers, texts, lists of what was called. `tracked` names the things whose whole state is
    compared after each step: modules (parameters, gradients, buffers), optimizers, anything with a
    `state_dict`, tensors. Gradients must therefore be cleared at the beginning of a step, not at its end.
    """

    run_step: Callable[[int, Region], Results]
    tracked: dict[str, Any]
    steps: int = 3
    close: Callable[[], None] = field(default=lambda: None)


Builder = Callable[[], TrainingCase]


@dataclass(frozen=True)
class Architecture:
    """A registered builder.

    `ranks` > 1: needs that many processes in an initialised gloo group. `slow`: takes many seconds.
    """

    name: str
    builder: Builder
    ranks: int = 1
    slow: bool = False


ARCHITECTURES: dict[str, Architecture] = {}


def architecture(ranks: int = 1, slow: bool = False) -> Callable[[Builder], Builder]:
    """Register a builder under its own function name."""

    def register(builder: Builder) -> Builder:
        name = builder.__name__
        if name in ARCHITECTURES:
            raise ValueError(f"two architectures are named {name!r}")
        ARCHITECTURES[name] = Architecture(name, builder, ranks, slow)
        return builder

    return register


def seed_generators(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def build(name: str, seed: int = 1234) -> TrainingCase:
    """The named training, freshly built from the given seed."""
    seed_generators(seed)
    return ARCHITECTURES[name].builder()


Batch = Callable[[int], tuple[Any, ...]]
LossOf = Callable[..., "torch.Tensor | LossAndResults"]


def supervised(
    model: nn.Module,
    batch: Batch,
    loss_of: LossOf,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    optimizer_inside: bool = True,
    clip: float | None = None,
    **tracked: Any,
) -> TrainingCase:
    """The usual loop: zero gradients, forward, loss, backward, optional clipping, optimizer step.

    `batch(i)` gives the data of iteration i, `loss_of(model, *data)` the loss or (loss, results to compare).
    `optimizer_inside`: whether the optimizer step lies inside the recorded region.
    """
    chosen = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        data = batch(i)
        chosen.zero_grad()
        region.begin(model)
        outcome = loss_of(model, *data)
        loss, results = outcome if isinstance(outcome, tuple) else (outcome, {})
        loss.backward()
        if clip is not None:
            results["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), clip)
        if optimizer_inside:
            chosen.step()
        region.end()
        if not optimizer_inside:
            chosen.step()
        return {"loss": loss, **results}

    return TrainingCase(run_step, {"model": model, "optimizer": chosen, **tracked})

"""Losses and networks that choose (the hardest sample, a code, whether a ratio is cut off): where rounding makes them
choose otherwise, gradients jump, and `monitor diff` finds no bad step; a mistake beside such a choice it finds. A
comment names where public programs have it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.row_by_row import for_each
from torch import nn
from unit.monitor.test_trainings_of_threads import CONFIG, Kept

from msprobe.monitor.locate import HALF, FirstBadStep, first_bad_step
from msprobe.monitor.sketch import Sketch
from msprobe.pytorch import TrainerMon

STEPS, LATER = 16, 6
Batch = tuple[torch.Tensor, torch.Tensor]


def images(step: int) -> Batch:
    """Sixteen images of ten classes."""
    made = torch.Generator().manual_seed(3000 + step)
    labels, made_of = torch.randint(0, 10, (16,), generator=made), torch.randn(16, 3, 16, 16, generator=made)
    for at, label in enumerate(labels.tolist()):
        made_of[at, label % 3, label : label + 4] += 1.5
    return made_of, labels


class Patches(nn.Module):
    """A transformer over patches; the bias of its keys has a gradient of rounding alone, in one tensor with others."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 0]))  # type: ignore[no-any-return]


class Embedded(nn.Module):
    """Images as points on a sphere."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.PReLU(16), nn.Conv2d(16, 32, 3, 2, 1), nn.PReLU(32), nn.Flatten()
        )
        self.last = nn.Linear(512, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.last(self.body(x)), dim=-1)


class Codes(nn.Module):
    """An autoencoder whose numbers are the nearest of 24 codes."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 8, 1))
        self.codes = nn.Embedding(24, 8)
        self.out_of = nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.into(x)
        nearest = torch.cdist(z.permute(0, 2, 3, 1).reshape(-1, 8), self.codes.weight).argmin(1)
        chosen = self.codes(nearest).view(len(x), 4, 4, 8).permute(0, 3, 1, 2)
        apart = F.mse_loss(chosen, z.detach()) + 0.25 * F.mse_loss(z, chosen.detach())
        return self.out_of(z + (chosen - z).detach()), apart


class Rounded(nn.Module):
    """Weights of seven levels on each side, with a gradient as if they were not rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(768, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        for layer in (self.one, self.two):
            unit = layer.weight.abs().max() / 7
            weight = layer.weight + ((layer.weight / unit).round() * unit - layer.weight).detach()
            x = F.relu(F.linear(x, weight, layer.bias))
        return self.head(x)  # type: ignore[no-any-return]


def cut_off(model: nn.Module, batch: Batch, step: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(3000 + step)
    x, labels = batch
    chances = model(x).float().log_softmax(-1)
    actions = torch.randint(0, 10, (len(x), 1), generator=made)
    gained = (labels == actions[:, 0]).float() - 0.1
    before = torch.log(torch.rand(len(x), generator=made) * 0.1 + 0.05)
    ratio = (chances.gather(1, actions)[:, 0] - before).exp()
    entropy = (chances.exp() * chances).sum(-1).mean()
    return -torch.min(ratio * gained, ratio.clamp(0.8, 1.2) * gained).mean() + 0.01 * entropy


def hardest(model: nn.Module, batch: Batch, step: int) -> torch.Tensor:
    x, labels = batch
    points = model(x).float()
    apart, same = torch.cdist(points, points), labels[:, None] == labels
    return F.relu((apart * same).amax(1) - (apart + 10 * same).amin(1) + 0.3).mean()


def nearest(model: nn.Module, batch: Batch, step: int) -> torch.Tensor:
    made, apart = model(batch[0])
    return F.mse_loss(made.float(), batch[0]) + apart.float()


def margins(model: nn.Module, batch: Batch, step: int) -> torch.Tensor:
    return F.multi_margin_loss(model(batch[0]).float(), batch[1])


def entropy(model: nn.Module, batch: Batch, step: int) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]).float(), batch[1])


def worst_half(model: nn.Module, batch: Batch, step: int) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]).float(), batch[1], reduction="none").topk(8).values.mean()


@dataclass(frozen=True)
class Program:
    """A network, its loss, and what of it may be computed otherwise."""

    make: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch, int], torch.Tensor]
    others: tuple[str, ...]


PROGRAMS: dict[str, Program] = {
    # huggingface/trl, openrlhf, CleanRL: the smaller of a ratio and of the ratio that is cut off
    "a ratio that is cut off": Program(Patches, cut_off, ("onednn", "kernel")),
    # adambielski/siamese-triplet, KevinMusgrave/pytorch-metric-learning: the hardest sample of a batch
    "the hardest sample": Program(Embedded, hardest, ("onednn", "order")),
    # lucidrains/vector-quantize-pytorch: the nearest code
    "the nearest code": Program(Codes, nearest, ("onednn",)),
    # pytorch/ao: weights that are rounded while they are trained
    "rounded weights": Program(Rounded, entropy, ("onednn", "order")),
    # many: losses that are nothing beyond a margin
    "a loss of margins": Program(Patches, margins, ("kernel", "order")),
    # many: only the samples with the largest losses count (OHEM)
    "the worst half of a batch": Program(Patches, worst_half, ("kernel", "order")),
}


def train(folder: Path, name: str, type_: str, change: str = "") -> list[Sketch]:
    """One training; its sketches. ``change``: what is computed otherwise, or what is wrong."""
    program = PROGRAMS[name]
    kernel = torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH])
    torch.manual_seed(3)
    model = program.make()
    flat = [one for one in model.parameters() if one.dim() < 2]
    rest = [one for one in model.parameters() if one.dim() > 1]
    optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}], 1e-3)
    (folder / "m.json").write_text(json.dumps(CONFIG))
    kept = Kept()
    monitor = TrainerMon(folder / "m.json", sinks=[kept])
    monitor.set_monitor(model, optimizer=optimizer)
    chosen = rest[len(rest) // 2]
    with kernel if change == "kernel" else nullcontext(), torch.backends.mkldnn.flags(enabled=change != "onednn"):
        for step in range(STEPS):
            x, labels = images(step + (500 if change == "data" and step == LATER else 0))
            if change == "order":
                x, labels = x.roll(5, 0), labels.roll(5, 0)
            if not (change == "kept gradients" and step >= LATER):
                optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=type_ == "autocast"):
                loss = program.loss(model, (x, labels), step)
            loss.backward()
            assert chosen.grad is not None
            if change == "one gradient":
                chosen.grad.mul_(1.05)
            if change == "a spike" and step == LATER:
                chosen.grad.mul_(20)
            before = chosen.detach().clone()
            monitor.note(loss=float(loss.detach()))
            optimizer.step()
            if change == "a frozen weight" and step >= LATER:
                with torch.no_grad():
                    chosen.copy_(before)
    monitor.stop()
    return kept.found


@cache
def right(folder: Path, name: str, type_: str) -> list[Sketch]:
    return train(folder, name, type_)


def found_in(folder: Path, name: str, type_: str, change: str) -> FirstBadStep | None:
    rounding = HALF["bfloat16"] if type_ == "autocast" else 0.0
    return first_bad_step(right(folder, name, type_), train(folder, name, type_, change), {}, rounding)


HEALTHY = [(name, other) for name, one in PROGRAMS.items() for other in one.others]


@pytest.mark.parametrize("type_", ["float32", "autocast"])
@for_each("name, other", HEALTHY)
def test_another_choice_by_rounding_is_no_bad_step(folder: Path, name: str, other: str, type_: str) -> None:
    found = found_in(folder, name, type_, other)
    assert found is None, (found.step, found.what[:2])


#: What is wrong, and from which step on.
WRONG = {"one gradient": 0, "kept gradients": LATER, "a spike": LATER, "a frozen weight": LATER, "data": LATER}


@pytest.mark.parametrize("name", ["a ratio that is cut off", "the hardest sample"])
@pytest.mark.parametrize("type_", ["float32", "autocast"])
@for_each("change, at", WRONG.items())
def test_a_mistake_beside_such_a_choice_is_found(folder: Path, change: str, at: int, type_: str, name: str) -> None:
    found = found_in(folder, name, type_, change)
    assert found is not None
    assert at <= found.step <= at + 8, (found.step, found.what[:2])

"""Calls that one side alone makes, while every call differs a little: they are named, whatever comes of them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

BOTH = pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])


def rand(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Adapted(nn.Module):
    """A frozen layer, and two that are trained beside it. ``skips``: these are not used."""

    def __init__(self, skips: bool) -> None:
        super().__init__()
        self.skips, self.base = skips, nn.Linear(24, 24).requires_grad_(False)
        self.down, self.up = nn.Linear(24, 4, bias=False), nn.Linear(4, 24, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        return y if self.skips else y + self.up(self.down(x)) * 0.5  # type: ignore[no-any-return]


def training(
    precision: str,
    penalty: Callable[[Tensor], Tensor] = lambda apart: apart.exp() - apart - 1.0,
    skips: bool = False,
    factor: float = 1.0,
    masks: bool = True,
    drops: bool = False,
) -> Training:
    """A policy that begins as its reference. ``penalty``: on how far it is from that, which is zero in the first step;
    ``skips``: an adapter is not used; ``factor``: of the logits; ``masks``: the last label does not count; ``drops``:
    the reference drops out.
    """
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model = nn.Sequential(nn.Embedding(30, 24), Adapted(skips), nn.Tanh(), Adapted(False), nn.Linear(24, 30)).to(dtype)
    model[0].requires_grad_(False)
    reference = nn.Sequential(nn.Embedding(30, 24), Adapted(False), nn.Tanh(), Adapted(False), nn.Linear(24, 30))
    reference.to(dtype).requires_grad_(False).load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-3)

    def logits_of(network: nn.Module, tokens: Tensor) -> Tensor:
        is_on = precision == "autocast"
        with torch.autocast("cpu", torch.bfloat16) if is_on else contextlib.nullcontext():
            logits: Tensor = network(tokens).float()
        return logits * factor if factor != 1.0 else logits

    def step(number: int) -> None:
        tokens = torch.randint(0, 30, (6, 10), generator=torch.Generator().manual_seed(number))
        labels, hidden = tokens.roll(-1, 1).clone(), torch.zeros(6, 10, dtype=torch.long)
        labels[:, -1] = -100
        if masks:
            labels[tokens == 3] = -100
        hidden[0, 5:] = 1
        counted = (labels != -100).float() * (1 - hidden)
        mine = logits_of(model, tokens).log_softmax(-1)
        with torch.no_grad():
            theirs = logits_of(reference, tokens)
            theirs = F.dropout(theirs, 0.02) if drops else theirs / 1.0
        theirs = theirs.log_softmax(-1)
        places = labels.clamp(min=0)[..., None]
        taken, others = mine.gather(-1, places)[..., 0], theirs.gather(-1, places)[..., 0]
        loss = ((0.1 * penalty(others - taken) - taken) * counted).sum() / counted.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


def verdict_of(folder: Path, precision: str, is_swapped: bool, **wrong: Any) -> Any:
    sides = (lambda: training(precision, **wrong)), (lambda: training(precision))
    return compare_behind_device(folder, *(reversed(sides) if is_swapped else sides))


@pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])
def test_the_same_program_agrees(tmp_path: Path, precision: str) -> None:
    verdict = verdict_of(tmp_path, precision, is_swapped=False)
    assert verdict.status == "agree", verdict.findings


@BOTH
def test_a_penalty_that_is_nothing_and_has_a_gradient(tmp_path: Path, is_swapped: bool) -> None:
    verdict = verdict_of(tmp_path, "float32", is_swapped, penalty=lambda apart: -apart)
    assert (verdict.status, verdict.findings[0].kind) == ("diverged", "structure")
    where = ("Tensor.__neg__.0.forward", "Tensor.exp.0.forward")[is_swapped]
    assert verdict.findings[0].where == where, verdict.findings


@BOTH
@pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])
def test_an_adapter_that_one_side_skips(tmp_path: Path, precision: str, is_swapped: bool) -> None:
    verdict = verdict_of(tmp_path, precision, is_swapped, skips=True)
    first = verdict.findings[0]
    assert (verdict.status, first.kind, first.where) == ("diverged", "structure", "Functional.linear.1.forward")


@BOTH
@pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])
def test_a_small_factor_of_one_side(tmp_path: Path, precision: str, is_swapped: bool) -> None:
    verdict = verdict_of(tmp_path, precision, is_swapped, factor=1.02)
    first = verdict.findings[0]
    assert verdict.status in ("diverged", "harmless")
    assert (first.kind, first.where) == ("structure", "Tensor.__mul__.3.forward"), verdict.findings


@BOTH
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_labels_that_one_side_masks(tmp_path: Path, precision: str, is_swapped: bool) -> None:
    """Two tensors of one kind are written to, and the second last."""
    verdict = verdict_of(tmp_path, precision, is_swapped, masks=False)
    first = verdict.findings[0]
    assert verdict.status in ("diverged", "harmless")
    alone = first.evidence["reference_alone" if not is_swapped else "candidate_alone"]
    assert (first.kind in ("structure", "mutation"), alone[-1]) == (True, "Tensor.__setitem__.1.forward"), first


@BOTH
@pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])
def test_random_numbers_that_one_side_draws(tmp_path: Path, precision: str, is_swapped: bool) -> None:
    verdict = verdict_of(tmp_path, precision, is_swapped, drops=True)
    first = verdict.findings[0]
    assert verdict.status in ("diverged", "harmless")
    where = ("Functional.dropout.0.forward", "Tensor.__truediv__.0.forward")[is_swapped]
    assert (first.kind, first.where) == ("structure", where), verdict.findings


def critics(precision: str, least: bool, seed: int = 0) -> Training:
    """Two critics learn what two others say of the next state: the ``least`` of both, or their mean."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    acts = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 4)).to(dtype)
    learns = [nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1)).to(dtype) for _ in range(2)]
    says = [copy.deepcopy(part).requires_grad_(False) for part in learns]
    optimizer = torch.optim.Adam([weight for part in learns for weight in part.parameters()], 3e-4)

    def step(number: int) -> None:
        number += seed
        torch.manual_seed(number)
        states, following = rand(number, 32, 6).to(dtype), rand(number + 1, 32, 6).to(dtype)
        taken, rewards = torch.tanh(rand(number + 2, 32, 2).to(dtype)), rand(number + 3, 32)
        with torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext():
            with torch.no_grad():
                mean, spread = acts(following).float().chunk(2, -1)
                drawn = mean + spread.exp() * torch.randn(mean.shape)
                likely = (-0.5 * ((drawn - mean) / spread.exp()).square() - spread).sum(-1)
                likely = likely - (1.4 - 2.0 * drawn - 2.0 * F.softplus(-2.0 * drawn)).sum(-1)
                pair = torch.cat([following, torch.tanh(drawn).to(dtype)], -1)
                first, second = (part(pair) for part in says)
                value = torch.minimum(first, second) if least else 0.5 * (first + second)
                wanted = rewards + 0.99 * (value[:, 0].float() - likely)
            pair = torch.cat([states, taken], -1)
            loss = sum(F.mse_loss(part(pair)[:, 0].float(), wanted) for part in learns)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()

    return nn.ModuleList([acts, *learns, *says]), step


@BOTH
@pytest.mark.parametrize("seed", [40, 50, 70])
@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
def test_calls_that_compute_something_else_are_named(
    tmp_path: Path, precision: str, seed: int, is_swapped: bool
) -> None:
    sides = (lambda: critics(precision, False, seed)), (lambda: critics(precision, True, seed))
    verdict = compare_behind_device(tmp_path, *(reversed(sides) if is_swapped else sides))
    assert verdict.status in ("harmless", "diverged")
    assert verdict.findings[0].name == "replaced-calls"
    assert "minimum" in str(verdict.findings[0].message)

"""Gradients that are clipped before the scale of the loss is taken from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.messages import said
from msprobe.report.advice import advice_on


def scaled(*order: str, most: float = 0.05) -> Callable[[], Training]:
    """A training with a scaler; ``order``: what is done after the backward pass."""

    def build() -> Training:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        work: dict[str, Callable[[], Any]] = {
            "unscale": lambda: scaler.unscale_(optimizer),
            "clip": lambda: nn.utils.clip_grad_norm_(model.parameters(), most),
            "clip values": lambda: nn.utils.clip_grad_value_(model.parameters(), most / 50),
        }

        def step(number: int) -> None:
            generator = torch.Generator().manual_seed(number)
            x, y = torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)
            optimizer.zero_grad()
            scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
            for one in order:
                work[one]()
            scaler.step(optimizer)
            scaler.update()

        return model, step

    return build


@pytest.mark.parametrize("level", ["mix", "L1", "L0"])
@pytest.mark.parametrize("wrong", [("clip", "unscale"), ("clip",)], ids=["before", "without unscale_"])
@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
def test_clipping_before_unscaling_is_told_as_that(
    tmp_path: Path, wrong: tuple[str, ...], level: str, turned: bool
) -> None:
    pair = (scaled(*wrong), scaled("unscale", "clip"))
    verdict = compare_trainings(tmp_path, *(pair[::-1] if turned else pair), level=level)
    found = verdict.findings[0]
    assert (verdict.status, found.evidence["cause"]) == ("diverged", "scaled_clipping")
    assert f"the {'reference' if turned else 'candidate'} clips" in found.message
    assert "1024" in found.message
    assert "unscale_" in advice_on(found)
    assert not any(one.evidence.get("cause") == "clipping" for one in verdict.findings)


def test_clipping_of_values_before_unscaling_is_told_as_that(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, scaled("clip values", "unscale"), scaled("unscale", "clip values"))
    assert verdict.findings[0].evidence["cause"] == "scaled_clipping"
    assert "(in clip_grad_value_)" in verdict.findings[0].message


def test_the_right_order_on_both_sides_is_none(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, scaled("unscale", "clip"), scaled("unscale", "clip", most=0.01))
    assert verdict.status == "diverged"
    assert not any(one.evidence.get("cause") == "scaled_clipping" for one in verdict.findings)


def test_clipping_that_one_side_leaves_out_is_none(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, scaled("unscale"), scaled("unscale", "clip"))
    assert verdict.findings[0].evidence["cause"] == "clipping"


def divided_by_hand(*order: str, most: float = 0.05) -> Callable[[], Training]:
    """A training that scales its loss without a scaler; ``order``: what is done after the backward pass."""

    def build() -> Training:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def divide() -> None:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.div_(1024)

        work: dict[str, Callable[[], Any]] = {
            "divide": divide,
            "clip": lambda: nn.utils.clip_grad_norm_(model.parameters(), most),
        }

        def step(number: int) -> None:
            generator = torch.Generator().manual_seed(number)
            x, y = torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)
            optimizer.zero_grad()
            (nn.functional.mse_loss(model(x), y) * 1024).backward()
            for one in order:
                work[one]()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
def test_clipping_before_the_program_divides_gradients_by_itself_is_told_as_that(tmp_path: Path, turned: bool) -> None:
    pair = (divided_by_hand("clip", "divide"), divided_by_hand("divide", "clip"))
    verdict = compare_trainings(tmp_path, *(pair[::-1] if turned else pair))
    assert verdict.status == "diverged"
    assert [one.evidence.get("cause") for one in verdict.findings] == ["scaled_clipping"]
    assert f"the {'reference' if turned else 'candidate'} clips" in verdict.findings[0].message
    assert said("divides-them-by", 1024.0) in verdict.findings[0].message
    assert "unscale_" in advice_on(verdict.findings[0])


def test_the_order_is_harmless_where_nothing_is_clipped(tmp_path: Path) -> None:
    pair = (divided_by_hand("clip", "divide", most=1e9), divided_by_hand("divide", "clip", most=1e9))
    assert compare_trainings(tmp_path, *pair).status in ("agree", "harmless")

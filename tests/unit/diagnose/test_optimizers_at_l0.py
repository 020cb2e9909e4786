"""What an optimizer gets and does where modules alone were recorded, behind other kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def _stepped(written: str, dtype: torch.dtype) -> Training:
    """An optimizer of one flat parameter in single precision, that holds all of the model. ``written``: ``whole``,
    ``halved`` (its gradient), ``tail`` (the last elements of it are lost), ``twice`` (it steps twice), ``quick`` (with
    another rate).
    """
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30)).to(dtype)
    parameters = list(model.parameters())
    flat = nn.Parameter(torch.cat([parameter.detach().flatten().float() for parameter in parameters]))
    optimizer = torch.optim.AdamW([flat], lr=2e-3 if written == "quick" else 1e-3)

    def step(number: int) -> None:
        rows = torch.randn(40, 24, generator=torch.Generator().manual_seed(number)).to(dtype)
        F.cross_entropy(model(rows).float(), torch.arange(40) % 30).backward()
        gradient = torch.cat(
            [parameter.grad.flatten().float() for parameter in parameters if parameter.grad is not None]
        )
        if written == "halved":
            gradient /= 2
        if written == "tail":
            gradient[-len(gradient) // 4 :] = 0
        flat.grad = gradient
        optimizer.step()
        if written == "twice":
            optimizer.step()
        place = 0
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(flat[place : place + parameter.numel()].view_as(parameter))
                place += parameter.numel()
        model.zero_grad()

    return model, step


@DTYPES
def test_a_flat_parameter_of_two_devices_agrees(tmp_path: Path, dtype: torch.dtype) -> None:
    trainings = [lambda: _stepped("whole", dtype)] * 2
    verdict = compare_behind_device(tmp_path, *trainings, level="L0", steps=2)
    assert verdict.status == "agree", verdict.findings


@DTYPES
@pytest.mark.parametrize("written", ["halved", "tail"])
def test_a_flat_gradient_that_no_pass_explains_is_named(tmp_path: Path, dtype: torch.dtype, written: str) -> None:
    trainings = (lambda: _stepped(written, dtype)), (lambda: _stepped("whole", dtype))
    verdict = compare_behind_device(tmp_path, *trainings, level="L0")
    assert verdict.status == "diverged"
    assert verdict.findings[0].entry == "Optimizer.AdamW.0.forward", verdict.findings[0]


@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
def test_a_second_step_of_one_side_is_named_in_a_type_that_hides_it(tmp_path: Path, is_swapped: bool) -> None:
    sides = [lambda: _stepped("twice", torch.bfloat16), lambda: _stepped("whole", torch.bfloat16)]
    verdict = compare_behind_device(tmp_path, *(sides[::-1] if is_swapped else sides), level="L0", steps=2)
    first = verdict.findings[0]
    assert (verdict.status, first.name) == ("diverged", "optimizer-step-again")
    assert (first.step, first.entry) == (0, "Optimizer.AdamW.1.forward")


def _plain(dtype: torch.dtype) -> Training:
    """The same with an optimizer of the parameters of modules."""
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 30)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        rows = torch.randn(40, 24, generator=torch.Generator().manual_seed(number)).to(dtype)
        F.cross_entropy(model(rows).float(), torch.arange(40) % 30).backward()
        optimizer.step()
        model.zero_grad()

    return model, step


@DTYPES
@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
def test_parameters_in_other_parts_that_move_alike_are_harmless(
    tmp_path: Path, dtype: torch.dtype, is_swapped: bool
) -> None:
    sides = [lambda: _stepped("whole", dtype), lambda: _plain(dtype)]
    verdict = compare_behind_device(tmp_path, *(sides[::-1] if is_swapped else sides), level="L0", steps=2)
    assert verdict.status in ("agree", "harmless"), verdict.findings


@DTYPES
@pytest.mark.parametrize(("written", "cause"), [("halved", "in_parts"), ("quick", None)])
def test_what_differs_in_other_parts_is_named(
    tmp_path: Path, dtype: torch.dtype, written: str, cause: str | None
) -> None:
    trainings = (lambda: _stepped(written, dtype)), (lambda: _plain(dtype))
    verdict = compare_behind_device(tmp_path, *trainings, level="L0", steps=2)
    first = verdict.findings[0]
    assert (verdict.status, first.entry, first.cause) == ("diverged", "Optimizer.AdamW.0.forward", cause), first

"""Calls that never fall, or never rise, are judged by what they make of the largest and the least element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.rows_made import RowsOfArrays, call_of

from msprobe.diagnose.measured.ends import apart_at_ends
from msprobe.diagnose.measured.own_arguments import OneCall

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Torch.exp": torch.exp,
    "Torch.expm1": torch.expm1,
    "Torch.log": torch.log,
    "Torch.log1p": torch.log1p,
    "Functional.relu": F.relu,
    "Functional.relu6": F.relu6,
    "Tensor.sigmoid": torch.sigmoid,
    "Functional.softplus": F.softplus,
    "Tensor.sqrt": torch.sqrt,
    "Torch.rsqrt": torch.rsqrt,
    "Torch.reciprocal": torch.reciprocal,
    "Tensor.tanh": torch.tanh,
    "Torch.erf": torch.erf,
    "Torch.abs": torch.abs,
    "Tensor.square": torch.square,
}


def _apart(name: str, sides: list[tuple[torch.Tensor, torch.Tensor]], *more: Any, **named: Any) -> float | None:
    """``sides``: argument and result of the candidate and of the reference."""
    rows: Any = RowsOfArrays(), RowsOfArrays()
    calls = [
        OneCall.of(
            call_of(its, f"{name}.0.forward", [x.double().numpy(), *more], y.double().numpy(), named, str(y.dtype))
        )
        for its, (x, y) in zip(rows, sides, strict=True)
    ]
    return apart_at_ends(*calls, *rows)


def _arguments(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(40, 60)
    if name.rpartition(".")[2] in ("log", "log1p", "sqrt", "rsqrt", "reciprocal"):
        x = x.abs() + 0.05
    return x.to(dtype), (x * (1 + 0.05 * torch.randn(40, 60))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLS)
def test_a_result_too_large_is_seen_behind_arguments_that_are_apart(name: str, dtype: torch.dtype) -> None:
    compute, (x, its) = CALLS[name], _arguments(name, dtype)
    good, reference = (x, compute(x)), (its, compute(its))
    assert _apart(name, [good, reference]) is None
    wrong = x, (compute(x.float()) * 1.06).to(dtype)
    assert (_apart(name, [wrong, reference]) or 0.0) > 0.02


def test_a_number_that_is_added_shows_at_the_least() -> None:
    x, its = _arguments("Functional.relu", torch.bfloat16)
    wrong = x, F.relu(x) + 0.01
    assert (_apart("Functional.relu", [wrong, (its, F.relu(its))]) or 0.0) > 0.5


def test_what_is_not_known_is_not_judged() -> None:
    x, its = _arguments("Functional.softplus", torch.bfloat16)
    sides = [(x, F.softplus(x, beta=2.0)), (its, F.softplus(its))]
    assert _apart("Functional.softplus", sides, beta=2.0) is None  # its arguments say more than the tensor
    assert _apart("Functional.gelu", [(x, F.gelu(x)), (its, F.gelu(its) * 2)]) is None  # falls, and rises
    beyond = torch.full((4, 4), 1000.0, dtype=torch.bfloat16)
    assert _apart("Torch.exp", [(beyond, beyond), (its, its.exp())]) is None
    of_both_signs = [(x, x.abs()), (its, its.abs())]
    assert _apart("Torch.abs", of_both_signs) is None
    hidden = x.clone()
    hidden[0, 0] = 1e30
    assert _apart("Functional.relu", [(hidden, x), (its, F.relu(its))]) is None

"""Norms give all rows one size, and a softmax one sum: what arguments are apart by hides no wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.rows_made import RowsOfArrays, call_of

from msprobe.diagnose.measured.kept import KeptSize, kept_size
from msprobe.diagnose.measured.own_arguments import OneCall

_WIDTH = 32
_Compute = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, training: bool = True) -> torch.Tensor:
    mean, variance = torch.zeros(_WIDTH), torch.ones(_WIDTH)
    return F.batch_norm(x, mean, variance, weight, bias, training)


#: What computes it, and its arguments behind the tensor as a dump has them.
CALLS: dict[str, tuple[_Compute, Callable[[Any, Any], list[Any]]]] = {
    "Functional.layer_norm": (lambda x, w, b: F.layer_norm(x, (_WIDTH,), w, b), lambda w, b: [_WIDTH, w, b, 1e-5]),
    "Functional.group_norm": (lambda x, w, b: F.group_norm(x, 4, w, b), lambda w, b: [4, w, b, 1e-5]),
    "Torch.rms_norm": (lambda x, w, b: F.rms_norm(x, (_WIDTH,), w), lambda w, b: [_WIDTH, w, 1e-5]),
    "Functional.batch_norm": (_batch_norm, lambda w, b: [None, None, w, b, True, 0.1, 1e-5]),
    "Functional.normalize": (lambda x, w, b: F.normalize(x), lambda w, b: [2.0, 1]),
    "Tensor.sum": (lambda x, w, b: x.sum(1), lambda w, b: [1]),
    "Tensor.mean": (lambda x, w, b: x.mean(0), lambda w, b: [0]),
    "Torch.softmax": (lambda x, w, b: torch.softmax(3 * x, -1), lambda w, b: [-1]),
}


def _kept(
    name: str,
    factor: float = 1.0,
    spread: float = 0.02,
    weights_by: float = 1.0,
    more: list[Any] | None = None,
    training: bool = True,
) -> KeptSize | None:
    """Of a candidate whose argument is a twentieth of its size away from the reference's. ``spread``: of weights;
    ``weights_by``: the candidate's are so many times larger.
    """
    torch.manual_seed(2)
    x = torch.randn(64, _WIDTH) * torch.rand(64, 1).add(0.5) + 0.3
    weight, bias = 1 + spread * torch.randn(_WIDTH), 0.02 * torch.randn(_WIDTH)
    compute, described = CALLS[name]
    rows: Any = RowsOfArrays(), RowsOfArrays()
    calls = []
    for its, tensor, scale, by in (
        (rows[0], x * (1 + 0.05 * torch.randn(64, _WIDTH)), factor, weights_by),
        (rows[1], x, 1.0, 1.0),
    ):
        result = compute(tensor, weight * by, bias).to(torch.bfloat16) if training else tensor
        arguments: list[Any] = [tensor, *(described(weight * by, bias) if more is None else more)]
        given = [one.numpy() if isinstance(one, torch.Tensor) else one for one in arguments]
        values: np.ndarray[Any, Any] = result.double().numpy() * scale
        calls.append(OneCall.of(call_of(its, f"{name}.0.forward", given, values, {}, "torch.bfloat16")))
    return kept_size(*calls, *rows, 0.05)


@pytest.mark.parametrize("name", CALLS)
def test_arguments_that_are_apart_leave_the_size_as_it_is(name: str) -> None:
    kept = _kept(name)
    assert kept is not None
    assert kept.apart < 1.5e-3
    assert kept.given < 6e-3
    wrong = _kept(name, factor=0.98)
    assert wrong is not None
    assert wrong.apart == pytest.approx(0.02, rel=0.25) or name == "Torch.softmax"
    assert wrong.apart > 5 * max(kept.apart, kept.given, 1e-4)


def test_weights_that_differ_explain_another_size() -> None:
    kept = _kept("Functional.layer_norm", weights_by=1.03)
    assert kept is not None
    assert kept.apart == pytest.approx(0.03, rel=0.1)
    assert kept.given >= 0.028


def test_uneven_weights_let_the_size_follow() -> None:
    even, uneven = (_kept("Functional.layer_norm", spread=spread) for spread in (0.0, 0.6))
    assert even is not None
    assert uneven is not None
    assert uneven.given > 10 * even.given
    # A batch norm divides each channel by its own size, whatever its weight.
    assert (_kept("Functional.batch_norm", spread=0.6) or KeptSize(1, 1, 1)).given < 1e-4


def test_what_is_divided_by_something_else_keeps_nothing() -> None:
    weight = torch.ones(_WIDTH)
    evaluated = [None, None, weight, weight, False, 0.1, 1e-5]
    assert _kept("Functional.batch_norm", more=evaluated) is None
    assert _kept("Functional.batch_norm", more=[None, None, weight, weight]) is None  # not in training by default
    assert _kept("Functional.layer_norm", training=False, more=[_WIDTH, torch.zeros(_WIDTH)]) is None
    assert _kept("Functional.normalize", more=[1.0, 1]) is None  # by the sum of sizes


def test_rows_that_are_rounded_by_themselves_are_counted() -> None:
    kept = _kept("Functional.layer_norm"), _kept("Torch.softmax")
    assert [size.alone for size in kept if size is not None] == [_WIDTH, _WIDTH]
    assert all(math.isfinite(number) for size in kept if size is not None for number in size)

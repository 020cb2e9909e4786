"""The relation of a random result to an argument of its shape, learnt from draws of the reference and exact.

An element of a dropout is 0 or ``x / (1 - p)``, whatever was drawn: each element lies on one of a few *branches*
``factor * x + offset``. Which branches a call has, draws of the reference show, in double precision. A candidate's
element must lie on one of them, and its gradient is the factor of that very branch times the input. Calls whose
result has a factor of its own at each place (a random slope) have the gradient ``factor * input`` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.torch.reference import units_at

_MOST_BRANCHES = 3
_LEAST_ELEMENTS = 16
_LOOKED_AT = 4096
#: A product, a quotient and a sum are rounded, each once.
_UNITS = 4.0
_EXACT = 1e-11


@dataclass(frozen=True)
class Branch:
    """``factor * x + offset``."""

    factor: float
    offset: float

    def at(self, x: torch.Tensor) -> torch.Tensor:
        """What it gives, in double precision."""
        return self.factor * x.double() + self.offset


def branches_of(x: torch.Tensor, draws: Sequence[torch.Tensor]) -> list[Branch]:
    """The branches on which all elements of some draws of the reference lie, 0 always among them; none where there are
    elements that lie on no branch that several have.
    """
    x = torch.cat([x.double().flatten()] * len(draws))
    y = torch.cat([draw.double().flatten() for draw in draws])
    finite = x.isfinite() & y.isfinite()
    x, y = x[finite], y[finite]
    if x.numel() < _LEAST_ELEMENTS or bool((x == x[0]).all()):
        return []
    branches = [Branch(0.0, 0.0)]
    rest = ~_near(y, branches[0].at(x))
    while bool(rest.any()):
        branch = _next(x[rest], y[rest])
        if branch is None or len(branches) > _MOST_BRANCHES:
            return []
        branches.append(branch)
        rest &= ~_near(y, branch.at(x))
    return branches if len(branches) > 1 else []


def _next(x: torch.Tensor, y: torch.Tensor) -> Branch | None:
    """The branch that the first elements have most often in common; None where it is not that of several."""
    best, count = None, 0
    if bool((y == y[0]).all()):
        return Branch(0.0, float(y[0]))
    x, y = x[:_LOOKED_AT], y[:_LOOKED_AT]
    for first in range(min(8, x.numel())):
        for second in range(first + 1, min(24, x.numel())):
            if x[first] == x[second]:
                continue
            factor = float((y[second] - y[first]) / (x[second] - x[first]))
            branch = Branch(factor, float(y[first] - factor * x[first]))
            if abs(branch.offset) <= _EXACT * float(y[first].abs()):
                branch = Branch(float(y[first] / x[first]) if x[first] else factor, 0.0)
            many = int(_near(y, branch.at(x)).sum())
            if many > count:
                best, count = branch, many
        if count > x.numel() // 4:
            break
    return best if count > max(2, x.numel() // 16) else None


def _near(y: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (y - expected).abs() <= _EXACT * (expected.abs() + y.abs().max())


def judge_branches(
    name: str, branches: Sequence[Branch], x: torch.Tensor, y: torch.Tensor, gradient: Any = None, arrived: Any = None
) -> list[JudgedResult]:
    """A row for the result ``y`` of the candidate, and one for its ``gradient``, if there is one."""
    wide, out = x.double(), y.double()
    units = units_at(out, y.dtype) * _UNITS
    on = []
    for branch in branches:
        expected = branch.at(wide)
        # Of a sum of terms that cancel the larger one is rounded.
        size = torch.maximum(expected.abs(), torch.full_like(expected, abs(branch.offset)))
        on.append((out - expected).abs() <= torch.maximum(units, units_at(size, y.dtype) * _UNITS))
    some = torch.stack(on).any(0) | ~wide.isfinite()
    row = JudgedResult(f"{name}.forward.output.0", "pass", said("random-relation-holds"))
    if not bool(some.all()):
        place = [int(n) for n in (~some).nonzero()[0]]
        row.status, row.index = "error", tuple(place)
        values = float(y[tuple(place)]), float(x[tuple(place)])
        row.message = said("random-relation-broken", int((~some).sum()), some.numel(), _words(branches), place, *values)
    rows = [row]
    if isinstance(gradient, torch.Tensor) and isinstance(arrived, torch.Tensor):
        came, got = arrived.double(), gradient.double()
        good = ~some
        for branch, here in zip(branches, on, strict=True):
            expected = branch.factor * came
            good |= here & ((got - expected).abs() <= units_at(expected, gradient.dtype) * _UNITS)
        rows.append(JudgedResult(f"{name}.backward.output.0", "pass", said("random-gradient-fits")))
        if not bool(good.all()):
            place = [int(n) for n in (~good).nonzero()[0]]
            rows[-1].status, rows[-1].index = "error", tuple(place)
            rows[-1].message = said(
                "random-gradient-differs", int((~good).sum()), good.numel(), place, float(gradient[tuple(place)])
            )
    return rows


def _words(branches: Sequence[Branch]) -> str:
    words: list[str] = []
    for branch in branches:
        text = f"{branch.factor:.6g} x" if branch.factor else ""
        text += f" + {branch.offset:.6g}" if branch.offset and text else f"{branch.offset:.6g}" if not text else ""
        words.append(text)
    return reduce(lambda first, second: said("relation-or", first, second), words)


def has_own_factors(x: torch.Tensor, y: torch.Tensor, gradient: Any, arrived: Any) -> bool:
    """True where the gradient at each place is the result's factor there times the input."""
    if not (isinstance(gradient, torch.Tensor) and isinstance(arrived, torch.Tensor)) or x.shape != y.shape:
        return False
    left, right = gradient.double() * x.double(), y.double() * arrived.double()
    return left.shape == right.shape and bool(((left - right).abs() <= 1e-9 * right.abs().max()).all())


def judge_own_factors(name: str, x: torch.Tensor, y: torch.Tensor, gradient: Any, arrived: Any) -> JudgedResult:
    """The row of a gradient that is to be the result's own factor times the input."""
    row = JudgedResult(f"{name}.backward.output.0", "pass", said("random-gradient-fits"))
    expected = y.double() * arrived.double() / x.double()
    known = expected.isfinite() & (x != 0)
    far = (gradient.double() - expected).abs() > units_at(expected.nan_to_num(0.0), gradient.dtype) * _UNITS
    wrong = far & known
    if bool(wrong.any()):
        place = [int(n) for n in wrong.nonzero()[0]]
        row.status, row.index = "error", tuple(place)
        values = float(gradient[tuple(place)]), float(expected[tuple(place)])
        row.message = said("random-gradient-is", int(wrong.sum()), wrong.numel(), place, *values)
    return row

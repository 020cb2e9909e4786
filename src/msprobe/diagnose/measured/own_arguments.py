"""Calls that give a weighted sum of their arguments, element by element: each side is judged by its own arguments.

The sums of a row are linear, so those of the result are known from those of the arguments, whatever these differ by
from the other side. What is left is the error of the call itself, which no deviation of arguments hides: a copy, an
addition, an average that an optimizer keeps, an exchange with nobody.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.steps.process_group import ranks_of_group
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.store.rows import SUMS, Numbers, Rows, number_of

#: Accelerators without double precision add up to 131,072 elements in single precision, each addition to half a unit:
#: sqrt(2**17) * 2**-24, of the norm.
_SUMMED_IN_SINGLE = 2.0**-15.5
_Terms = list[tuple[Any, float]]


class _Left(NamedTuple):
    """Of one side, the sums of the result less those that its arguments give. ``scale``: the norm of the largest."""

    sums: tuple[float, ...]
    scale: float


def error_of_call(event: Event, partner: Event, candidate: Rows, reference: Rows) -> Deviation | None:
    """How far the errors of two calls themselves are apart; None where their results are no weighted sums of their
    arguments, or a number is not known. ``norm`` is the scale that they are to be measured by.
    """
    mine = _left_over(event, candidate)
    theirs = _left_over(partner, reference) if mine is not None else None
    if mine is None or theirs is None:
        return None
    (_, leaf), *_ = event.outputs()
    count, scale = numel(leaf), max(mine.scale, theirs.scale)
    *signed, total = (one - other for one, other in zip(mine.sums, theirs.sums, strict=True))
    distance = math.hypot(*signed) / math.sqrt(SUMS)
    sums = abs(total) / math.sqrt(max(count, 1))
    if not (math.isfinite(distance) and math.isfinite(sums) and math.isfinite(scale)):
        return None
    noise = _SUMMED_IN_SINGLE * scale
    return Deviation("estimate", max(distance - noise, 0.0), max(sums - noise, 0.0), scale, count, alike=count)


def _left_over(event: Event, rows: Rows) -> _Left | None:
    outputs = event.outputs()
    if len(outputs) != 1 or not _is_plain(outputs[0][1]):
        return None
    (_, result), *_ = outputs
    terms = _terms(event, rows)
    if not terms or any(not _is_plain(leaf) or numel(leaf) != numel(result) for leaf, _ in terms):
        return None
    found = _numbers(result, rows)
    if found is None:
        return None
    sums, scale = [*found[2], found[0]], math.sqrt(found[1])
    for leaf, factor in terms:
        taken = _numbers(leaf, rows)
        if taken is None:
            return None
        sums = [one - factor * its for one, its in zip(sums, (*taken[2], taken[0]), strict=True)]
        scale = max(scale, abs(factor) * math.sqrt(taken[1]))
    return _Left(tuple(sums), scale)


def _terms(event: Event, rows: Rows) -> _Terms | None:
    """The tensors whose weighted sum the call gives, with their weights; None if it gives something else."""
    name, given = operation(event.stem), dict(event.inputs())
    one, other = given.get("input.0"), given.get("input.1", given.get("input.other"))
    if given.keys() & {"input.out", "input.rounding_mode"} or one is None or not is_tensor(one):
        return None
    if name in operators.RESHAPES:
        # A view as a different type has the same bits, and not the same numbers.
        return [(one, 1.0)] if all(leaf["dtype"] == one["dtype"] for _, leaf in event.outputs()) else None
    if name in operators.STORED_OTHERWISE or (name in operators.EXCHANGES_ALONE and len(ranks_of_group(event)) == 1):
        return [(one, 1.0)]
    if name in operators.NEGATES:
        return [(one, -1.0)]
    if name in operators.AVERAGES:
        weight = _number(given.get("input.2", given.get("input.weight")), rows)
        end = given.get("input.1", given.get("input.end"))
        return [(one, 1.0 - weight), (end, weight)] if weight is not None else None
    is_reflected = event.stem.rpartition(".")[2].startswith("__r")
    if name in operators.ADDS and is_tensor(other):
        alpha = given.get("input.alpha", given.get("input.2"))
        weight = 1.0 if alpha is None else _number(alpha, rows)
        if weight is None:
            return None
        first, second = (other, one) if is_reflected else (one, other)
        return [(first, 1.0), (second, -weight if name in operators.SUBTRACTS else weight)]
    if name in operators.FACTORS:
        divides = name in operators.DIVIDES
        if divides and is_reflected:
            return None
        factor, tensor = _number(other, rows), one
        if factor is None and not divides:
            factor, tensor = _number(one, rows), other
        if factor is None or (divides and not factor):
            return None
        return [(tensor, 1.0 / factor if divides else factor)]
    return None


def _number(value: Any, rows: Rows) -> float | None:
    """The number that an argument is, also one that a tensor of one element holds."""
    if is_tensor(value):
        found = _numbers(value, rows) if numel(value) == 1 and _is_plain(value) else None
        return found[0] if found is not None else None
    number = value.get("value") if isinstance(value, dict) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    return float(number) if abs(number) < 1e18 else None


def _numbers(leaf: Any, rows: Rows) -> Numbers | None:
    """Those of a row that holds all elements."""
    found = rows.numbers(number_of(leaf))
    return found if found is not None and not found[-1] and 0.0 <= found[1] < 1e60 else None


def _is_plain(leaf: Any) -> bool:
    """True for a tensor of real numbers all of which are finite."""
    return is_tensor(leaf) and "complex" not in leaf["dtype"] and not (leaf.get("nan") or leaf.get("inf"))

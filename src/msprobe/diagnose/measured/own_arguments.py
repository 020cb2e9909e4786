"""Calls that give a weighted sum of their arguments, element by element: each side is judged by its own arguments.

The sums of a row are linear, so those of the result are known from those of the arguments, whatever these differ by
from the other side. What is left is the error of the call itself, which no deviation of arguments hides: a copy, an
addition, an average that an optimizer keeps, an exchange with nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.members import name_of_member
from msprobe.diagnose.measured.node import MeasuredResult
from msprobe.diagnose.measured.tables import ENDLESS
from msprobe.diagnose.steps.communication import ranks_of_group
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.store.row_format import block_of
from msprobe.store.rows import SUMS, Numbers, StoredRows, number_of

#: Accelerators without double precision add up to 131,072 elements in single precision, each addition to half a unit:
#: sqrt(2**17) * 2**-24, of the norm.
SUMMED_IN_SINGLE = 2.0**-15.5
#: How many deviations the smallest divisor is to be away from nothing.
_ABOVE = 8.0
#: What is added shows in sums if it is so many times as large as what these may be off by.
_SHOWS = 16.0
#: A quotient whose norm is at most so many times that of norms is about the same size everywhere.
_EVEN = 2.0
_Terms = list[tuple[Any, float]]


class OneCall(NamedTuple):
    """A call as one side made it: the API's name, and what it takes and gives."""

    stem: str
    inputs: Sequence[Slot]
    outputs: Sequence[Slot]
    #: Of the group that a collective runs on; 0 for any other call.
    ranks: int = 0

    @classmethod
    def of(cls, event: Event) -> OneCall:
        """That of a whole call."""
        return cls(
            event.stem, event.inputs(), event.outputs(), len(ranks_of_group(event)) if event.is_collective else 0
        )

    @property
    def name(self) -> str:
        """What it computes; of one tensor, where it computes the same of several."""
        return name_of_member(operation(self.stem))


class _Left(NamedTuple):
    """Of one side, the sums of the result less those that its arguments give. ``scale``: the norm of the largest."""

    sums: tuple[float, ...]
    scale: float


def result_of_own_arguments(
    slot: str,
    call: OneCall,
    other_call: OneCall,
    made: Deviation,
    floating: Sequence[Deviation],
    rows: tuple[StoredRows, StoredRows],
) -> MeasuredResult | None:
    """A result judged by the arguments that each side has; None where these do not say what it is."""
    own = error_of_call(call, other_call, *rows)
    if own is not None:
        return _result_of_arguments(slot, own, made)
    change = change_by_call(call, other_call, *rows)
    if (
        change is None
        or len(floating) < 3
        or any(not deviation.norm or not deviation.is_known for deviation in floating[1:3])
    ):
        return None
    _, factor, other = floating[:3]
    if call.name in operators.DIVISORS:
        given = apart_of_quotient(call, rows[0], factor, other, change.norm)
        if given is None:
            return None
    else:
        given = _both_factors(factor is other, factor.distance / factor.norm, other.distance / other.norm)
    coherent = _both_factors(factor is other, factor.coherent / factor.norm, other.coherent / other.norm)
    whole = max(int(made.alike), 1)
    return MeasuredResult(
        slot,
        min(change.distance / change.norm, ENDLESS),
        min(change.coherent / change.norm, ENDLESS),
        given,
        coherent,
        made.count,
        False,
        # The result is rounded to its type, and not what is added.
        units=max(made.norm / change.norm, 1.0),
        alone=whole,
        alike=made.alike,
        is_carried=not change.distance,
    )


def _both_factors(is_one: bool, first: float, other: float) -> float:
    """Of two factors that know nothing of each other, or of one that stands there twice."""
    return first + other if is_one else math.hypot(first, other)


def _result_of_arguments(slot: str, own: Deviation, made: Deviation) -> MeasuredResult:
    scale = own.norm
    distance, coherent = (size / scale if scale else 0.0 for size in (own.distance, own.coherent))
    whole = max(int(made.alike), 1)
    return MeasuredResult(
        slot,
        distance,
        coherent,
        0.0,
        0.0,
        made.count,
        False,
        alone=whole,
        alike=made.alike,
        is_carried=not distance,
        size=scale / math.sqrt(max(made.count, 1)),
    )


def error_of_call(call: OneCall, other: OneCall, candidate: StoredRows, reference: StoredRows) -> Deviation | None:
    """How far the errors of two calls themselves are apart; None where their results are no weighted sums of their
    arguments, or a number is not known. ``norm`` is the scale that they are to be measured by.
    """
    terms, its_terms = _terms(call, candidate), _terms(other, reference)
    if not terms or not its_terms:
        return None
    mine = _left_over(call, terms, candidate)
    theirs = _left_over(other, its_terms, reference) if mine is not None else None
    return (
        _apart(call, mine, theirs, max(mine.scale, theirs.scale)) if mine is not None and theirs is not None else None
    )


def change_by_call(call: OneCall, other: OneCall, candidate: StoredRows, reference: StoredRows) -> Deviation | None:
    """How far two calls are apart in what they add to their first argument, which is something else than a weighted
    sum; None for other calls, or where a number is not known. ``norm`` is that of what is added, estimated as distances
    are.
    """
    if call.name not in operators.ADDS_TO or other.name != call.name:
        return None
    lefts = []
    for side, rows in ((call, candidate), (other, reference)):
        first = dict(side.inputs).get("input.0")
        left = _left_over(side, [(first, 1.0)], rows) if is_tensor(first) else None
        if left is None:
            return None
        lefts.append(left)
    mine, theirs = lefts
    norm = max(math.hypot(*left.sums[:-1]) / math.sqrt(SUMS) for left in lefts)
    scale = max(mine.scale, theirs.scale)
    change = _apart(call, mine, theirs, scale)
    return None if change is None or norm < _SHOWS * SUMMED_IN_SINGLE * scale else replace(change, norm=norm)


def apart_of_quotient(
    side: OneCall, rows: StoredRows, numerator: Deviation, divisor: Deviation, change: float
) -> float | None:
    """How far a quotient that a call adds to its first argument may be apart, over its norm ``change``, where it has
    about the same size everywhere: where the divisor is small, so is what it divides. None where a divisor is as small
    as it may be apart, small divisors make the quotient large, or a number is not known.
    """
    given = dict(side.inputs)
    numbers = _numbers(given.get("input.2"), rows) if is_tensor(given.get("input.2")) else None
    value = _number(given.get("input.value", given.get("input.3", 1.0)), rows)
    if numbers is None or value is None:
        return None
    count, squares, blocks = numel(given["input.2"]), numbers[1], numbers[3]
    size = math.sqrt(squares / max(count, 1))
    relative = numerator.distance / numerator.norm + divisor.distance / divisor.norm
    # Elements of the divisor that may be anything are counted by nothing.
    least = min(abs(numbers[4]), abs(numbers[5]))
    if not (least > _ABOVE * relative * size > 0.0):
        return None
    if change > _EVEN * abs(value) * numerator.norm / size:
        return None
    share, length = 0.0, block_of(count)
    # Of a few elements, those of several kinds (queries, keys) are in one block: any may be as small as the smallest.
    is_mixed = count <= length * (len(blocks) - 1)
    for place, norm in enumerate(blocks):
        filled = min(max(count - place * length, 0), length)
        if filled:
            block_size = (least if is_mixed else norm / math.sqrt(filled)) / size
            share += filled / count * (min(relative / block_size, 1.0) if block_size > 0.0 else 1.0)
    return math.sqrt(share)


def _apart(call: OneCall, mine: _Left, theirs: _Left, scale: float) -> Deviation | None:
    (_, leaf), *_ = call.outputs
    count = numel(leaf)
    *signed, total = (ours - its for ours, its in zip(mine.sums, theirs.sums, strict=True))
    distance = math.hypot(*signed) / math.sqrt(SUMS)
    sums = abs(total) / math.sqrt(max(count, 1))
    if not (math.isfinite(distance) and math.isfinite(sums) and math.isfinite(scale)):
        return None
    noise = SUMMED_IN_SINGLE * scale
    return Deviation("estimate", max(distance - noise, 0.0), max(sums - noise, 0.0), scale, count, alike=count)


def _left_over(side: OneCall, terms: _Terms, rows: StoredRows) -> _Left | None:
    if len(side.outputs) != 1 or not _is_plain(side.outputs[0][1]):
        return None
    (_, result), *_ = side.outputs
    if any(not _is_plain(leaf) or numel(leaf) != numel(result) for leaf, _ in terms):
        return None
    numbers = _numbers(result, rows)
    if numbers is None:
        return None
    sums, scale = [*numbers[2], numbers[0]], math.sqrt(numbers[1])
    for leaf, factor in terms:
        taken = _numbers(leaf, rows)
        if taken is None:
            return None
        sums = [total - factor * its for total, its in zip(sums, (*taken[2], taken[0]), strict=True)]
        scale = max(scale, abs(factor) * math.sqrt(taken[1]))
    return _Left(tuple(sums), scale)


def _terms(side: OneCall, rows: StoredRows) -> _Terms | None:
    """The tensors whose weighted sum the call gives, with their weights; None if it gives something else."""
    name, given = side.name, dict(side.inputs)
    ours, other = given.get("input.0"), given.get("input.1", given.get("input.other"))
    if given.keys() & {"input.out", "input.rounding_mode"} or ours is None or not is_tensor(ours):
        return None
    if name in operators.RESHAPES:
        # A view as a different type has the same bits, and not the same numbers.
        return [(ours, 1.0)] if all(leaf["dtype"] == ours["dtype"] for _, leaf in side.outputs) else None
    if name in operators.STORED_OTHERWISE or (name in operators.EXCHANGES_ALONE and side.ranks == 1):
        return [(ours, 1.0)]
    if name in operators.COPIES_SECOND:
        return [(other, 1.0)] if is_tensor(other) else None
    if name in operators.NEGATES:
        return [(ours, -1.0)]
    if name in operators.AVERAGES:
        weight = _number(given.get("input.2", given.get("input.weight")), rows)
        end = given.get("input.1", given.get("input.end"))
        # The difference of both is rounded before it is added: of a weight near 1 the first argument cancels out.
        return [(ours, 1.0), (ours, -weight), (end, weight)] if weight is not None and is_tensor(end) else None
    is_reflected = side.stem.rpartition(".")[2].startswith("__r")
    if name in operators.ADDS and is_tensor(other):
        alpha = given.get("input.alpha", given.get("input.2"))
        weight = 1.0 if alpha is None else _number(alpha, rows)
        if weight is None:
            return None
        first, second = (other, ours) if is_reflected else (ours, other)
        return [(first, 1.0), (second, -weight if name in operators.SUBTRACTS else weight)]
    if name in operators.FACTORS:
        divides = name in operators.DIVIDES
        if divides and is_reflected:
            return None
        factor, tensor = _number(other, rows), ours
        if factor is None and not divides:
            factor, tensor = _number(ours, rows), other
        if factor is None or (divides and not factor):
            return None
        return [(tensor, 1.0 / factor if divides else factor)]
    return None


def _number(value: Any, rows: StoredRows) -> float | None:
    """The number that an argument is, also one that a tensor of one element holds."""
    if is_tensor(value):
        numbers = _numbers(value, rows) if numel(value) == 1 and _is_plain(value) else None
        return numbers[0] if numbers is not None else None
    number = value.get("value") if isinstance(value, dict) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    return float(number) if abs(number) < 1e18 else None


def _numbers(leaf: Any, rows: StoredRows) -> Numbers | None:
    """Those of a row that holds all elements."""
    numbers = rows.numbers(number_of(leaf))
    return numbers if numbers is not None and not numbers[-1] and 0.0 <= numbers[1] < 1e60 else None


def numbers_of_finite(leaf: Any, rows: StoredRows) -> Numbers | None:
    """The numbers of a tensor of real and finite ones, all of which are in its row; None of anything else."""
    return _numbers(leaf, rows) if _is_plain(leaf) else None


def _is_plain(leaf: Any) -> bool:
    """True for a tensor of real numbers all of which are finite."""
    return is_tensor(leaf) and "complex" not in leaf["dtype"] and not (leaf.get("nan") or leaf.get("inf"))

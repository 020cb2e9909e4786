"""What the deviations of a call are measured against: relations of its arguments to its results.

A result that is a sum of terms of both signs is small, and its error is that of the terms. So the scale of a result is
what it would be if its terms were unrelated, where that is more; that of an argument is its own norm, or that of the
result where both are in one unit (sums, joins), or 1 for each element where the result follows absolute differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.diagnose import operators
from msprobe.diagnose.measured.deviation import Deviation

#: The root mean square of rounding once, in units: half of the square of ``nodes.ROUNDED_ONCE``, which is of two sides.
_ROUNDED = 0.2123
#: Arguments and result are in one unit.
TERMS = operators.SUMS | operators.SUMS_TERMS
#: Products of two arguments are summed.
PRODUCTS = operators.PRODUCTS | operators.FURTHER_PRODUCTS


def of_result(operation: str, direction: str, result: Deviation, given: Sequence[Deviation]) -> float:
    """The norm that a result has, or would have if its terms were unrelated. ``given``: the deviations of arguments;
    of a backward call what arrives, then those of its forward call.
    """
    scale = result.norm
    if not given:
        return scale
    first = given[0]
    if direction == "backward":
        # A gradient of what was broadcast, or of a bias: a sum of what arrives.
        if result.count < first.count:
            scale = max(
                scale, _as_sum(first, result) if operation not in PRODUCTS else _as_sum_or_product(result, given)
            )
        return scale
    if operation in PRODUCTS and len(given) > 1:
        return max(scale, _product(given[0], given[1], result))
    if operation in operators.SUMS and first.count > result.count:
        terms = first.norm if operation == "sum" else first.norm * result.count / first.count
        return max(scale, terms)
    return scale


def of_argument(
    operation: str, direction: str, place: int, argument: Deviation, result: Deviation, scale: float
) -> float:
    """What the deviation of the argument at ``place`` is divided by."""
    if direction == "forward" and operation in operators.MOVES and 0 < result.count < argument.count:
        return result.norm or argument.norm  # what is taken out is no further apart than the whole
    if direction == "forward" and place == operators.DIVISORS.get(operation):
        return _smallest(argument)
    if direction == "forward" and operation in TERMS:
        spread = math.sqrt(max(1.0, result.count / max(argument.count, 1)))
        shrunk = result.count / argument.count if operation == "mean" and argument.count else 1.0
        return scale / (spread * shrunk) if scale else argument.norm
    if operation in operators.EXPONENTS:
        return min(math.sqrt(max(argument.count, 1)), argument.norm) or argument.norm
    return argument.norm


def units_of_rounding(operation: str, result: Deviation, given: Sequence[Deviation], is_single: bool) -> float:
    """How many units of the result rounding makes: of an exponent or an angle as many as its size, which is that of the
    largest, as smaller exponents weigh less, and where that is less, of all. Of a sum that is kept in its own type
    (``is_single``: half types are summed in single precision) each of its additions rounds: as partial sums grow
    evenly, as if a third of them had the size of the whole.
    """
    if not given:
        return 1.0
    if operation in operators.SUMS | operators.NORMS and is_single and result.count:
        return _ROUNDED * math.sqrt(max(given[0].count / result.count, 1.0) / 3.0)
    if operation not in operators.EXPONENTS:
        return 1.0
    sizes = [min(one.norm / math.sqrt(max(one.count, 1)), max(1.0, abs(one.largest))) for one in given]
    return max(sizes)


def rounded_alone(operation: str, result: Deviation, given: Sequence[Deviation]) -> int:
    """How many elements of a result are rounded by themselves. What a norm subtracts and divides by is rounded once for
    a row, or for a channel: of the weight's size or as many as the result has times that, whichever are fewer.
    """
    whole = max(int(result.alike), 1)
    if operation not in operators.CENTRING and not operation.endswith("_norm"):
        return whole
    sizes = [one.count for one in given if 1 < one.count < result.count]
    return min((min(size, max(result.count // size, 1)) for size in sizes), default=whole)


def chosen_otherwise(operation: str, direction: str, given: Sequence[Deviation]) -> float:
    """How far the gradients of a call are apart where elements within the deviation of a boundary change sides: of
    elements that lie about it, a share as large as the deviation, whose gradients differ by all they are.
    """
    if direction != "backward" or operation not in operators.COMPARES_ELEMENTS:
        return 0.0
    shares = [one.distance / one.norm for one in given[1:] if one.norm]
    return math.sqrt(min(max(shares, default=0.0), 1.0))


def _smallest(argument: Deviation) -> float:
    """The norm that a divisor would have if all its elements were as small as its smallest."""
    if argument.least > 0.0:
        return min(argument.least * math.sqrt(argument.count), argument.norm)
    return argument.norm


def _as_sum(first: Deviation, result: Deviation) -> float:
    return first.norm


def _as_sum_or_product(result: Deviation, given: Sequence[Deviation]) -> float:
    arriving = given[0]
    best = 0.0
    for other in given[1:]:
        best = max(best, _product(arriving, other, result)) if other.count > result.count else best
    return best or arriving.norm


def _product(one: Deviation, other: Deviation, result: Deviation) -> float:
    """The norm of a product of matrices of unrelated elements, each of which sums the root of n_a n_b / n terms."""
    if not (one.count and other.count and result.count):
        return 0.0
    summed = math.sqrt(one.count * other.count / result.count)
    return one.norm * other.norm / math.sqrt(max(summed, 1.0))

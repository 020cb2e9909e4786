"""What the deviations of a call are measured against: relations of its arguments to its results.

A result that is a sum of terms of both signs is small, and its error is that of the terms. So the scale of a result is
what it would be if its terms were unrelated, where that is more; that of an argument is its own norm, or that of the
result where both are in one unit (sums, joins), or 1 for each element where the result follows absolute differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msprobe.diagnose import operators
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.steps.timeline import Event

#: The root mean square of rounding once, in units: half of the square of ``nodes.ROUNDED_ONCE``, which is of two sides.
_ROUNDED = 0.2123
#: The difference of 1 and the largest number below it, in single precision.
_LEAST_LEFT = 2.0**-24
#: What is apart by more than this share of its norm is not one tensor with an error: norms follow no error.
LEFT_OVER = 0.5
#: Arguments and result are in one unit.
TERMS = operators.SUMS | operators.SUMS_TERMS
_ADDED = operators.SUMS | operators.NORMS
_REDUCED = _ADDED | {"prod"}
#: Products of two arguments are summed.
PRODUCTS = operators.PRODUCTS | operators.FURTHER_PRODUCTS


def result_scale(
    operation: str, direction: str, result: Deviation, given: Sequence[Deviation], place: int | None = None
) -> float:
    """The norm that a result has, or would have if its terms were unrelated. ``given``: the deviations of arguments;
    of a backward call what arrives, then the arguments and results of its forward call. ``place``: of which argument
    the result is the gradient, where that is known.
    """
    scale = result.norm
    if not given:
        return scale
    first = given[0]
    if direction == "backward":
        if operation in PRODUCTS:
            # Where it is not known which argument it is of, one that has as many elements.
            alike = [number for number, argument in enumerate(given[1:4]) if argument.count == result.count]
            places = alike if place is None else [place]
            if places:
                return max(scale, *(_gradient_of_factor(operation, result, given, number) for number in places))
        if operation in operators.ALIGNMENTS and len(given) > 3:
            taken_off = (first.norm * given[3].norm / factor.norm for factor in given[1:3] if factor.norm)
            return max(scale, *taken_off, 0.0)
        if operation in operators.EXPONENTS:
            # A difference of what arrives times the result, and a share of the sum of that.
            same = [argument for argument in given[1:] if argument.count == result.count == first.count]
            return max([scale, *(first.norm * argument.norm / math.sqrt(max(result.count, 1)) for argument in same)])
        if operation in operators.KEEPS_SIZE and result.count == first.count:
            return max(scale, _before_taken_off(operation, result, given))
        is_left_over = result.distance > LEFT_OVER * result.norm
        if operation in operators.ATTENTION and place in (0, 1, None) and len(given) > 3 and is_left_over:
            return max(scale, _before_taken_off_scores(given))
        # A gradient of what was broadcast, or of a bias: a sum of what arrives.
        if result.count < first.count:
            terms = first.norm * max(_times_other_factor(operation, given, result), 1.0)
            scale = max(scale, terms if operation not in PRODUCTS else _as_sum_or_product(result, given))
        return scale
    if operation in PRODUCTS and len(given) > 1:
        return max(scale, norm_of_product(given[0], given[1], result))
    if operation in operators.SUMS and first.count > result.count:
        terms = first.norm if operation == "sum" else first.norm * result.count / first.count
        return max(scale, terms)
    return scale


def _before_taken_off(operation: str, result: Deviation, given: Sequence[Deviation]) -> float:
    """The norm of the gradient through what gives each row one size, before what would change that size or its mean is
    taken off: what arrives, as many times larger as its result is larger than its argument. A loss that asks for
    little but that size (a mean square of what a norm gave, what is aligned already) leaves rounding alone.
    """
    same = [argument for argument in given if argument.count == result.count]
    if len(same) < 3:
        return 0.0  # no forward call, or the gradient of a weight
    arriving, taken, made = same[0], same[1], same[-1]
    if operation in operators.SUBTRACTS_MEAN:
        return arriving.norm * made.spread / taken.spread if taken.spread else 0.0
    return arriving.norm * made.norm / taken.norm if taken.norm else 0.0


def _before_taken_off_scores(given: Sequence[Deviation]) -> float:
    """The norm of the gradient of query or key through attention before its mean over the keys is taken off: all of it
    where there is one key. A score is a product over the root of the width, so its gradient is what arrives times a
    value, and that of a query has the size of a key more, that of a key the size of a query.
    """
    query, key, value = (tensor.norm / math.sqrt(max(tensor.count, 1)) for tensor in given[1:4])
    return given[0].norm * value * max(query, key)


def is_of_several_uses(operation: str, result: Deviation, given: Sequence[Deviation], place: int | None) -> bool:
    """True for the gradient of a factor that is larger than what arrives times the other factor can be (the norm of a
    product of matrices is no larger than that of their norms): it holds those of other calls that use the tensor.
    """
    other = None if place is None or operation.startswith("conv") else _other_factor(operation, given, place)
    return other is not None and result.norm > 1.01 * given[0].norm * other.norm


def _times_other_factor(operation: str, given: Sequence[Deviation], result: Deviation) -> float:
    """How many times larger than what arrives the terms are that a broadcast factor gets its gradient from: as many as
    the root mean square of the other factor.
    """
    factors = given[1:3] if operation == "mul" else ()
    others = [factor for factor in factors if factor.count > result.count] or factors
    return max((other.norm / math.sqrt(max(other.count, 1)) for other in others), default=1.0)


def _gradient_of_factor(operation: str, result: Deviation, given: Sequence[Deviation], place: int) -> float:
    """The norm of the gradient of one factor: of what arrives times the other. A bias gets the sum of what arrives."""
    other = _other_factor(operation, given, place)
    return given[0].norm if other is None else norm_of_product(given[0], other, result)


def _other_factor(operation: str, given: Sequence[Deviation], place: int) -> Deviation | None:
    """The factor that the argument at ``place`` is multiplied by; None if it is none."""
    factors = (1, 2) if operation in operators.ADDED_PRODUCTS else (0, 1)
    if operation not in PRODUCTS or place not in factors:
        return None
    other = 1 + (factors[1] if place == factors[0] else factors[0])
    return given[other] if other < len(given) else None


def exponent_of(operation: str, forward: Event) -> float:
    """The number to whose power a call raises its argument; 0 where it does not, or where that is a tensor."""
    if operation not in operators.POWERS:
        return operators.FIXED_POWERS.get(operation, 0.0)
    inputs = dict(forward.inputs())
    exponent = inputs.get("input.1", inputs.get("input.exponent"))
    exponent = exponent.get("value") if isinstance(exponent, dict) else exponent
    if not isinstance(exponent, (int, float)) or isinstance(exponent, bool):
        return 0.0
    return float(exponent) if math.isfinite(exponent) else 0.0


class Scores(NamedTuple):
    """How many times what attention gives is further apart than query and key, at least 1, and how many elements of a
    row share that.
    """

    steepness: float = 1.0
    shared: int = 1


_FLAT = Scores()


def scores_of(operation: str, direction: str, forward: Event, given: Sequence[Deviation]) -> Scores:
    """A score of size s, the root mean square of what query and key make if they are unrelated, is apart by s times as
    much as these. Softmax of such scores is settled in all rows but one of s, where two keys are near to each other:
    over all rows the root of s remains. Gradients come from these rows alone.
    """
    factors = given[1:3] if direction == "backward" else given[:2]
    if operation not in operators.ATTENTION or len(factors) < 2:
        return _FLAT
    inputs = dict(forward.inputs())
    scale, query = inputs.get("input.scale"), inputs.get("input.0")
    shape = query.get("shape") if isinstance(query, dict) else None
    width = shape[-1] if isinstance(shape, list) and shape and isinstance(shape[-1], int) and shape[-1] > 0 else 1
    size = math.prod(factor.norm / math.sqrt(max(factor.count, 1)) for factor in factors)
    if isinstance(scale, (int, float)) and scale:
        size *= abs(scale) * math.sqrt(width)  # without one it is 1 over that root
    if not 1.0 < size < math.inf:
        return _FLAT
    return Scores(size if direction == "backward" else math.sqrt(size), width)


def steepest(power: float, direction: str, given: Sequence[Deviation]) -> float:
    """How many times larger than what arrives a gradient is at most, of a call that raises its argument to a fixed
    power; 0 where that is not known. Rows of padding have a variance of next to nothing, and a large root of it.
    """
    if direction != "backward" or not power or len(given) < 3:
        return 0.0
    result, exponent = given[-1], (power - 1.0) / power
    extreme = max(abs(result.largest), abs(result.least)) if exponent > 0.0 else abs(result.least)
    return float(abs(power) * extreme**exponent) if extreme > 0.0 else 0.0


def argument_scale(
    operation: str,
    direction: str,
    place: int,
    argument: Deviation,
    result: Deviation,
    scale: float,
    power: float = 0.0,
) -> float:
    """What the deviation of the argument at ``place`` is divided by. ``power``: see :func:`exponent_of`."""
    is_divisor = direction == "forward" and place == operators.DIVISORS.get(operation)
    if power and not is_divisor:
        # x**n is n times as far apart as x, its gradient n - 1 times, and where that is made of the result y, as
        # y**((n - 1) / n), so many times as y; what arrives counts once.
        times = max(abs(power), 1.0)
        if direction == "backward":
            times = 1.0 if not place else max(times, abs((power - 1.0) / power))
        if direction == "backward" and place and 0.0 < power < 1.0:
            # Gradients are divided by it: where it is next to nothing they are the largest, and as far apart as that.
            return _smallest(argument) / times
        return argument.norm / times
    if direction == "forward" and operation in operators.MOVES and 0 < result.count <= argument.count:
        # What is taken out, or not masked, is no further apart than the whole.
        return (result.norm if result.count < argument.count else min(result.norm, argument.norm)) or argument.norm
    if is_divisor:
        smallest = _smallest(argument)
        if operation in operators.ROOTS and scale and argument.distance:
            # The squares of differences of roots are no more than the differences of what these are of.
            root_apart = scale * math.sqrt(argument.distance / math.sqrt(max(argument.count, 1)))
            return max(smallest, root_apart) if argument.least > 0.0 else min(smallest, root_apart)
        return smallest
    if direction == "forward" and operation in operators.RUNNING:
        # Each element is in all sums from its own on: n errors that know nothing of each other make sqrt((n + 1) / 2)
        # times as much. Rows do not say how long an axis is; it is no longer than the whole.
        return (scale or argument.norm) / math.sqrt((max(argument.count, 1) + 1) / 2.0)
    if direction == "forward" and operation in TERMS:
        spread = math.sqrt(max(1.0, result.count / max(argument.count, 1)))
        shrunk = result.count / argument.count if operation == "mean" and argument.count and result.count else 1.0
        return scale / (spread * shrunk) if scale else argument.norm
    if operation in operators.SUBTRACTS_MEAN and place == (1 if direction == "backward" else 0):
        return argument.spread or argument.norm  # what is left of it, which is as far apart
    if direction == "backward" and place == 1 and operation in operators.DIVIDED_BY_ARGUMENT:
        return _smallest(argument)
    if direction == "backward" and place == 1 and operation in operators.DIVIDED_BY_REST:
        rest = 1.0 - max(abs(argument.largest), abs(argument.least)) ** 2
        return max(rest, 0.0) * math.sqrt(max(argument.count, 1)) or argument.norm
    if operation in operators.EXPONENTS:
        elements = math.sqrt(max(argument.count, 1))
        if direction == "forward" and operation in operators.SUBTRACTS_NOTHING and result.largest > 0.0:
            elements = min(elements, result.norm / result.largest)  # all of it may be at the largest
        return min(elements, argument.norm) or argument.norm
    if direction == "forward" and place == operators.PLACES.get(operation):
        # From -1 to 1 there are as many elements as an axis has, at most the root of those of the result, and one that
        # knows nothing of the next differs by the root of two: sqrt(count / 2) / 2 * sqrt(2), over sqrt(count).
        return min(argument.norm, 2.0) or argument.norm
    return argument.norm


def units_of_rounding(
    operation: str, direction: str, result: Deviation, given: Sequence[Deviation], is_single: bool
) -> float:
    """How many units of the result rounding makes: of an exponent or an angle as many as its size, which is that of the
    largest, as smaller exponents weigh less, and where that is less, of all. Of a sum that is kept in its own type
    (``is_single``: half types are summed in single precision) each of its additions rounds: as partial sums grow
    evenly, as if a third of them had the size of the whole.
    """
    if not given:
        return 1.0
    units = 1.0
    if is_single and operation not in operators.MOVES:
        units = max(units, _ROUNDED * math.sqrt(summed(operation, direction, result, given) / 3.0))
    elif direction == "backward" and (_is_norm(operation) or operation in operators.SCATTERED_BY_BACKWARD):
        # Kernels add what the rows give to a gradient in its own type, in single precision or not. Where rows are
        # alike, partial sums have the size of the whole, or more.
        units = max(units, math.sqrt(summed(operation, direction, result, given)))
    if is_single and operation in operators.SUBTRACTS_MEAN:
        # The mean is rounded to units of its own size.
        taken = given[1 if direction == "backward" and len(given) > 1 else 0]
        units = max(units, taken.norm / taken.spread if taken.spread else 1.0)
    if operation in operators.EXPONENTS:
        units = max(
            units,
            *(
                min(argument.norm / math.sqrt(max(argument.count, 1)), max(1.0, abs(argument.largest)))
                for argument in given
            ),
        )
    if is_single and operation in operators.LESS_LABELS and (direction == "forward" or len(given) > 2):
        units *= _terms_over_difference(result if direction == "forward" else given[-1])
    return units


def _terms_over_difference(loss: Deviation) -> float:
    """How much larger the terms of a loss, and of its gradient, are than what is left of them where a label is likely:
    that is 1 less its probability ``e**-loss``, by the mean loss; of a loss of nothing, it is what rounding leaves.
    """
    mean = loss.norm / math.sqrt(max(loss.count, 1))
    return 1.0 / max(-math.expm1(-mean), _LEAST_LEFT)


def along_paths(units: float, direction: str, axis: int) -> float:
    """How many units rounding makes of a sum of ``axis`` logarithms, each addition of which rounds, as
    :func:`units_of_rounding` has it for sums; of an exponent of it as many as the sum is large. ``units``: those of the
    exponent of one of them.
    """
    additions = max(1.0, math.sqrt(axis / 3.0))
    return additions if direction == "forward" else units * max(axis, 1) * additions


def summed(operation: str, direction: str, result: Deviation, given: Sequence[Deviation]) -> float:
    """How many terms are added for an element of the result: of a sum, and of the gradient of what was broadcast, as
    many as there are elements in the first argument for each; of a product of matrices those that are multiplied.
    """
    first, count = given[0], max(result.count, 1)
    if operation in PRODUCTS and len(given) > 1:
        others = given[1:2] if direction == "forward" else given[1:3]
        return max((math.sqrt(first.count * other.count / count) for other in others), default=1.0)
    if operation in _ADDED or direction == "backward":
        return max(first.count / count, 1.0)
    return 1.0


def rounded_alone(operation: str, direction: str, result: Deviation, given: Sequence[Deviation]) -> int:
    """How many elements of a result are rounded by themselves. What a norm subtracts and divides by is rounded once for
    a row, or for a channel: of the weight's size or as many as the result has times that, whichever are fewer.
    """
    whole = max(int(result.alike), 1)
    if direction == "backward" and operation in _REDUCED and 0 < given[0].count < result.count:
        return min(whole, given[0].count)  # what arrives at a sum is rounded, and then spread
    if not _is_norm(operation):
        return whole
    sizes = [argument.count for argument in given if 1 < argument.count < result.count]
    return min((min(size, max(result.count // size, 1)) for size in sizes), default=whole)


def size_of_row(operation: str, given: Sequence[Deviation]) -> int:
    """How many elements a norm takes the mean of, as far as sizes say so. A weight has one for each of them; that of
    norms over a batch has one for each channel.
    """
    sizes = [argument.count for argument in given if argument.count > 1]
    least, most = min(sizes, default=0), max(sizes, default=0)
    return most // least if operation in operators.AVERAGING and least < most else least


def _is_norm(operation: str) -> bool:
    return operation in operators.CENTRING or operation.endswith("_norm")


#: An element that changes sides alone is twice its size apart, and within the limits where this is given.
_ONE_ELEMENT = 0.5
#: So seldom it is a certain element that changes sides.
_RARE = 1e-3


def chosen_otherwise(operation: str, direction: str, given: Sequence[Deviation]) -> float:
    """How far the gradients of a call are apart where elements within the deviation of a boundary change sides: of
    elements that lie about it, a share as large as the deviation, whose gradients differ by all they are. Where one
    element holds much of the norm, that may be one of them.
    """
    if direction != "backward" or operation not in operators.COMPARES_ELEMENTS:
        return 0.0
    shares = [argument.distance / argument.norm for argument in given[1:] if argument.norm]
    share, arriving = min(max(shares, default=0.0), 1.0), given[0]
    changed = math.sqrt(share)
    if share < _RARE or not arriving.norm:
        return changed
    largest = max(abs(arriving.largest), abs(arriving.least)) / arriving.norm
    return max(changed, _ONE_ELEMENT * largest) if math.isfinite(largest) else changed


def size_beside_factor(operation: str, place: int, given: Sequence[Deviation], result: Deviation, size: float) -> float:
    """What the deviation of a factor is divided by: ``size``, or where less is left of the product than of factors that
    know nothing of each other (a mask takes the large ones, roots of averages are large where gradients are small), the
    factor that would leave so much: its error is multiplied by the other, whatever that does to the factor.
    """
    if operation not in operators.FACTORS or operation in operators.DIVIDES or len(given) < 2 or place > 1:
        return size
    other = given[1 - place]
    if not (other.norm and result.norm) or given[place].count != result.count:
        return size
    return min(size, result.norm * math.sqrt(max(other.count, 1)) / other.norm)


def smallest_divisor_scale(operation: str, given: Sequence[Deviation]) -> float:
    """How small the smallest divisor is, in relation to the norm of all: what is divided may be apart there."""
    place = operators.DIVISORS.get(operation, -1)
    divisor = given[place] if 0 <= place < len(given) else None
    return _smallest(divisor) / divisor.norm if divisor is not None and divisor.norm else 1.0


def _smallest(argument: Deviation) -> float:
    """The norm that a divisor would have if all its elements were as small as its smallest."""
    if argument.least > 0.0:
        return min(argument.least * math.sqrt(argument.count), argument.norm)
    return argument.norm


def _as_sum_or_product(result: Deviation, given: Sequence[Deviation]) -> float:
    arriving = given[0]
    best = 0.0
    for other in given[1:]:
        best = max(best, norm_of_product(arriving, other, result)) if other.count > result.count else best
    return best or arriving.norm


def norm_of_product(first: Deviation, other: Deviation, result: Deviation) -> float:
    """The norm of a product of matrices of unrelated elements, each of which sums the root of n_a n_b / n terms."""
    if not (first.count and other.count and result.count):
        return 0.0
    summed = math.sqrt(first.count * other.count / result.count)
    return first.norm * other.norm / math.sqrt(max(summed, 1.0))

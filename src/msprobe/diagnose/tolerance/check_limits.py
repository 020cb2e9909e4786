"""What rounding may do where there is no second run: between ranks, passes and steps of one, and in what must be so.

Each question of the checks is a function here, each number stands here once. ``tests/unit/diagnose/tolerance/
test_check_limits.py`` measures what the limits are derived from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msprobe.diagnose.differences.records import numbers, numel, rms
from msprobe.diagnose.steps.tensor_info import tensors_of
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import means
from msprobe.diagnose.tolerance.noise import own_noise
from msprobe.diagnose.tolerance.units import BY_CALL, FINE, eps_of, unit

Leaf = dict[str, Any]

#: How badly sums of means must fit without one of the terms; with it as well as ``means.FITS``. Between them lies a
#: factor of ten: a term that is less than a fifth of all proves nothing, and clipping by one factor leaves no misfit.
_FAILS = 0.2
#: One parameter may outweigh all others, and one factor then hides much of what is wrong. Where the sums fit as closely
#: as single precision lets sums of a thousand terms (32 * 2**-23 = 4e-6, with room for 25 times that), a misfit a
#: hundred times larger is enough.
_FITS_CLOSELY = 1e-4
_FAILS_A_LITTLE = 0.01
#: A factor is the same for all parameters if norms agree with it so well: norms have seven digits, of gradients that
#: were rounded to single precision after they were multiplied; four thirds of half a unit of bfloat16 would be 5e-3,
#: and there nothing is said of a factor.
_SAME_FACTOR = 1e-4
#: A mean and a norm of single precision, squared, and their difference: two roundings each, of the square twice.
_OF_SQUARES = 8.0
#: A factor undoes another one if their product is one but for a unit of float16 (2**-10), the coarsest type in which
#: loss scales are needed.
_UNDONE = 1e-3
#: What a module gives whose calls were not recorded, run again: the same kernels give the same bits, and atomic sums
#: that come in another order are kept in single precision. A unit of float16 (2**-10) is far above, and far below what
#: other random numbers do.
_MODULE_AGAIN = 1e-3


def repeat_limit(event: Event) -> float:
    """How far a call may be from another one that does the same with the same: another rank's, or a recomputed one."""
    given, made = event.inputs(), event.outputs()
    return BY_CALL * own_noise(event, tensors_of(given), tensors_of(made), unit(given, made))


def repeated_module_limit() -> float:
    """The same for a module in which no call was recorded."""
    return _MODULE_AGAIN


def copies_limit(leaf: Leaf) -> float:
    """How far gradients of copies may be apart on ranks that sum in orders of their own."""
    return BY_CALL * eps_of(leaf)


def may_have_two_values(leaf: Leaf) -> bool:
    """True if all elements of a tensor may be one of two numbers: then others have its statistics by accident.

    Its variance is then the largest that its mean lets it have, (max - mean) (mean - min) (Bhatia and Davis, "A better
    bound on the variance", 2000). Statistics have the digits of single precision, of which squares have half.
    """
    statistics = numbers(leaf)
    if statistics is None:
        return True
    largest, least, mean, _ = statistics
    size = rms(leaf)
    variance = size * size - mean * mean
    return variance >= (largest - mean) * (mean - least) - _OF_SQUARES * FINE * size * size


def sum_of_one_limit(results: Leaf, given: Leaf | None) -> float:
    """How far the sum of probabilities may be from one, on average over many: each is rounded by half a unit of the
    coarser of its type and that of its input, if there is one input.
    """
    return BY_CALL * 0.5 * max(eps_of(results), eps_of(given) if given is not None else 0.0)


def is_lost_in_rounding(weight: Leaf, gradient: Leaf, rate: float) -> bool:
    """True if the step along a gradient is so small that a weight cannot hold it: a bias in front of a norm, say."""
    statistics = numbers(gradient)
    largest = max(abs(v) for v in statistics[:2]) if statistics is not None else 0.0
    return rate * largest < eps_of(weight) * rms(weight)


def counts_in_a_sum(mean: float, size: float, leaf: Leaf) -> bool:
    """True if a mean is more than what rounding leaves. ``size``: the RMS of all terms together; ``leaf``: their sum.

    Rounding moves a mean of n elements by less than u (1/√n + 1/4) of their size: elements are rounded in directions
    of their own, and statistics once more.
    """
    error = size * eps_of(leaf) * (means.BIAS + 1.0 / math.sqrt(numel(leaf)))
    return error > 0 and abs(mean) > means.CLEAR * error


def is_explained(without: float, with_it: float) -> bool:
    """True if sums fit with a term and not without it. Both are misfits, as shares of the size."""
    return without > _FAILS and with_it < means.FITS


def is_explained_closely(without: float, with_it: float) -> bool:
    """The same where the sums fit so closely that less of a misfit is enough."""
    return without > _FAILS_A_LITTLE and with_it < _FITS_CLOSELY


def is_one_factor(ratios: Sequence[float]) -> bool:
    """True if these are one factor, which is not 1."""
    if len(ratios) < 2 or max(ratios) - min(ratios) >= _SAME_FACTOR * abs(max(ratios)):
        return False
    return abs(ratios[0] - 1) > _SAME_FACTOR


def undoes(factor: float, other: float = 1.0) -> bool:
    """True if one factor takes back the other, or changes nothing by itself."""
    return abs(factor * other - 1.0) < _UNDONE


def is_left_scaled(factor: float) -> bool:
    """True if what is left of a factor enlarges."""
    return factor > 1.0 + _UNDONE

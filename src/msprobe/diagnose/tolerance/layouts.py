"""What rounding does between two parallel layouts: sums run over other parts, in another order.

Tensors are put together from their parts; so weights agree in their bits, and what is calculated is apart by the order
of sums alone.

In types with few digits so many units as are taken for rounding in float32 would be more than the numbers themselves.
There it counts how many calls have rounded a tensor since weights and data agreed (``roundings``), and how far apart
the modules before were. Measured on healthy layouts of two small models, in bfloat16 and under autocast, by statistics
and by values: results of modules at most 1.6 units apart in the forward pass and 13 in the backward pass, where 8 and
18 are taken for rounding (``bench/localise/run.py --layouts --clean``, ``tests/integration/test_layouts.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from msprobe.diagnose.tolerance import effect, means, noise, roundings, units

#: In types with few digits no more than this is the order of sums, or a weight that was stored.
_MOST, _MOST_OF_WEIGHTS = 0.05, 0.02
#: What a step of an optimizer that was not recorded may make of rounding.
_UNRECORDED_STEP = 2.5e-3
#: Of what a step changes, so much may go another way: elements whose gradient is next to nothing.
_SHARE_OF_MOVEMENT = 0.03
#: Gradients this many times smaller than the largest count for that much less: one that is zero in exact arithmetic (of
#: the bias of keys in attention) is nothing but rounding.
_SMALL = 0.1
#: A factor of all gradients is made of a few numbers on either side (count, loss, norm, coefficient), each rounded by
#: half a unit at most: of eight roundings three deviations come to 1.8 units (healthy layouts: at most 1.1). Norms of
#: many elements say it, of three parameters or more.
_UNITS_OF_FACTOR = 2.0
_LEAST_OF_FACTOR = 3
#: So many of them must be off by it, but for so much of what it is off by.
_MOST_HAVE_IT = 0.75
_BUT_FOR = 0.5


def sum_order_limit(unit: float) -> float:
    """How far a tensor may be apart by the order of sums."""
    return min(units.BY_STEP * unit, _MOST)


def are_copies(apart: float, unit: float) -> bool:
    """True if ranks hold the same tensor: kernels that add in no fixed order (atomic sums) leave copies a unit or two
    apart in types with few digits.
    """
    return not apart > (units.BY_STEP if unit <= units.FINE else units.BY_ROUNDING) * unit


def stored_weight_limit(unit: float) -> float:
    """How far a weight may be apart before the first step."""
    return min(units.BY_CALL * unit, _MOST_OF_WEIGHTS)


def doubled_weight_limit(allowed: float, unit: float) -> float:
    """The same for one of which two ranks hold the same part: in types with few digits a unit, by which statistics are
    rounded, since equal parts are no rounding.
    """
    return allowed if unit <= units.FINE else min(allowed, unit)


def drift(known: float | None, first: bool) -> float:
    """What a weight was apart by before. ``known``: after the last recorded step."""
    return known if known is not None else 0.0 if first else _UNRECORDED_STEP


def drift_limit(drift: float) -> float:
    """What a weight may be apart by because it was before."""
    return units.BY_ROUNDING * drift


def when_paired(unit: float) -> float:
    """How far a tensor and the same one put together otherwise may be apart when they are paired."""
    return min(units.BY_CALL * units.BY_STEP * unit, _MOST)


def mean_decides(alone: float, together: float, unit: float, count: int) -> bool:
    """True if the mean of a sum shows that ranks hold its terms: it is that of the whole, and that of one term alone is
    not. ``alone`` and ``together``: how far these means are from that of the whole, of the size of the elements;
    ``count``: of elements. A tensor whose mean is zero, as norms make it, is that of any terms.
    """
    return alone > max(
        units.BY_ROUNDING * together, units.BY_ROUNDING * unit * (means.BIAS + 1 / math.sqrt(max(count, 1)))
    )


def handed_on(apart: float) -> float:
    """What calls between the modules may make of what came out of modules, or arrived."""
    return units.BY_MODULE * apart


def pass_limit(own: float, factor: float, arrived: float, count: int, unit: float) -> float:
    """How far the results of a module may be apart. ``own``, ``factor``: see ``noise``; ``count``: of the calls that
    rounded to ``unit`` until then.
    """
    return _limit_of_few_digits(noise.explained(own, factor, arrived), arrived, count, unit)


def input_limit(own: float, before: float, count: int, unit: float) -> float:
    """How far the input of a module, or its incoming gradient, may differ. ``own``: by its type, see
    :func:`sum_order_limit`; ``before``: by how much modules before differed at most; ``count``: of the calls that
    rounded to ``unit`` until then.
    """
    return _limit_of_few_digits(own + handed_on(before), before, count, unit)


def gradient_limit(own: float, reached: float, count: int, unit: float) -> float:
    """How far the gradient of a parameter, or what an optimizer makes of it, may be apart. ``reached``: how far what
    arrived at its module was apart; ``count``: of the calls of the forward pass that round to ``unit``.
    """
    allowed = own + handed_on(reached)
    return (
        allowed
        if unit <= units.FINE
        else min(allowed, max(effect.types_limit(count, unit), units.BY_ROUNDING * reached))
    )


def _limit_of_few_digits(allowed: float, before: float, count: int, unit: float) -> float:
    """No more than the roundings since weights and data agreed, and what modules make of the inputs."""
    if unit <= units.FINE:
        return allowed
    rounded = min(roundings.rounding_count_limit(count, unit), units.LARGEST)
    return min(allowed, max(rounded, units.BY_ROUNDING * before))


def after_finding(allowed: float, tainted: bool) -> float:
    """The same, if something before was found to be wrong."""
    return allowed * (units.BY_ROUNDING if tainted else 1.0)


def layout_deviation(moved: float) -> float:
    """How far a weight may be apart by elements whose gradient is next to nothing. ``moved``: by the whole step."""
    return _SHARE_OF_MOVEMENT * moved


def counts(size: float, largest: float) -> float:
    """How much a gradient of this size counts beside the largest."""
    return min(1.0, size / (_SMALL * largest)) if largest else 1.0


def common_factor(ratios: Sequence[float], unit: float) -> float | None:
    """The factor that gradients have in common in a type with few digits, where single ones are further apart by
    rounding; None if there is none. ``ratios``: of their norms.
    """
    if unit <= units.FINE or len(ratios) < _LEAST_OF_FACTOR:
        return None
    factor = median(ratios)
    off = abs(factor - 1.0)
    having = sum(abs(ratio - factor) <= _BUT_FOR * off for ratio in ratios)
    return factor if off > factor_limit(unit) and having >= _MOST_HAVE_IT * len(ratios) else None


def factor_limit(unit: float) -> float:
    """How far a factor of all gradients may be from one."""
    return _UNITS_OF_FACTOR * unit

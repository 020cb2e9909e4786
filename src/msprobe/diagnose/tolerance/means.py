"""How far roundings move the mean of a gradient, and whether the mean of one is that of two others together."""

from __future__ import annotations

import math
from typing import Any

from msprobe.diagnose.differences.records import numel, rms
from msprobe.diagnose.tolerance import units

#: Each element is rounded by a quarter of a unit on the average in one direction or the other, which a mean of many
#: evens out (the second term); a kernel that sums with a bias leaves the first.
BIAS = 0.25
#: A mean says something if it is so many times larger than what one tensor's own rounding does.
CLEAR = 100.0
#: Of bfloat16, and of types with fewer digits, one unit has to do as that margin.
_COARSE = 2.0**-7
#: How well the sum must fit (of its size), and how badly without the older gradient. Where types have few digits, so
#: many units of rounding are as good, if they explain the rest.
FITS = 0.02
_FAILS = 0.1
_EXPLAINS = 0.2
_MOST_LOOKED_AT = 0.1


def size_of_mean(leaf: dict[str, Any]) -> float:
    """The size by which the mean of a tensor is measured."""
    return rms(leaf) * (BIAS + 1.0 / math.sqrt(max(numel(leaf), 1)))


def error_of_mean(leaf: dict[str, Any]) -> float:
    """How far its own rounding may move the mean of a tensor."""
    return size_of_mean(leaf) * min(units.eps_of(leaf), _COARSE / CLEAR)


def error_of_means(errors: float, sizes: float, unit: float) -> float:
    """What a difference of means must exceed to say something. ``unit``: of the rounding of the run, if gradients are
    kept in a finer type.
    """
    return max(errors * CLEAR, sizes * unit)


def fits_without(misfit: float) -> bool:
    """True if means agree so well without an older gradient that none is needed."""
    return misfit <= _FAILS


def fits_with(misfit: float, without: float, unit: float) -> bool:
    """True if they agree with it. ``without``: how badly they fit else."""
    return misfit < max(FITS, min(units.BY_ROUNDING * unit, _EXPLAINS * without))


def are_terms(together: float, alone: float) -> bool:
    """True if gradients of ranks, put together, are those of the other side: they fit so much better than one alone.
    ``together`` and ``alone``: how badly they fit, of the size of the means.
    """
    return together < _EXPLAINS * alone


def least_to_look_at(unit: float) -> float:
    """Gradients that are less apart are not asked whether they hold older ones."""
    return min(units.BY_MODULE * unit, _MOST_LOOKED_AT)

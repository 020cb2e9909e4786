"""Gradients that still hold those of the step before, because nothing cleared them.

Backward passes add to a gradient, and the mean of a sum is the sum of the means. So the mean of each gradient that an
optimizer gets on one side must be that of the other side and that of the step before together; clipping gives each of
the two one factor, for all parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msprobe.diagnose.differences.records import numbers
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.parameter_names import plain_name
from msprobe.diagnose.steps.timeline import Timeline, is_tensor
from msprobe.diagnose.tolerance import means

#: Two factors are found for so many parameters at least.
_LEAST = 4


@dataclass(frozen=True)
class Left:
    """The mean of a gradient, how far its own rounding may move it, and that in units of rounding."""

    mean: float
    error: float
    size: float = 0.0


def gradients_left(timeline: Timeline) -> dict[str, Left]:
    """The gradient of each parameter as the last optimizer of a step got it; without an optimizer's record, the sum of
    what the backward passes brought.
    """
    left_by_name: dict[str, Left] = {}
    for event in timeline:
        if event.parts.kind == "optimizer":
            for name, gradient in optimizer.gradients_taken(event).items():
                left = _left(gradient)
                if left is not None:
                    left_by_name[name] = left
    return left_by_name or _brought(timeline)


def _brought(timeline: Timeline) -> dict[str, Left]:
    left_by_name: dict[str, Left] = {}
    for event in timeline:
        for slot, leaf in event.outputs() if event.direction == "gradient" else ():
            left = _left(leaf)
            if left is not None:
                name = plain_name(event, slot)
                old = left_by_name.get(name, Left(0.0, 0.0))
                left_by_name[name] = Left(old.mean + left.mean, old.error + left.error, old.size + left.size)
    return left_by_name


def _left(leaf: object) -> Left | None:
    if not isinstance(leaf, dict) or not is_tensor(leaf):
        return None
    statistics = numbers(leaf)
    if statistics is None or not all(map(math.isfinite, statistics)):
        return None
    return Left(statistics[2], means.error_of_mean(leaf), means.size_of_mean(leaf))


def holds_older(
    now: Mapping[str, Left], other: Mapping[str, Left], older: Mapping[str, Left], unit: float = 0.0
) -> int:
    """Of how many parameters the means show that ``now`` is ``other`` and ``older`` together; 0 if it is not. ``unit``:
    of the rounding of the run, if gradients are kept in a finer type.
    """
    rows = []
    for name, mine in now.items():
        theirs, before = other.get(name), older.get(name)
        if theirs is None or before is None:
            continue
        left = mine, theirs, before
        error = means.error_of_means(sum(held.error for held in left), sum(held.size for held in left), unit)
        # Means that are no more than rounding say nothing.
        if error and abs(before.mean) > error and abs(mine.mean) > error:
            size = abs(mine.mean) + abs(theirs.mean) + abs(before.mean)
            rows.append((mine.mean / size, theirs.mean / size, before.mean / size))
    if not rows:
        return 0
    size = math.sqrt(sum(mine * mine for mine, _, _ in rows))
    alone = _misfit(rows, size, _factor(rows), 0.0)
    if means.fits_without(alone):
        return 0
    factors = [(1.0, 1.0)]
    if len(rows) >= _LEAST:
        factors.append(_two_factors(rows))
    fits = any(means.fits_with(_misfit(rows, size, *pair), alone, unit) for pair in factors if min(pair) > 0)
    return len(rows) if fits else 0


def _misfit(rows: Sequence[tuple[float, float, float]], size: float, other_share: float, older_share: float) -> float:
    """How far the first number of each row is from the sum of the other two, times these factors."""
    return math.sqrt(sum((a - other_share * b - older_share * c) ** 2 for a, b, c in rows)) / size


def _factor(rows: Sequence[tuple[float, float, float]]) -> float:
    square = sum(b * b for _, b, _ in rows)
    return sum(a * b for a, b, _ in rows) / square if square else 0.0


def _two_factors(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The factors of the second and third number whose sum comes nearest to the first (least squares)."""
    bb, cc = sum(b * b for _, b, _ in rows), sum(c * c for _, _, c in rows)
    bc = sum(b * c for _, b, c in rows)
    ab, ac = sum(a * b for a, b, _ in rows), sum(a * c for a, _, c in rows)
    whole = bb * cc - bc * bc
    if whole <= 1e-12 * bb * cc:
        return 0.0, 0.0
    return (ab * cc - ac * bc) / whole, (ac * bb - ab * bc) / whole

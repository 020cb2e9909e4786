"""Which rows of the sheet are red or yellow, and why.

Source of the rules and thresholds: mindstudio-probe 8.1.1, with the absolute value where it takes the sign of the
reference's maximum for a scale, and each reason said once. Inputs and parameters of a call are compared with each
of its outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from msprobe.compare.measures_statistics import StatisticMeasures
from msprobe.compare.rows import BOOL, INPUT, OUTPUT, PARAMETER, Numbers, Rows
from msprobe.messages import both

Mask = npt.NDArray[np.bool_]

NONE, YELLOW, RED = range(3)
_LARGEST_ERROR = 1e10
_EPSILON = float(np.finfo(np.float64).eps)

NONFINITE = both("The maximum or minimum is NaN or infinite.", "最大值或最小值为 NaN 或无穷。")
HUGE = both("The maximum absolute error is above 1e+10.", "最大绝对误差超过 1e+10。")
RATIO_RED = both(
    "The one-thousandth ratio of an input or parameter is above 0.9, that of this output below 0.6.",
    "某个输入或参数的千分之一误差比例高于 0.9，而该输出低于 0.6。",
)
RELATIVE_RED = both(
    "The maximum of this output is off by more than half of the reference's.", "该输出的最大值偏差超过标杆侧的一半。"
)
MAGNITUDE = both(
    "The absolute error of this output is at least ten times that of an input or parameter.",
    "该输出的绝对误差至少是某个输入或参数的十倍。",
)
RATIO_YELLOW = both(
    "The one-thousandth ratio of this output is lower by more than 0.1 than that of an input or parameter.",
    "该输出的千分之一误差比例比某个输入或参数低 0.1 以上。",
)
COSINE_YELLOW = both(
    "The cosine of this output is lower by more than 0.1 than that of an input or parameter.",
    "该输出的余弦比某个输入或参数低 0.1 以上。",
)
RELATIVE_YELLOW = both(
    "The maximum of this output is off by more than 0.1, that of an input or parameter by less than 0.01.",
    "该输出的最大值偏差超过 0.1，而某个输入或参数的偏差小于 0.01。",
)


@dataclass(frozen=True, eq=False)
class Colouring:
    """``colour`` is NONE, YELLOW or RED for each row; ``reasons`` has the sentences of coloured rows."""

    colour: npt.NDArray[np.uint8]
    reasons: dict[int, list[str]]


def colour_statistics(rows: Rows, measures: StatisticMeasures) -> Colouring:
    """Colours of a comparison of statistics."""
    error = np.abs(measures.difference[0])
    known = measures.comparable[0] & ~np.isnan(measures.difference[0])
    with np.errstate(all="ignore"):
        # The bound keeps the quotient defined where the reference is 0.
        relative = np.where(known, error / np.maximum(_EPSILON, np.abs(measures.reference[0])), np.nan)
        error = np.where(known, error, np.nan)
    given, made = _groups(rows)
    red = [
        (NONFINITE, _nonfinite(measures)),
        (HUGE, known & (error > _LARGEST_ERROR)),
        (RELATIVE_RED, made & (relative > 0.5)),
    ]
    yellow = [
        (MAGNITUDE, made & _magnitude(rows, given, error)),
        (RELATIVE_YELLOW, made & (relative > 0.1) & (_least(rows, given, relative) < 0.01)),
    ]
    return _collect(len(rows), red, yellow)


def colour_tensors(
    rows: Rows, measures: StatisticMeasures, cosine: Numbers, error: Numbers, ratio: Numbers
) -> Colouring:
    """Colours of a comparison of values; NaN where a measure is no number."""
    given, made = _groups(rows)
    made = made & _has_extremes(rows, measures) & ~np.isnan(error)
    with np.errstate(all="ignore"):
        most_ratio, most_cosine = _most(rows, given, ratio), _most(rows, given, cosine)
        red = [
            (NONFINITE, _nonfinite(measures)),
            (HUGE, np.abs(error) > _LARGEST_ERROR),
            (RATIO_RED, made & (most_ratio > 0.9) & (ratio < 0.6)),
        ]
        yellow = [
            (MAGNITUDE, made & _magnitude(rows, given, error)),
            (RATIO_YELLOW, made & (most_ratio - ratio > 0.1)),
            (COSINE_YELLOW, made & (most_cosine - cosine > 0.1)),
        ]
    return _collect(len(rows), red, yellow)


def _groups(rows: Rows) -> tuple[Mask, Mask]:
    """What goes into a call, and what comes out of it."""
    return (rows.state == INPUT) | (rows.state == PARAMETER), rows.state == OUTPUT


def _nonfinite(measures: StatisticMeasures) -> Mask:
    """An infinity in the candidate's extremes, or a NaN that the reference has not; equal rows are left alone.

    A mask of -inf is the same on both sides and no finding.
    """
    ours, theirs = measures.candidate[:2], measures.reference[:2]
    infinite = np.isinf(ours).any(axis=0)
    new_nan = (np.isnan(ours) & measures.comparable[:2] & ~np.isnan(theirs)).any(axis=0)
    both_nan = np.isnan(measures.candidate) & np.isnan(measures.reference)
    same = (measures.candidate == measures.reference) | both_nan | ~measures.comparable
    mask: Mask = (infinite & ~(same.all(axis=0) & measures.comparable.any(axis=0))) | new_nan
    return mask


def _has_extremes(rows: Rows, measures: StatisticMeasures) -> Mask:
    """Both maxima are numbers or booleans."""
    ours = rows.numeric(0) | (rows.kind(0) == BOOL)
    mask: Mask = ours & ~np.isnan(measures.candidate[0]) & ~np.isnan(measures.reference[0])
    return mask


def _magnitude(rows: Rows, given: Mask, error: Numbers) -> Mask:
    """The error of an output is ten times that of an input; errors below 1 count as 1."""
    with np.errstate(all="ignore"):
        order = np.log10(np.maximum(np.abs(error), 1.0))
    mask: Mask = order - _least(rows, given, order) >= 1.0
    return mask


def _least(rows: Rows, chosen: Mask, values: Numbers) -> Numbers:
    """For each row the least value among the chosen rows of its record, NaN where there is none."""
    return _reduce(rows, np.minimum, np.where(chosen & ~np.isnan(values), values, np.inf), np.inf)


def _most(rows: Rows, chosen: Mask, values: Numbers) -> Numbers:
    """For each row the largest value among the chosen rows of its record, NaN where there is none."""
    return _reduce(rows, np.maximum, np.where(chosen & ~np.isnan(values), values, -np.inf), -np.inf)


def _reduce(rows: Rows, reduce: np.ufunc, values: Numbers, nothing: float) -> Numbers:
    if not len(rows):
        return values
    starts = rows.starts
    reduced = reduce.reduceat(values, starts)
    numbers: Numbers = np.repeat(np.where(reduced == nothing, np.nan, reduced), np.diff(np.append(starts, len(rows))))
    return numbers


def _collect(rows: int, red: Sequence[tuple[str, Mask]], yellow: Sequence[tuple[str, Mask]]) -> Colouring:
    colour = np.zeros(rows, np.uint8)
    reasons: dict[int, list[str]] = {}
    for sentence, hit in red:
        for row in np.flatnonzero(hit).tolist():
            colour[row] = RED
            reasons.setdefault(row, []).append(sentence)
    for sentence, hit in yellow:
        for row in np.flatnonzero(hit).tolist():
            if colour[row] != RED:
                colour[row] = YELLOW
                reasons.setdefault(row, []).append(sentence)
    return Colouring(colour, reasons)

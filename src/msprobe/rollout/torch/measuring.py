"""How far a result of the engine and of the trainer's own operator are from the trainer's operator in float64.

A deviation is the root mean square of a row's errors over that of the true row, in units of the engine's type. The
*slope* of a row is what its errors have in common with the row itself: rounding of single elements has no direction,
a variance that is computed in a half type scales the whole row (vllm 36101).

Limits: 64 units in float32, 2 in half types (healthy rows have up to 8 and 1), and 4 times what the trainer's own
operator in its own type is away from the truth; slopes of norms in half types, over all rows of a module: twice what
elements that are rounded on their own leave. Chosen with ``python -m rollout.limits`` (tests), whose seeds, sizes and
prompts are none of those that the bench scores: healthy norms have 0.6 to 1.1 of it, those with a variance in bfloat16
2.8 to 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from msprobe.messages import said

UNITS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-52}
LIMITS = {torch.float32: 64.0, torch.bfloat16: 2.0, torch.float16: 2.0, torch.float64: 64.0}
_TIMES_OWN = 4.0
#: An element of an activation in a half type may be this many units of itself away; two roundings make 2.
_OF_ELEMENTS = 8.0
#: Smaller elements than this share of their row are not looked at one by one.
_LEAST_ELEMENT = 1e-3
#: Slopes of rows whose elements are rounded twice each, in units, times the root of how many elements make up a row
#: (the square of its sum of squares over its sum of fourth powers). A rounding leaves an even error of up to half a
#: unit in the last place, which has a root mean square of .42 units over the sizes of elements; two of them .59.
_SLOPE_OF_ROUNDING = 0.59
#: A row is measured against at least this share of the usual row.
_FLOOR = 0.1
_HALF = (torch.bfloat16, torch.float16)


class NotKnown(Exception):
    """No operator of the trainer computes this call. ``why``: in the catalogue's words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Container(NotKnown):
    """A module that only calls others: those are judged."""

    def __init__(self) -> None:
        super().__init__(said("own-modules-judged"))


@dataclass(frozen=True)
class SideErrors:
    """One side against float64. ``units``: largest deviation of a row; ``bias``: mean slope of the rows, in units."""

    units: float = 0.0
    bias: float = 0.0


@dataclass(frozen=True)
class JudgedModule:
    """A call of the engine. ``rows``: units of each row; ``limits``: beyond its own a row is wrong.

    ``bits``: the share of elements that equal the trainer's operator in the engine's type. ``engine``, ``trainer``:
    each against float64. ``slopes``: the sums over the rows of the squares of their slopes, over the square of what
    rounding leaves; 0 for what is no norm in a half type. ``skipped``: reason (a piece of the catalogue) -> rows that
    could not be judged. ``stand_in``: rows judged with keys of the trainer.
    """

    path: str
    call: int
    rows: np.ndarray[Any, np.dtype[np.float64]]
    limits: np.ndarray[Any, np.dtype[np.float64]]
    bits: float
    engine: SideErrors
    trainer: SideErrors
    slopes: tuple[float, float] = (0.0, 0.0)
    skipped: dict[str, int] = field(default_factory=dict)
    stand_in: Any = None

    @property
    def wrong(self) -> Any:
        """The numbers of the rows beyond their limits."""
        return np.flatnonzero(~(self.rows <= self.limits))


@dataclass(frozen=True)
class JudgedRows:
    """Which rows are judged (``keep``; None: all), why others are not, and by how many units limits are widened."""

    keep: Any = None
    skipped: dict[str, int] = field(default_factory=dict)
    widened: Any = None


def measured(
    path: str,
    call: int,
    outputs: Sequence[Any],
    truth: Sequence[Any],
    own: Sequence[Any],
    rows: JudgedRows,
    kind_of: str = "",
) -> JudgedModule:
    """Compare the engine's results with the truth (float64) and with the trainer's own. Raises NotKnown.

    ``kind_of``: ``norm`` or ``activation``, whose rows and elements are looked at more closely in half types.
    """
    kind = outputs[0].dtype
    unit = UNITS.get(kind)
    if unit is None:
        raise NotKnown(said("results-without-limit", kind))
    mine: Any = np.zeros(len(outputs[0]))
    theirs: Any = np.zeros(len(outputs[0]))
    equal: list[float] = []
    slopes: list[tuple[Any, Any]] = []
    usual_slopes: list[Any] = []
    keep = np.ones(len(outputs[0]), bool) if rows.keep is None else rows.keep
    for result, true, other in zip(outputs, truth, own, strict=False):
        flat, right = result.double().reshape(len(result), -1), true.reshape(len(result), -1)
        same = other.to(kind).reshape(len(result), -1)
        size = right.square().mean(1).sqrt()
        size = torch.maximum(size, _FLOOR * size[torch.isfinite(size)].mean())
        size = torch.where(size > 0, size, torch.ones_like(size))
        mine = np.maximum(mine, _units(flat, right, size, unit))
        theirs = np.maximum(theirs, _units(same.double(), right, size, unit))
        if kind_of == "activation" and kind in _HALF:
            mine = np.maximum(mine, _element_deviation(flat, right, size, unit, LIMITS[kind]))
            theirs = np.maximum(theirs, _element_deviation(same.double(), right, size, unit, LIMITS[kind]))
        is_equal = (same == result.reshape(len(result), -1)).double().mean(1).numpy()
        equal.append(float(is_equal[keep].mean()) if keep.any() else 1.0)
        slopes.append((_slopes(flat, right, unit)[keep], _slopes(same.double(), right, unit)[keep]))
        usual_slopes.append(_SLOPE_OF_ROUNDING / np.sqrt(_elements(right))[keep])
    mine, theirs = np.where(keep, mine, 0.0), np.where(keep, theirs, 0.0)
    usual = float(np.median(theirs[keep])) if keep.any() else 0.0
    limits = np.full(len(mine), max(LIMITS[kind], _TIMES_OWN * usual))
    if rows.widened is not None:
        limits = limits + rows.widened
    is_norm = kind_of == "norm" and kind in _HALF
    squares = [float(np.square(slope / usual_slopes[0]).sum()) if is_norm else 0.0 for slope in slopes[0]]
    return JudgedModule(
        path,
        call,
        mine,
        limits,
        float(np.mean(equal)),
        SideErrors(float(mine.max(initial=0.0)), _mean(slopes[0][0])),
        SideErrors(float(theirs.max(initial=0.0)), _mean(slopes[0][1])),
        (squares[0], squares[1]),
        rows.skipped,
        None if rows.widened is None else rows.widened > 0,
    )


def _units(values: Any, truth: Any, size: Any, unit: float) -> Any:
    same = (values == truth) | (torch.isnan(values) & torch.isnan(truth))
    difference = torch.where(same, torch.zeros_like(values), values - truth)
    return (difference.square().mean(1).sqrt() / size / unit).numpy()


def _element_deviation(values: Any, truth: Any, size: Any, unit: float, limit: float) -> Any:
    """The largest deviation of an element, relative to itself, as units that meet the limit of rows at their own."""
    is_large = truth.abs() > _LEAST_ELEMENT * size[:, None]
    away = torch.where(is_large, (values - truth).abs() / truth.abs().clamp_min(1e-300), torch.zeros_like(truth))
    return (away.amax(1) / unit * limit / _OF_ELEMENTS).numpy()


def _slopes(values: Any, truth: Any, unit: float) -> Any:
    power = truth.square().sum(1)
    slopes = ((values - truth) * truth).sum(1) / torch.where(power > 0, power, torch.ones_like(power)) / unit
    return torch.nan_to_num(slopes, nan=0.0, posinf=0.0, neginf=0.0).numpy()


def _elements(truth: Any) -> Any:
    """How many elements make up each row: all of them where they are of one size, one where one alone is large."""
    squares = truth.square()
    return (squares.sum(1).square() / squares.square().sum(1).clamp_min(1e-300)).clamp_min(1.0).numpy()


def _mean(slopes: Any) -> float:
    return float(slopes.mean()) if len(slopes) else 0.0

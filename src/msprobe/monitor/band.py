"""Where a second run leaves the band of a first: the earliest step, and the tensors that leave it there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from msprobe.monitor.csv_files import QuantityTable
from msprobe.monitor.series import Matrix, Series, label_of, place_of, series_of

# The band is this many times as wide as the number usually changes from one step to the next, on both sides.
WIDTH = 6.0
# And at least so wide beside the number itself: two healthy runs round differently.
LEAST = 0.02
# Usual is the median over so many steps on both sides.
_AROUND = 10
#: Counts are judged exactly: a NaN more is a NaN more.
_EXACT = ("nans",)
# What may be nearly nothing where elements are not: made of their rounding then.
_OF_ELEMENTS = ("mean", "min", "max")


@dataclass(frozen=True, slots=True)
class Departure:
    """``distance``: how far outside, in half widths of the band (1 is its edge; infinite for NaN)."""

    step: int
    quantity: str
    label: str
    op: str
    first: float
    second: float
    distance: float

    def __str__(self) -> str:
        return f"step {self.step}: {self.op} of {self.quantity} {self.label}, {self.first:.6g} and {self.second:.6g}"


def departures(first: dict[str, QuantityTable], second: dict[str, QuantityTable]) -> list[Departure]:
    """What leaves the band at the earliest step at which anything does, in the order of a step; empty if nothing."""
    departures_found: list[Departure] = []
    for quantity in sorted(first.keys() & second.keys(), key=place_of):
        ours = {series.op: series for series in series_of(first[quantity])}
        for other in series_of(second[quantity]):
            if other.op in ours:
                norms = ours.get("norm") if other.op in _OF_ELEMENTS else None
                least = None if norms is None else _usual_elements(norms, first[quantity])
                departures_found += _series_departures(ours[other.op], other, least)
    earliest = min((departure.step for departure in departures_found), default=None)
    return [departure for departure in departures_found if departure.step == earliest]


def _usual_elements(norms: Series, table: QuantityTable) -> Matrix:
    """The size of an element, as the root of the mean of squares, [rows, steps]."""
    sizes: dict[str, int] = {}
    several = table.has_micro_steps and bool(table.micro_steps.any())
    for stage, name, micro, shape in zip(
        table.stages, table.names, table.micro_steps.tolist(), table.shapes, strict=True
    ):
        label = label_of(stage, name, micro if several else None)
        if label not in sizes and shape.startswith("["):
            sizes[label] = math.prod(int(size) for size in shape.strip("[]").split(",") if size.strip())
    counts = np.array([max(1, sizes.get(label, 1)) for label in norms.labels], np.float64)
    return norms.values / np.sqrt(counts)[:, None]


def half_width(values: Matrix, op: str) -> Matrix:
    """Half the width of the band around each number, [rows, steps]."""
    if op in _EXACT:
        return np.zeros_like(values)
    changes = np.abs(np.diff(values, axis=1, prepend=values[:, :1]))
    changes[~np.isfinite(changes)] = np.nan
    usual = np.zeros_like(values)
    with np.errstate(all="ignore"):
        for at in range(values.shape[1]):
            around = changes[:, max(1, at - _AROUND) : at + _AROUND + 1]
            if around.shape[1]:
                usual[:, at] = (
                    np.nanmedian(around, axis=1) if not np.isnan(around).all(axis=1).any() else _median(around)
                )
    # A share of zeros is of the whole tensor, other numbers are their own measure.
    return np.maximum(WIDTH * usual, LEAST if op == "zeros" else LEAST * np.abs(values))


def _median(around: Matrix) -> Matrix:
    known = ~np.isnan(around).all(axis=1)
    medians = np.zeros(len(around))
    medians[known] = np.nanmedian(around[known], axis=1)
    return medians  # type: ignore[return-value]


def _series_departures(first: Series, second: Series, elements: Matrix | None) -> Iterable[Departure]:
    """The departures of one operator at the earliest step that has any. ``elements``: how large they are."""
    labels = [label for label in first.labels if label in set(second.labels)]
    steps, here, there = np.intersect1d(first.steps, second.steps, return_indices=True)
    if not labels or not len(steps):
        return
    rows = _at(first.labels, labels), _at(second.labels, labels)
    ours, theirs = first.values[rows[0]], second.values[rows[1]][:, there]
    width = half_width(ours, first.op)[:, here]
    if elements is not None:
        width = np.fmax(width, LEAST * elements[rows[0]][:, here])
    ours = ours[:, here]
    both = first.present[rows[0]][:, here] & second.present[rows[1]][:, there]
    with np.errstate(all="ignore"):
        distance = np.abs(theirs - ours) / width
        distance[(theirs == ours) | (np.isnan(theirs) & np.isnan(ours))] = 0.0
        distance[np.isnan(distance)] = np.inf
    outside = (distance > 1) & both
    columns = np.flatnonzero(outside.any(axis=0))
    if not len(columns):
        return
    at = int(columns[0])
    for row in np.flatnonzero(outside[:, at]):
        numbers = float(ours[row, at]), float(theirs[row, at])
        yield Departure(int(steps[at]), first.quantity, labels[row], first.op, *numbers, float(distance[row, at]))


def _at(known: Sequence[str], wanted: Sequence[str]) -> list[int]:
    place = {label: at for at, label in enumerate(known)}
    return [place[label] for label in wanted]

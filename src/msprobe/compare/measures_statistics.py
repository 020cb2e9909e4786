"""How far the statistics of paired rows are apart, and which differences are more than noise.

Source of the formulas of ``difference``, ``relative`` and ``warning``: the sheet of mindstudio-probe 8.1.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from msprobe.compare.matching import RowPairing
from msprobe.compare.number_types import epsilon_of
from msprobe.compare.rows import WHOLE, Numbers, Rows

Mask = npt.NDArray[np.bool_]

# A statistic that changed by more than this share of itself is worth a look.
WARNING_RATIO = 0.5
_NOT_ZERO = 1e-10
# A sum of n terms is off by about sqrt(n) roundings; this many cover the sums of a small model.
_ROUNDINGS = 8.0


@dataclass(frozen=True, eq=False)
class StatisticMeasures:
    """Arrays of shape (4, rows) in the order of ``STATISTICS``, and of shape (rows,).

    ``candidate`` and ``reference`` are the statistics themselves, NaN where there is none. ``comparable`` is true
    where both are numbers. ``difference`` is candidate - reference, ``relative`` 100 |difference / reference|.
    ``new_nonfinite``: a NaN or infinity that the reference has not. ``warning``: a statistic changed by more than
    half of itself. ``beyond_noise``: it also changed by more than half of the tensor's own scale and by more than
    the rounding of the values that went into it.
    """

    candidate: Numbers
    reference: Numbers
    comparable: Mask
    difference: Numbers
    relative: Numbers
    new_nonfinite: Mask
    warning: Mask
    beyond_noise: Mask


def statistic_measures(candidate: Rows, reference: Rows, pairing: RowPairing) -> StatisticMeasures:
    """Measure all pairs; rows without a partner are not comparable."""
    matched = pairing.matched
    other = np.where(matched, pairing.partner, 0)
    ours = candidate.numbers
    theirs = np.full_like(ours, np.nan)
    comparable = np.zeros(ours.shape, np.bool_)
    if len(reference):
        theirs = np.where(matched, reference.numbers[:, other], np.nan)
        for statistic in range(4):
            numeric_there = reference.numeric(statistic)[other]
            comparable[statistic] = matched & candidate.numeric(statistic) & numeric_there
    with np.errstate(all="ignore"):
        difference = np.where(comparable, ours - theirs, np.nan)
        _exact_differences(candidate, reference, pairing, difference)
        relative = np.abs(difference / theirs * 100.0)
        ratio = np.abs(difference) / (np.abs(np.maximum(ours, theirs)) + _NOT_ZERO)
        large = comparable & (ratio > WARNING_RATIO)
        new_nonfinite: Mask = np.asarray((comparable & ~np.isfinite(ours) & np.isfinite(theirs)).any(axis=0))
        beyond = _beyond_noise(candidate, reference, pairing, ours, theirs, difference, large)
    return StatisticMeasures(
        candidate=ours,
        reference=theirs,
        comparable=comparable,
        difference=difference,
        relative=relative,
        new_nonfinite=new_nonfinite,
        warning=np.asarray(large.any(axis=0)) | new_nonfinite,
        beyond_noise=beyond | new_nonfinite,
    )


def _exact_differences(candidate: Rows, reference: Rows, pairing: RowPairing, difference: Numbers) -> None:
    """Subtract whole numbers that float64 cannot hold as whole numbers."""
    if not candidate.exact and not reference.exact:
        return
    back = {int(partner): row for row, partner in enumerate(pairing.partner.tolist()) if partner >= 0}
    places = set(candidate.exact) | {(statistic, back[row]) for statistic, row in reference.exact if row in back}
    for statistic, row in places:
        partner = int(pairing.partner[row])
        if partner < 0:
            continue
        ours = _whole(candidate, statistic, row)
        theirs = _whole(reference, statistic, partner)
        if ours is not None and theirs is not None:
            try:
                difference[statistic, row] = float(ours - theirs)
            except OverflowError:
                difference[statistic, row] = np.inf if ours > theirs else -np.inf


def _whole(rows: Rows, statistic: int, row: int) -> int | None:
    exact = rows.exact.get((statistic, row))
    if exact is not None:
        return exact
    number = rows.numbers[statistic, row]
    whole = int(rows.kinds[row]) >> 3 * statistic & 7 == WHOLE
    return int(number) if whole or number.is_integer() else None


def _beyond_noise(
    candidate: Rows,
    reference: Rows,
    pairing: RowPairing,
    ours: Numbers,
    theirs: Numbers,
    difference: Numbers,
    large: Mask,
) -> Mask:
    """Which of the ``large`` differences remain when measured by the tensor's scale and its rounding.

    A mean of 1e-10 against 0 is nothing where the elements are of size 1, and a sum that cancels is only as
    good as the rounding of what went into it.
    """
    rows = np.flatnonzero(large.any(axis=0))
    is_beyond = np.zeros(len(candidate), np.bool_)
    if not len(rows):
        return is_beyond
    rms = _rms(candidate)
    rms_there = _rms(reference)
    partner = pairing.partner
    pair_rms = np.fmax(rms[rows], rms_there[partner[rows]])
    extreme = np.nanmax(np.abs(np.concatenate((ours[:2, rows], theirs[:2, rows]))), axis=0, initial=0.0)
    norm = np.fmax(np.abs(ours[3, rows]), np.abs(theirs[3, rows]))
    root = np.sqrt(np.maximum(candidate.elements[rows], 1))
    # What went into a row: the largest scale among the rows of its record, on either side.
    largest = np.fmax(_largest_of_entry(candidate, rms)[rows], _largest_of_entry(reference, rms_there)[partner[rows]])
    rounding = np.maximum(_rounding(candidate)[rows], _rounding(reference)[partner[rows]])
    floor = _ROUNDINGS * rounding * np.nan_to_num(largest, nan=0.0, posinf=0.0)
    tensor = candidate.is_tensor[rows]
    scales = (extreme, extreme, pair_rms, norm)
    floors = (floor, floor, floor, floor * root)
    for statistic in range(4):
        size = np.abs(difference[statistic, rows])
        scale = np.where(np.isfinite(scales[statistic]), scales[statistic], 0.0)
        counts = (size > WARNING_RATIO * scale) & (size > floors[statistic])
        is_beyond[rows] |= large[statistic, rows] & (counts | ~tensor)
    return is_beyond


def _rms(rows: Rows) -> Numbers:
    """Root mean square of the elements, NaN where the norm is not known."""
    rms: Numbers = np.abs(rows.numbers[3]) / np.sqrt(np.maximum(rows.elements, 1))
    rms[~rows.is_tensor] = np.nan
    return rms


def _largest_of_entry(rows: Rows, values: Numbers) -> Numbers:
    """For each row the largest finite value among the rows of its record."""
    finite = np.where(np.isfinite(values), values, 0.0)
    starts = rows.starts
    lengths = np.diff(np.append(starts, len(rows)))
    return np.repeat(np.maximum.reduceat(finite, starts), lengths)


def _rounding(rows: Rows) -> Numbers:
    """The rounding of the coarsest element type in the record of each row; 0 for whole numbers."""
    table = np.array([_rounding_of(word) for word in rows.dtypes])
    return _largest_of_entry(rows, table[rows.dtype])


def _rounding_of(dtype: str) -> float:
    """What one rounding loses at most, of a number's size: half the distance to the next."""
    return epsilon_of(dtype) / 2

"""The strict verdict: every element is judged by what rounding explains at its place.

The reference is computed in double precision from the very numbers that the candidate was given, so what differs is
the candidate's arithmetic. A backward stable algorithm gives the exact result of inputs that are off by a few units of
rounding (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5). How far such inputs move each
element is measured: the reference is computed again with its inputs disturbed by one unit of rounding. An element's
*scale* is the largest of that movement, of one unit in the last place of the result, and, where elements mix, of an
eighth of one at the size of a typical element of the result; its scaled error is its difference in scales.

Beside each element by itself all of them are judged together: rounding has no direction, so a factor or a constant that
all errors have in common is none (:func:`judge_direction`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.compare.number_types import epsilon_of
from msprobe.precheck import element_errors
from msprobe.precheck.element_errors import (
    limits_of_elements,
    scales,
    status_of,
    unlike_specials,
    unlike_taken,
    unlike_whole,
)
from msprobe.precheck.metrics import Array
from msprobe.signed_errors import Result, SignedErrors, judge_signed


@dataclass(frozen=True)
class StrictVerdict:
    """The status, why, and the numbers of the worst element."""

    status: str
    message: str
    scaled: float | None = None
    index: tuple[int, ...] | None = None
    p99: float | None = None


def unit_in_last_place(values: Array, dtype: str) -> Array:
    """The distance from each number to the next of ``dtype``."""
    with np.errstate(all="ignore"):
        return np.asarray(element_errors.unit_in_last_place(values, dtype, np))


def judge_floats(
    bench: Array,
    rounded: Array,
    device: Array,
    dtype: str,
    movement: Array | None,
    elementwise: bool = False,
    taken: Array | None = None,
    taken_units: float = 0.0,
) -> StrictVerdict:
    """Judge one result of a float type.

    ``bench`` is the reference in float64, ``rounded`` the same rounded to ``dtype``, ``device`` the candidate's result;
    both as float64. ``movement`` says how far disturbed inputs move each element; an ``elementwise`` call has no large
    elements whose rounding could reach the small ones. ``taken`` says where the result has numbers of the arguments
    or a constant, which are to be the same but for ``taken_units``.
    """
    unlike = _unlike_specials(bench, rounded, device, dtype, movement, taken)
    if unlike is not None:
        return unlike
    finite = np.isfinite(rounded) & np.isfinite(device)
    if not finite.any():
        return StrictVerdict("pass", "", 0.0)
    b, r, d = bench[finite], rounded[finite], device[finite]
    units, scale = _scales(b, r, dtype, None if movement is None else movement[finite], elementwise)
    errors = np.abs(d - b)
    # Within one unit of the rounded reference nothing better can be asked for.
    scaled = np.where(np.abs(d - r) <= units, 0.0, errors / scale)
    worst = int(np.argmax(scaled))
    largest = float(scaled[worst])
    place = tuple(int(n) for n in np.argwhere(finite)[worst])
    with np.errstate(all="ignore"):
        relative = errors / np.maximum(np.abs(b), units)
    p99 = float(np.quantile(relative, 0.99))
    if taken is not None:
        moved = None if movement is None else movement[finite]
        other = taken[finite] & unlike_taken(r, d, dtype, units, taken_units, moved, np)
        if other.any():
            worst = int(np.argmax(np.where(other, np.abs(d - r), 0.0)))
            place = tuple(int(n) for n in np.argwhere(finite)[worst])
            message = (
                f"{int(other.sum())} of {other.size} elements are not exact copies of input values or the "
                f"constant, though this call only moves or selects them; the worst at {list(place)}: "
                f"{float(d[worst]):.9g} instead of {float(r[worst]):.9g}."
            )
            return StrictVerdict("error", message, float(errors[worst] / scale[worst]), place, p99)
    status = status_of(scaled, errors, b, dtype, elementwise)
    if status == "pass":
        return StrictVerdict("pass", "", largest, place, p99)
    bad = int((scaled > limits_of_elements(dtype, elementwise)[0]).sum())
    message = (
        f"{bad} of {scaled.size} elements are off by more than rounding explains; the worst at {list(place)}: "
        f"{float(d[worst]):.9g} instead of {float(b[worst]):.9g}, "
        f"{largest:.3g} times its scale of {float(scale[worst]):.3g}."
    )
    return StrictVerdict(status, message, largest, place, p99)


def _scales(b: Array, r: Array, dtype: str, movement: Array | None, elementwise: bool) -> tuple[Array, Array]:
    """See :func:`msprobe.precheck.element_errors.scales`."""
    with np.errstate(all="ignore"):
        units, scale = scales(b, r, dtype, movement, elementwise, np)
    return np.asarray(units), np.asarray(scale)


def judge_direction(
    bench: Array,
    rounded: Array,
    device: Array,
    dtype: str,
    movement: Array | None,
    elementwise: bool = False,
    ordinary: Array | None = None,
) -> SignedErrors:
    """Judge whether the errors of a result of a float type go one way (:mod:`msprobe.signed_errors`).

    The arguments are those of :func:`judge_floats`. ``ordinary``: what a kernel of the same type gives that is not in
    question; its own slope is allowed.
    """
    finite = np.isfinite(rounded) & np.isfinite(device) & np.isfinite(bench)
    if ordinary is not None:
        finite &= np.isfinite(ordinary)
    if not finite.any() or not np.max(np.abs(bench[finite])) < 1e150:
        return SignedErrors()
    b, r = np.where(finite, bench, 0.0), np.where(finite, rounded, 0.0)
    units, scale = _scales(b, r, dtype, None if movement is None else np.where(finite, movement, 0.0), elementwise)
    scale = np.where(np.isfinite(scale), scale, np.finfo(np.float64).max ** 0.25)
    with np.errstate(all="ignore"):
        errors = np.where(finite, device - bench, 0.0)
        own = None if ordinary is None else np.where(finite, ordinary - bench, 0.0)
        return judge_signed(Result(b, errors, units, scale, epsilon_of(dtype), own, elementwise))


def _unlike_specials(
    bench: Array, rounded: Array, device: Array, dtype: str, movement: Array | None, taken: Array | None
) -> StrictVerdict | None:
    """A verdict where infinities and NaN are not at the same places."""
    with np.errstate(all="ignore"):
        wrong = unlike_specials(bench, rounded, device, dtype, movement, taken, np)
    if not wrong.any():
        return None
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    theirs, ours = float(device[place]), float(rounded[place])
    where = (
        "only on the device"
        if np.isfinite(ours)
        else "only in the reference"
        if np.isfinite(theirs)
        else "of another kind"
    )
    what = "NaN" if theirs != theirs or (np.isfinite(theirs) and ours != ours) else "infinity"
    count = f"{int(wrong.sum())} such elements of {wrong.size}"
    message = f"{what} {where}: {theirs:g} instead of {ours:g} at {list(place)}, {count}."
    return StrictVerdict("error", message, float("inf"), place)


def judge_close(bench: Array, device: Array, rtol: float, atol: float) -> StrictVerdict:
    """Judge a result of a float type as ``torch.testing.assert_close`` does: NaN equals nothing, an infinity itself."""
    with np.errstate(all="ignore"):
        distance = np.abs(device - bench)
        wrong = ~((device == bench) | (distance <= atol + rtol * np.abs(bench)))
        wrong |= np.isinf(bench) & (device != bench)
    if not wrong.any():
        return StrictVerdict("pass", "")
    distance = np.where(wrong, np.nan_to_num(distance, nan=np.inf), -1.0)
    place = tuple(int(n) for n in np.unravel_index(int(np.argmax(distance)), distance.shape))
    message = (
        f"{int(wrong.sum())} of {wrong.size} elements are off by more than {rtol:g} of the reference and {atol:g}; "
        f"the worst at {list(place)}: {float(device[place]):.9g} instead of {float(bench[place]):.9g}."
    )
    return StrictVerdict("error", message, None, place)


def judge_exact(bench: Array, device: Array, moves: Array | None) -> StrictVerdict:
    """Judge whole numbers and truth values: equal, but for those that a unit of rounding in the inputs changes."""
    unequal = bench != device
    if not unequal.any():
        return StrictVerdict("pass", "")
    wrong = unlike_whole(bench, device, moves)
    if not wrong.any():
        return StrictVerdict("pass", f"{int(unequal.sum())} elements differ where rounding of the inputs decides.")
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    message = (
        f"{int(wrong.sum())} of {wrong.size} elements differ; the first at {list(place)}: "
        f"{_plain(device[place])} instead of {_plain(bench[place])}."
    )
    return StrictVerdict("error", message, float("inf"), place)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value

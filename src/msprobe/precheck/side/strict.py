"""The strict verdict: every element is judged by what rounding explains at its place.

The reference is computed in double precision from the very numbers that the candidate was given, so what differs is
the candidate's arithmetic. A backward stable algorithm gives the exact result of inputs that are off by a few units of
rounding (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5). How far such inputs move each
element is measured: the reference is computed again with its inputs disturbed by one unit of rounding. An element's
*scale* is the largest of that movement, of one unit in the last place of the result, and, where elements mix, of an
eighth of one at the size of a typical element of the result; its scaled error is its difference in scales.

Beside each element by itself all of them are judged together: rounding has no direction, so a factor or a constant that
all errors have in common is none (:func:`judge_direction`).

Arrays are of numpy or of torch, in double precision; ``xp`` is that module.
"""

from __future__ import annotations

import contextlib
import math
import sys
from dataclasses import dataclass
from typing import Any

from msprobe.messages import said
from msprobe.precheck.side.elements import (
    limits_of_elements,
    scales,
    status_of,
    unlike_specials,
    unlike_taken,
    unlike_whole,
)  # fmt: skip
from msprobe.signed_errors import CheckedResult, SignedErrors, judge_signed


@dataclass(frozen=True)
class StrictVerdict:
    """The status, why, and the numbers of the worst element."""

    status: str
    message: str
    scaled: float | None = None
    index: tuple[int, ...] | None = None
    p99: float | None = None


def judge_floats(
    bench: Any,
    rounded: Any,
    device: Any,
    dtype: str,
    movement: Any,
    elementwise: bool = False,
    taken: Any = None,
    taken_units: float = 0.0,
) -> StrictVerdict:
    """Judge one result of a float type.

    ``bench`` is the reference in float64, ``rounded`` the same rounded to ``dtype``, ``device`` the candidate's result;
    both as float64. ``movement`` says how far disturbed inputs move each element; an ``elementwise`` call has no large
    elements whose rounding could reach the small ones. ``taken`` says where the result has numbers of the arguments
    or a constant, which are to be the same but for ``taken_units``.
    """
    xp = _module_of(bench)
    unlike = _unlike_specials(bench, rounded, device, dtype, movement, taken)
    if unlike is not None:
        return unlike
    finite = xp.isfinite(rounded) & xp.isfinite(device)
    if not finite.any():
        return StrictVerdict("pass", "", 0.0)
    b, r, d = bench[finite], rounded[finite], device[finite]
    moved = None if movement is None else movement[finite]
    with _quiet(xp):
        units, scale = scales(b, r, dtype, moved, elementwise, xp)
        errors = abs(d - b)
        # Within one unit of the rounded reference nothing better can be asked for.
        scaled = xp.where(abs(d - r) <= units, xp.zeros_like(b), errors / scale)
        p99 = None
        if hasattr(xp, "errstate"):  # torch has no quantile of many elements
            p99 = float(xp.quantile(errors / xp.maximum(abs(b), units), 0.99))
    worst = int(xp.argmax(scaled))
    largest = float(scaled[worst])
    place = _place(finite, worst, xp)
    if taken is not None:
        other = taken[finite] & unlike_taken(r, d, dtype, units, taken_units, moved, xp)
        if other.any():
            worst = int(xp.argmax(xp.where(other, abs(d - r), xp.zeros_like(b))))
            place = _place(finite, worst, xp)
            message = said(
                "copies-not-exact", int(other.sum()), len(other), list(place), float(d[worst]), float(r[worst])
            )
            return StrictVerdict("error", message, float(errors[worst] / scale[worst]), place, p99)
    status = status_of(scaled, errors, b, dtype, elementwise)
    if status == "pass":
        return StrictVerdict("pass", "", largest, place, p99)
    bad = int((scaled > limits_of_elements(dtype, elementwise)[0]).sum())
    numbers = float(d[worst]), float(b[worst]), largest, float(scale[worst])
    message = said("off-beyond-rounding", bad, len(scaled), list(place), *numbers)
    return StrictVerdict(status, message, largest, place, p99)


def judge_direction(
    bench: Any,
    rounded: Any,
    device: Any,
    dtype: str,
    epsilon: float,
    movement: Any,
    elementwise: bool = False,
    ordinary: Any = None,
) -> SignedErrors:
    """Judge whether the errors of a result of a float type go one way (:mod:`msprobe.signed_errors`).

    The arguments are those of :func:`judge_floats`. ``epsilon``: the distance of 1 to the next number of the type.
    ``ordinary``: what a kernel of the same type gives that is not in question; its own slope is allowed.
    """
    xp = _module_of(bench)
    finite = xp.isfinite(rounded) & xp.isfinite(device) & xp.isfinite(bench)
    if ordinary is not None:
        finite &= xp.isfinite(ordinary)
    if not finite.any() or not float(abs(bench[finite]).max()) < 1e150:
        return SignedErrors()
    none = xp.zeros_like(bench)
    b, r = xp.where(finite, bench, none), xp.where(finite, rounded, none)
    with _quiet(xp):
        units, scale = scales(
            b, r, dtype, None if movement is None else xp.where(finite, movement, none), elementwise, xp
        )
        scale = xp.where(xp.isfinite(scale), scale, none + sys.float_info.max**0.25)
        errors = xp.where(finite, device - bench, none)
        own = None if ordinary is None else xp.where(finite, ordinary - bench, none)
        return judge_signed(CheckedResult(b, errors, units, scale, epsilon, own, elementwise))


def _module_of(array: Any) -> Any:
    """numpy or torch, whose array this is."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def _quiet(xp: Any) -> Any:
    """No warnings of numpy for infinities."""
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else contextlib.nullcontext()


def _place(chosen: Any, number: int, xp: Any) -> tuple[int, ...]:
    """Where the element is that has this number among those that are chosen."""
    return tuple(int(n) for n in xp.argwhere(chosen)[number])


def _unlike_specials(
    bench: Any, rounded: Any, device: Any, dtype: str, movement: Any, taken: Any
) -> StrictVerdict | None:
    """A verdict where infinities and NaN are not at the same places."""
    xp = _module_of(bench)
    with _quiet(xp):
        wrong = unlike_specials(bench, rounded, device, dtype, movement, taken, xp)
    if not wrong.any():
        return None
    place = _place(wrong, 0, xp)
    theirs, ours = float(device[place]), float(rounded[place])
    where = said("of-different-kind")
    if math.isfinite(ours) or math.isfinite(theirs):
        where = said("only-on-device") if math.isfinite(ours) else said("only-in-reference")
    what = "NaN" if theirs != theirs or (math.isfinite(theirs) and ours != ours) else said("an-infinity")
    message = said("special-values-differ", what, where, theirs, ours, list(place), int(wrong.sum()), _count(wrong))
    return StrictVerdict("error", message, float("inf"), place)


def judge_close(bench: Any, device: Any, rtol: float, atol: float) -> StrictVerdict:
    """Judge a result of a float type as ``torch.testing.assert_close`` does: NaN equals nothing, an infinity itself."""
    xp = _module_of(bench)
    with _quiet(xp):
        distance = abs(device - bench)
        wrong = ~((device == bench) | (distance <= atol + rtol * abs(bench)))
        wrong |= xp.isinf(bench) & (device != bench)
    if not wrong.any():
        return StrictVerdict("pass", "")
    place = _place(wrong, int(xp.argmax(xp.nan_to_num(distance[wrong], nan=math.inf))), xp)
    numbers = int(wrong.sum()), _count(wrong), rtol, atol, list(place), float(device[place]), float(bench[place])
    message = said("beyond-tolerance", *numbers)
    return StrictVerdict("error", message, None, place)


def judge_exact(bench: Any, device: Any, moves: Any) -> StrictVerdict:
    """Judge whole numbers and truth values: equal, but for those that a unit of rounding in the inputs changes."""
    xp = _module_of(bench)
    unequal = bench != device
    if not unequal.any():
        return StrictVerdict("pass", "")
    wrong = unlike_whole(bench, device, moves)
    if not wrong.any():
        return StrictVerdict("pass", said("differ-by-rounded-inputs", int(unequal.sum())))
    place = _place(wrong, 0, xp)
    message = said(
        "whole-numbers-differ", int(wrong.sum()), _count(wrong), list(place), device[place].item(), bench[place].item()
    )
    return StrictVerdict("error", message, float("inf"), place)


def _count(values: Any) -> int:
    return math.prod(values.shape)

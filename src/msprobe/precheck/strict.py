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

from msprobe.compare.number_types import LEAST_NORMAL, epsilon_of
from msprobe.precheck.metrics import Array
from msprobe.signed_errors import Result, SignedErrors, judge_signed

#: Scaled errors up to which a result passes, and up to which it is a warning. Healthy kernels of PyTorch's own
#: operator samples stay below the first in float32, float16 and bfloat16 (``bench/precheck``).
PASS_UP_TO = 32.0
WARNING_UP_TO = 128.0
#: The same for floats of 8 bits: they are computed in wider types and rounded once.
FLOAT8_LIMITS = (2.0, 4.0)
#: The same for calls in half types that compute each element by itself: kernels do so in single precision, and round
#: once or a few times. 32 units are a quarter of a number in bfloat16.
HALF_ELEMENTWISE_LIMITS = (4.0, 16.0)
_HALVES = frozenset(("float16", "bfloat16"))

#: Mantissa bits, least exponent and largest number of the float types.
FLOATS: dict[str, tuple[int, int, float]] = {
    "float64": (52, -1022, float(np.finfo(np.float64).max)),
    "float32": (23, -126, float(np.finfo(np.float32).max)),
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, 3.3895313892515355e38),
    "float8_e4m3fn": (3, -6, 448.0),
    "float8_e5m2": (2, -14, 57344.0),
}


# Many devices take numbers below the smallest normal one for zero; for half precision they do not.
_SUBNORMAL = {name: LEAST_NORMAL[name] / PASS_UP_TO for name in ("float32", "bfloat16", "float64")}


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
    mantissa, least, _ = FLOATS.get(dtype, FLOATS["float32"])
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(values)))
    exponent = np.maximum(np.where(np.isfinite(exponent), exponent, least), least)
    return np.asarray(np.exp2(exponent - mantissa))


def limits_of(dtype: str, elementwise: bool) -> tuple[float, float]:
    """The scaled errors up to which a result passes, and up to which it is a warning."""
    if dtype.startswith("float8"):
        return FLOAT8_LIMITS
    return HALF_ELEMENTWISE_LIMITS if elementwise and dtype in _HALVES else (PASS_UP_TO, WARNING_UP_TO)


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
    unlike = _unlike_specials(bench, rounded, device, dtype, movement)
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
        allowed = taken_units * units + (LEAST_NORMAL[dtype] if dtype in _SUBNORMAL else 0.0)
        other = taken[finite] & _are_others(r, d, allowed, units, None if movement is None else movement[finite])
        if other.any():
            worst = int(np.argmax(np.where(other, np.abs(d - r), 0.0)))
            place = tuple(int(n) for n in np.argwhere(finite)[worst])
            message = (
                f"{int(other.sum())} of {other.size} elements are not exact copies of input values or the "
                f"constant, though this call only moves or selects them; the worst at {list(place)}: "
                f"{float(d[worst]):.9g} instead of {float(r[worst]):.9g}."
            )
            return StrictVerdict("error", message, float(errors[worst] / scale[worst]), place, p99)
    most, warned = limits_of(dtype, elementwise)
    if largest <= most:
        return StrictVerdict("pass", "", largest, place, p99)
    status = "Warning" if largest <= warned else "error"
    bad = int((scaled > most).sum())
    message = (
        f"{bad} of {scaled.size} elements are off by more than rounding explains; the worst at {list(place)}: "
        f"{float(d[worst]):.9g} instead of {float(b[worst]):.9g}, "
        f"{largest:.3g} times its scale of {float(scale[worst]):.3g}."
    )
    return StrictVerdict(status, message, largest, place, p99)


def _scales(b: Array, r: Array, dtype: str, movement: Array | None, elementwise: bool) -> tuple[Array, Array]:
    """Of finite elements: one unit in the last place, and their scales."""
    mantissa = FLOATS.get(dtype, FLOATS["float32"])[0]
    units = unit_in_last_place(r, dtype)
    mixes = not elementwise and np.max(np.abs(b)) < 1e150
    typical = float(np.sqrt(np.mean(np.square(b)))) * 2.0**-mantissa / 8 if mixes else 0.0
    scale = np.maximum(np.maximum(units, typical), _SUBNORMAL.get(dtype, 0.0))
    return units, scale if movement is None else np.maximum(scale, movement)


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


def _are_others(r: Array, d: Array, allowed: Array, units: Array, movement: Array | None) -> Array:
    """Where numbers are off by more than is allowed; where the movement is large, rounding chooses which are taken."""
    if movement is not None:
        allowed = np.where(movement > 4 * units, np.maximum(allowed, PASS_UP_TO * movement), allowed)
    return np.asarray(np.abs(d - r) > allowed)


def _unlike_specials(
    bench: Array, rounded: Array, device: Array, dtype: str, movement: Array | None
) -> StrictVerdict | None:
    """A verdict where infinities and NaN are not at the same places."""
    same = (np.isfinite(rounded) & np.isfinite(device)) | (rounded == device) | (np.isnan(rounded) & np.isnan(device))
    if same.all():
        return None
    limit = FLOATS.get(dtype, FLOATS["float32"])[2]
    # At the edge of the type rounding decides whether a result is finite.
    slack = np.maximum(0 if movement is None else movement * PASS_UP_TO, limit * 2.0**-6)
    with np.errstate(all="ignore"):
        at_edge = (
            (np.abs(bench) + slack >= limit)
            & ~np.isnan(device)
            & ~np.isnan(bench)
            & (np.sign(bench) == np.sign(device))
        )
        at_edge &= np.abs(device) >= limit * (1 - 2.0**-3)
    wrong = ~same & ~at_edge
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
    explained = np.zeros_like(unequal) if moves is None else moves & (device >= bench.min()) & (device <= bench.max())
    wrong = unequal & ~explained
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

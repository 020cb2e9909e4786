"""What rounding explains of each element of a result: its scale, its infinities, and numbers that are taken over.

Arrays are of numpy or of torch, in double precision, and ``xp`` is that module: only what both spell alike is used, and
nothing is imported, so that the pre-check and its scripts judge by the same lines.
"""

from __future__ import annotations

from typing import Any

#: Scaled errors up to which a result passes, and up to which it is a warning. Healthy kernels of PyTorch's own
#: operator samples stay below the first in float32, float16 and bfloat16 (``bench/precheck``).
PASS_UP_TO = 32.0
WARNING_UP_TO = 128.0
#: The same for floats of 8 bits: they are computed in wider types and rounded once.
FLOAT8_LIMITS = (2.0, 4.0)
#: The same for calls in half types that compute each element by itself: kernels do so in single precision, and round
#: once or a few times. 32 units are a quarter of a number in bfloat16.
HALF_ELEMENTWISE_LIMITS = (4.0, 16.0)
HALVES = frozenset(("float16", "bfloat16"))

#: Mantissa bits, least exponent and largest number of the float types.
FLOATS: dict[str, tuple[int, int, float]] = {
    "float64": (52, -1022, 1.7976931348623157e308),
    "float32": (23, -126, 3.4028234663852886e38),
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, 3.3895313892515355e38),
    "float8_e4m3fn": (3, -6, 448.0),
    "float8_e5m2": (2, -14, 57344.0),
}
# Many devices take numbers below the smallest normal one for zero; for half precision they do not.
_FLUSHED = frozenset(("float32", "bfloat16", "float64"))
_LARGEST_SQUARED = 1e150
# So many units at the size of a typical element, or of 1, may an element be off that is computed in steps.
_OF_STEPS = 4.0


def format_of(dtype: str) -> tuple[int, int, float]:
    """Mantissa bits, least exponent and largest number of a float type; those of float32 for one that is not known."""
    return FLOATS.get(dtype, FLOATS["float32"])


def least_normal(dtype: str) -> float:
    """The smallest normal number of a type whose smaller ones devices may take for zero; else 0."""
    return 2.0 ** format_of(dtype)[1] if dtype in _FLUSHED else 0.0


def unit_in_last_place(values: Any, dtype: str, xp: Any) -> Any:
    """The distance from each number to the next of ``dtype``."""
    mantissa, least, _ = format_of(dtype)
    exponent = xp.floor(xp.log2(abs(values)))
    exponent = xp.where(xp.isfinite(exponent), exponent, xp.zeros_like(exponent) + least)
    return xp.exp2(exponent.clip(least) - mantissa)


def limits_of_elements(dtype: str, elementwise: bool) -> tuple[float, float]:
    """The scaled errors up to which a result passes, and up to which it is a warning."""
    if dtype.startswith("float8"):
        return FLOAT8_LIMITS
    return HALF_ELEMENTWISE_LIMITS if elementwise and dtype in HALVES else (PASS_UP_TO, WARNING_UP_TO)


def scales(bench: Any, rounded: Any, dtype: str, movement: Any, elementwise: bool, xp: Any) -> tuple[Any, Any]:
    """Of finite elements: one unit in the last place, and their scales: the largest of that, of an eighth of one at the
    size of a typical element where elements mix, and of how far disturbed inputs move the element (``movement``, or
    None).
    """
    units = unit_in_last_place(rounded, dtype, xp)
    mixes = not elementwise and float(abs(bench).max()) < _LARGEST_SQUARED
    typical = float((bench * bench).mean()) ** 0.5 * 2.0 ** -format_of(dtype)[0] / 8 if mixes else 0.0
    scale = units.clip(max(typical, least_normal(dtype) / PASS_UP_TO))
    return units, scale if movement is None else xp.maximum(scale, movement)


def status_of(scaled: Any, errors: Any, bench: Any, dtype: str, elementwise: bool) -> str:
    """``pass``, ``Warning`` or ``error`` of finite elements by their scaled errors and their errors.

    A kernel in a half type that computes each element by itself rounds once, or a few times where it is written in
    steps. Then it has numbers like the 1 of ``1 + erf(x)`` on its way, beside which a small result is lost: what is off
    by no more than such a rounding is a warning, however far it is in units of its own.
    """
    most, warned = limits_of_elements(dtype, elementwise)
    if not bool((scaled > most).any()):
        return "pass"
    far = scaled > warned
    if elementwise and dtype in HALVES:
        size = min(1.0, float((bench * bench).mean()) ** 0.5)
        far &= errors > _OF_STEPS * 2.0 ** -format_of(dtype)[0] * size
    return "error" if bool(far.any()) else "Warning"


def unlike_specials(bench: Any, rounded: Any, device: Any, dtype: str, movement: Any, taken: Any, xp: Any) -> Any:
    """Where infinities and NaN are not at the same places. At the edge of the type rounding decides whether a result is
    finite; an infinity that is moved or written (``taken``, or None) is one.
    """
    same = (xp.isfinite(rounded) & xp.isfinite(device)) | (rounded == device) | (xp.isnan(rounded) & xp.isnan(device))
    limit = format_of(dtype)[2]
    slack = limit * 2.0**-6
    if movement is not None:
        slack = (movement * PASS_UP_TO).clip(slack)
    at_edge = (abs(bench) + slack >= limit) & ~xp.isnan(device) & ~xp.isnan(bench)
    at_edge &= (xp.sign(bench) == xp.sign(device)) & (abs(device) >= limit * (1 - 2.0**-3))
    if taken is not None:
        at_edge &= ~(taken & xp.isinf(bench))
    return ~same & ~at_edge


def unlike_taken(rounded: Any, device: Any, dtype: str, units: Any, taken_units: float, movement: Any, xp: Any) -> Any:
    """Where numbers that are taken over from arguments are off by more than ``taken_units``. Where the movement is
    large, rounding chooses which are taken.
    """
    allowed = taken_units * units + least_normal(dtype)
    if movement is not None:
        allowed = xp.where(movement > 4 * units, xp.maximum(allowed, PASS_UP_TO * movement), allowed)
    return abs(device - rounded) > allowed


def unlike_whole(bench: Any, device: Any, moves: Any) -> Any:
    """Where whole numbers and truth values differ, but for those that a unit of rounding in the inputs changes
    (``moves``, or None) to one of the range of the reference.
    """
    unequal = bench != device
    if moves is None or not bool(unequal.any()):
        return unequal
    return unequal & ~(moves & (device >= bench.min()) & (device <= bench.max()))

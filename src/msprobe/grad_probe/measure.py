"""Numbers and direction of one gradient whose elements are at hand: on the CPU, adjacent, in float32 or float64.

One read by the C extension finds extremes, norm, zeros and NaN; the direction is a second, and what lies in an interval
is mostly known from these two: a bound outside of the extremes divides nothing, and the bound 0 divides what is
positive from what is not.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.capture import native
from msprobe.capture.array_numbers import numbers_of
from msprobe.config.settings import DirectionKind, GradientProbe
from msprobe.grad_probe.rows import NAN_DIRECTION, GradientRow

Array = NDArray[Any]


# What the C extension knows the two types by, by their size: names of types are slow to ask for.
_KINDS = {4: native.KINDS.get("float32"), 8: native.KINDS.get("float64")}
# With more bounds than this a search for each element is faster than a comparison with each bound.
_MOST_COMPARED = 12


@dataclass(frozen=True, slots=True)
class ProbedGradient:
    """Where the elements of a gradient are: ``flat`` shows them (float32 or float64, C order), from ``address`` on.

    ``shape``: of the whole gradient; ``local_shape``: of these elements, where they are a part of it. ``norm``: known
    already, where the framework has computed it in the gradient's own type.
    """

    name: str
    flat: Array
    address: int
    shape: tuple[int, ...]
    local_shape: tuple[int, ...] | None = None
    norm: float | None = None


def measure(gradient: ProbedGradient, probe: GradientProbe) -> tuple[GradientRow, Array | None]:
    """The row of a gradient, and its direction where the level has one: an array of its own."""
    flat = gradient.flat
    count = flat.size
    shape = gradient.shape if gradient.local_shape is None else gradient.local_shape
    numbers = _numbers(flat, gradient.address)
    nans = numbers.get("nan", 0)
    positive = None if probe.grad_level == "L0" else np.greater(flat, 0)
    maximum = minimum = norm = math.nan
    if count and not nans:
        maximum, minimum, norm = _single(numbers["max"]), _single(numbers["min"]), _single(numbers["norm"])
    if gradient.norm is not None:
        norm = gradient.norm
    checksum = ""
    shares: tuple[float, ...] = ()
    zeros = math.nan
    if probe.grad_level == "L0":
        checksum = checksum_of(flat, gradient.address, probe)
    elif probe.grad_level == "L2" and positive is not None:
        shares = _shares(flat, positive, probe.bounds, numbers)
        zeros = numbers["zero"] / count if count else math.nan
    row = GradientRow(
        gradient.name, gradient.shape, maximum, minimum, norm, gradient.local_shape, checksum, shares, zeros
    )
    direction = None if positive is None else direction_of(flat, positive, probe.direction, bool(nans))
    return row, direction if direction is None or probe.direction == "packed" else direction.reshape(shape)


def _numbers(flat: Array, address: int) -> dict[str, Any]:
    if native.numbers is None:
        numbers = numbers_of(flat, frozenset(("max", "min", "norm")))
        if numbers.get("nan"):
            with np.errstate(all="ignore"):
                finite = flat[~np.isnan(flat)]
            numbers["max"] = finite.max().item() if finite.size else -math.inf
            numbers["min"] = finite.min().item() if finite.size else math.inf
        return numbers
    return native.numbers(address, flat.size, _KINDS[flat.itemsize], 0, 0)


def _single(value: float) -> float:
    """As a float32 holds it."""
    return ctypes.c_float(value).value


def checksum_of(flat: Array, address: int, probe: GradientProbe) -> str:
    """The digest of the elements as little-endian float32: CRC-32, or MD5 where that was asked for."""
    if flat.dtype != np.float32:
        with np.errstate(all="ignore"):
            flat = flat.astype(np.float32)
        address = flat.__array_interface__["data"][0]
    if probe.checksum == "md5":
        return hashlib.md5(flat.data, usedforsecurity=False).hexdigest()
    return f"{native.crc32(address, flat.nbytes):08x}" if flat.size else "00000000"


def direction_of(flat: Array, positive: Array, kind: DirectionKind, has_nan: bool) -> Array:
    """Where a gradient points: ``bool`` whether an element is positive; ``ternary`` its sign as int8, 2 for NaN;
    ``packed`` the bool with eight elements in a byte, the first in the highest bit.
    """
    if kind == "bool":
        return positive
    if kind == "packed":
        return np.packbits(positive)
    direction = positive.astype(np.int8)
    direction -= np.less(flat, 0)
    if has_nan:
        direction[np.isnan(flat)] = NAN_DIRECTION
    return direction


def _shares(
    flat: Array, positive: Array, bounds: tuple[int | float, ...], numbers: dict[str, Any]
) -> tuple[float, ...]:
    """Which part of the elements lies in each interval. NaN counts to the last one; without bounds nowhere."""
    count = flat.size
    if not count:
        return (math.nan,) * (len(bounds) + 1)
    nans = numbers["nan"]
    if not bounds:
        return ((count - nans) / count,)
    typed = np.array(bounds, flat.dtype)
    undecided = [bound for bound in typed.tolist() if numbers["min"] <= bound < numbers["max"] and bound != 0]
    if len(undecided) > _MOST_COMPARED:
        counts = np.bincount(np.searchsorted(typed, flat, "left"), minlength=len(bounds) + 1)
        return tuple((counts / count).tolist())
    below = [_count_up_to(flat, positive, bound, numbers) for bound in typed]
    inner = [high - low for low, high in zip([0, *below], below, strict=False)]
    return tuple(part / count for part in (*inner, count - below[-1]))


def _count_up_to(flat: Array, positive: Array, bound: Any, numbers: dict[str, Any]) -> int:
    """How many elements are at most ``bound``, which has their type."""
    if bound >= numbers["max"]:
        return int(flat.size - numbers["nan"])
    if bound < numbers["min"]:
        return 0
    if bound == 0:
        return int(flat.size - numbers["nan"] - np.count_nonzero(positive))
    return int(np.count_nonzero(np.less_equal(flat, bound)))

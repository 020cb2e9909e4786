"""Does what an operator gave on the device agree with what the CPU gives in a wider type?

Limits and order of the questions are those of 8.1.1 (spec of the accuracy checker, 4.13); the cosine and the rule with
0.99, 0.9 and 1 are those of its documentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.messages import said

Array = np.ndarray[Any, Any]

#: Type of the device's result -> (limit of the error balance, limit of the greatest errors).
LIMITS: dict[str, tuple[float, float]] = {
    "float16": (2.0**-10, 2.0**-11),
    "bfloat16": (2.0**-7, 2.0**-8),
    "float32": (2.0**-14, 2.0**-14),
    "float64": (2.0**-14, 2.0**-14),
}


@dataclass(frozen=True)
class ResultJudgement:
    """What was found of one result. Numbers are None where they do not apply; places are those in C order."""

    agrees: bool
    message: str = ""
    balance: float | None = None
    max_abs: float | None = None
    max_abs_place: int | None = None
    max_rel: float | None = None
    max_rel_place: int | None = None
    cosine: float | None = None
    limits: tuple[float, float] | None = None


def judge(device: Array, bench: Array, dtype: str) -> ResultJudgement:
    """``device`` and ``bench``: results as numpy arrays, halves widened. ``dtype``: the type on the device."""
    if device.shape != bench.shape:
        return ResultJudgement(False, said("operator-shape-differs", list(device.shape), list(bench.shape)))
    if device.size == 0:
        return ResultJudgement(True, said("operator-without-elements"))
    limits = LIMITS.get(dtype)
    if limits is None or device.dtype.kind not in "fc":
        return _judge_exact(device, bench)
    if device.dtype.kind == "c":
        device, bench = _parts(device), _parts(bench)
    first, other = device.astype(np.float64).ravel(), bench.astype(np.float64).ravel()
    if not np.isfinite(other).all():
        return _judge_not_finite(first, other, limits)
    if not np.isfinite(first).all():
        place = int(np.flatnonzero(~np.isfinite(first))[0])
        return ResultJudgement(False, said("operator-not-finite-alone", str(first[place]), place), limits=limits)
    return _judge_finite(first, other, limits)


def _judge_finite(first: Array, other: Array, limits: tuple[float, float]) -> ResultJudgement:
    apart, size = np.abs(first - other), np.abs(other)
    scaled = apart / np.maximum(size, 1.0)
    is_large = size >= 1
    balance = float(scaled.mean())
    greatest = int(apart.argmax())
    worst: int | None = None
    max_rel = 0.0
    if is_large.any():
        worst = int(np.where(is_large, scaled, -1.0).argmax())
        max_rel = float(scaled[worst])
    # Of elements below 1 the difference itself counts, of the others that by their size.
    small = float(np.where(is_large, 0.0, apart).max())
    cosine = _cosine(first, other)
    agrees = balance <= limits[0] and small <= limits[1] and max_rel <= limits[1]
    message = "" if agrees else said("operator-differs-by", max(small, max_rel), limits[1])
    return ResultJudgement(agrees, message, balance, float(apart[greatest]), greatest, max_rel, worst, cosine, limits)


def _judge_not_finite(first: Array, other: Array, limits: tuple[float, float]) -> ResultJudgement:
    """NaN and infinities at the same places agree; what is finite is judged by itself."""
    same = np.array_equal(np.isnan(first), np.isnan(other)) and np.array_equal(
        np.where(np.isinf(first), first, 0), np.where(np.isinf(other), other, 0)
    )
    if not same:
        return ResultJudgement(False, said("operator-special-values-elsewhere"), limits=limits)
    finite = np.isfinite(other)
    if not finite.any():
        return ResultJudgement(True, said("operator-not-finite"), limits=limits)
    among = _judge_finite(first[finite], other[finite], limits)
    message = among.message or said("operator-partly-not-finite")
    return ResultJudgement(among.agrees, message, among.balance, among.max_abs, None, among.max_rel, None, among.cosine,
                           limits)  # fmt: skip


def _judge_exact(device: Array, bench: Array) -> ResultJudgement:
    differ = np.flatnonzero((device != bench).ravel())
    if not differ.size:
        return ResultJudgement(True)
    place = int(differ[0])
    return ResultJudgement(False, said("operator-elements-differ", differ.size, device.size, place))


def _cosine(first: Array, other: Array) -> float:
    norms = math.sqrt(float(first @ first)) * math.sqrt(float(other @ other))
    if not norms:
        return 1.0 if not first.any() and not other.any() else 0.0
    return float(first @ other) / norms


def _parts(values: Array) -> Array:
    return np.stack((values.real, values.imag), -1)

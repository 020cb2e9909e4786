"""What is measured of one result: the numbers in the files of the pre-check.

``bench`` is the reference's result, ``device`` the candidate's, both as numpy arrays of one shape; bfloat16 comes as
float32 of the same numbers, and ``dtype`` says what the candidate's was. Formulas: those of mindstudio-probe 8.1.1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.precheck import standards
from msprobe.precheck.standards import Standard, Thresholds, thresholds_of

Array = npt.NDArray[Any]
#: Metric -> number, by the words of this module; :mod:`msprobe.precheck.columns` knows their columns.
Metrics = dict[str, Any]


def relative_errors(bench: Array, device: Array, dtype: str) -> Array:
    """``|device - bench| / (|bench| + eps)`` for each element; eps is 2**-8 for bfloat16, else that of ``bench``."""
    eps = standards.BFLOAT16_RELATIVE_EPS if dtype == "bfloat16" else np.finfo(bench.dtype).eps
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(device - bench) / (np.abs(bench) + eps))


def share_below(errors: Array, limit: float) -> float:
    """The share of elements whose error is below ``limit``."""
    return float(np.mean(errors < limit)) if errors.size else 1.0


def cosine(bench: Array, device: Array) -> float:
    """The cosine of the angle between the flattened results, each divided by its largest element before."""
    b, d = bench.astype(np.float64).ravel(), device.astype(np.float64).ravel()
    with np.errstate(all="ignore"):
        b, d = b / np.max(np.abs(b)), d / np.max(np.abs(d))
        return float(np.dot(b, d) / (np.linalg.norm(b) * np.linalg.norm(d)))


def max_abs_error(bench: Array, device: Array) -> float:
    """The largest difference; NaN where one side has a NaN."""
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(device - bench)))


class Measured:
    """One pair of results, with what several metrics need computed once."""

    def __init__(self, bench: Array, device: Array, dtype: str) -> None:
        self.bench, self.device, self.dtype = bench, device, dtype
        self.limits: Thresholds = thresholds_of(dtype)
        with np.errstate(all="ignore"):
            self.cast = bench.astype(device.dtype)
            self.absolute = np.abs(device - bench)
            self.relative = relative_errors(bench, device, dtype)
            self.finite = np.isfinite(self.cast) & np.isfinite(device)
            self.size = np.abs(bench)

    def small(self, small_value: float) -> tuple[Array, Array]:
        """Which elements are finite and small, and which finite and not small."""
        small = (self.size <= small_value) & self.finite
        return small, self.finite & ~small


def measure(standard: Standard, bench: Array, device: Array, dtype: str) -> Metrics:
    """The metrics of one standard."""
    pair = Measured(bench, device, dtype)
    metrics: Metrics = _FORMULAS[standard](pair)
    return metrics


def _benchmark(pair: Measured) -> Metrics:
    limits = pair.limits
    small, normal = pair.small(limits.small_value)
    left_out = ~pair.finite | small
    with np.errstate(all="ignore"):
        squares = np.where(left_out, 0.0, pair.absolute.astype(np.float64) ** 2)
        total, out = pair.bench.size, int(left_out.sum())
        mean = float(np.mean(squares)) * (total / (total - out + 0.0001) + 0.0001)
        relative = pair.relative[normal]
    return {
        "small_value": _share(pair.absolute > limits.benchmark_atol, small),
        "rmse": math.sqrt(mean),
        "balance": _balance(pair),
        "max_relative": float(np.max(relative)) if relative.size else 0.0,
        "mean_relative": float(np.mean(relative)) if relative.size else 0.0,
    }


def _balance(pair: Measured) -> float:
    with np.errstate(all="ignore"):
        difference = pair.device - pair.cast
    return abs(int((difference > 0).sum()) - int((difference < 0).sum())) / pair.bench.size


def _share(bad: Array, of: Array) -> float:
    count = int(of.sum())
    return float((bad & of).sum() / count) if count else 0.0


def _non_finite_share(pair: Measured, rtol: float) -> float:
    """The share of elements with an infinity or NaN on a side that do not agree, infinities taken for the largest
    number.
    """
    limit = standards.BFLOAT16_MAX if pair.dtype == "bfloat16" else float(np.finfo(pair.device.dtype).max)
    where = ~pair.finite
    if not where.any():
        return 0.0
    with np.errstate(all="ignore"):
        b, d = np.clip(pair.cast[where], -limit, limit), np.clip(pair.device[where], -limit, limit)
        eps = standards.BFLOAT16_RELATIVE_EPS if pair.dtype == "bfloat16" else np.finfo(pair.bench.dtype).eps
        near = np.abs(d - b) / (np.abs(b) + eps) <= rtol
        same = near | (np.isnan(b) & np.isnan(d))
    return float(np.mean(~same))


def _absolute(pair: Measured) -> Metrics:
    limits = pair.limits
    small, normal = pair.small(limits.small_value)
    return {
        "non_finite": _non_finite_share(pair, limits.rtol),
        "relative_share": _share(pair.relative > limits.rtol, normal),
        "absolute_share": _share(pair.absolute > limits.absolute_atol, small),
    }


def _accumulative(pair: Measured) -> Metrics:
    bound = pair.limits.accumulated_bound
    small, normal = pair.small(standards.ACCUMULATED_SMALL_VALUE)
    return {
        "non_finite": _non_finite_share(pair, bound),
        "relative_share": _share(pair.relative > bound, normal),
        "absolute_share": _share(pair.absolute > bound, small),
        "balance": _balance(pair),
    }


def unequal_share(bench: Array, device: Array) -> float:
    """The share of elements that differ; a NaN differs from every number."""
    return float(np.mean(bench != device)) if bench.size else 0.0


def _binary(pair: Measured) -> Metrics:
    return {"unequal": unequal_share(pair.bench, pair.device)}


def ulp_errors(bench: Array, device: Array, dtype: str) -> Array:
    """The difference of each element in units of the last place of ``dtype``, at the size of the reference."""
    limits = thresholds_of(dtype)
    if standards.is_float8(dtype):
        return _float8_ulp_errors(bench, device)
    wide = np.float64 if dtype in ("float32", "float64") else np.float32
    with np.errstate(all="ignore"):
        b, d = bench.astype(wide), device.astype(wide)
        exponent = np.where(b == 0, 0, np.floor(np.log2(np.abs(b))))
        exponent = np.maximum(exponent, limits.ulp_least_exponent)
        return np.asarray(np.abs(np.subtract(d, b)) * np.exp2(-exponent + limits.ulp_mantissa))


def _float8_ulp_errors(bench: Array, device: Array) -> Array:
    """The same for 8-bit floats as 26.2 counts it: digits get fewer with the size of the exponent."""
    with np.errstate(all="ignore"):
        b, d = bench.astype(np.float64), device.astype(np.float64)
        exponent = np.where(b == 0, 0, np.floor(np.log2(np.abs(b))))
        exponent = np.maximum(exponent, standards.FLOAT8_LEAST_EXPONENT)
        mantissa = np.select(
            [np.abs(exponent) <= most for most, _ in standards.FLOAT8_DIGITS],
            [n for _, n in standards.FLOAT8_DIGITS],
            0,
        )
        return np.asarray(np.abs(d - b) * np.exp2(mantissa - exponent))


def _ulp(pair: Measured) -> Metrics:
    errors = ulp_errors(pair.bench, pair.device, pair.dtype)
    with np.errstate(all="ignore"):
        return {
            "ulp_max": float(np.max(errors)),
            "ulp_mean": float(np.mean(errors)),
            "ulp_share": float(np.mean(errors > pair.limits.ulp_count_over)),
        }


def _thousandth(pair: Measured) -> Metrics:
    return {"thousandth": share_below(pair.relative, standards.THOUSANDTH)}


_FORMULAS: dict[Standard, Any] = {
    "benchmark": _benchmark,
    "absolute": _absolute,
    "binary": _binary,
    "ulp": _ulp,
    "thousandth": _thousandth,
    "accumulative": _accumulative,
}

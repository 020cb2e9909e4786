"""When two records of the same call agree: equal structure and values, statistics equal to rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

STATISTICS = ("Max", "Min", "Mean", "Norm")
# Relative to the largest value of the tensor. The published package reduces in the dtype of the tensor; 8.1.1
# takes float64 and integers through float32.
TOLERANCE = {"torch.bfloat16": 2**-7, "torch.float16": 2**-10}
FLOAT32_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Difference:
    """Where two records differ (index path) and what each says."""

    path: str
    reference: Any
    candidate: Any

    def __str__(self) -> str:
        return f"{self.path}: reference {self.reference!r}, ours {self.candidate!r}"


def differences(reference: Any, candidate: Any, path: str = "") -> Iterator[Difference]:
    """What of `reference` is not said equally by `candidate`, which may say more."""
    if isinstance(reference, dict):
        if not isinstance(candidate, dict):
            yield Difference(path, reference, candidate)
        elif "dtype" in reference and "shape" in reference and "Max" in reference:
            yield from tensor_differences(reference, candidate, path)
        else:
            for key, value in reference.items():
                if key in candidate:
                    yield from differences(value, candidate[key], f"{path}.{key}")
                else:
                    yield Difference(f"{path}.{key}", value, "<missing>")
    elif isinstance(reference, list):
        if not isinstance(candidate, list) or len(candidate) != len(reference):
            yield Difference(path, reference, candidate)
        else:
            for index, (left, right) in enumerate(zip(reference, candidate, strict=True)):
                yield from differences(left, right, f"{path}.{index}")
    elif type(reference) is not type(candidate) or not same(reference, candidate):
        yield Difference(path, reference, candidate)


def tensor_differences(reference: dict[str, Any], candidate: dict[str, Any], path: str) -> Iterator[Difference]:
    """Compare two tensor descriptions: identity fields exactly, statistics to rounding."""
    for key, value in reference.items():
        if key in STATISTICS:
            continue
        if key not in candidate or candidate[key] != value:
            yield Difference(f"{path}.{key}", value, candidate.get(key, "<missing>"))
    tolerance = TOLERANCE.get(str(reference["dtype"]), FLOAT32_TOLERANCE) * scale(reference)
    for key in STATISTICS:
        left, right = reference.get(key, "<missing>"), candidate.get(key, "<missing>")
        if left is None and key in ("Mean", "Norm") and reference["dtype"] != "torch.bool":
            continue  # 26.2.0 gives no Mean and Norm of integers and float64
        factor = math.sqrt(max(1, math.prod(reference["shape"]))) if key == "Norm" else 1.0
        if not close(left, right, tolerance * factor):
            yield Difference(f"{path}.{key}", left, right)


def scale(description: dict[str, Any]) -> float:
    """The size of a tensor's values, against which rounding is judged; never 0."""
    largest = 0.0
    for key in ("Max", "Min", "Mean"):
        value = description.get(key)
        if isinstance(value, (int, float)) and math.isfinite(value):
            largest = max(largest, abs(float(value)))
    return max(largest, 1e-7)


def close(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, str) or isinstance(right, str):
        return bool(left == right)
    if not (math.isfinite(left) and math.isfinite(right)):
        return same(left, right)
    return abs(left - right) <= tolerance


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    return bool(left == right)

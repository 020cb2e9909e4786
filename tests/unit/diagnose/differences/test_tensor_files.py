"""How far tensors are apart whose values are in files: the same number for pieces as for the whole, without copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from growth import most_bytes_in

from msprobe.diagnose.differences.tensor_files import dot, of_values
from msprobe.diagnose.differences.words import relation_of_values

SIZES = [1, 5, 8192, 8193, 50_000]


def _pair(size: int, dtype: str) -> tuple[Any, Any]:
    random = np.random.default_rng(size)
    left = (random.standard_normal(size) * 100).astype(dtype)
    right = left.copy()
    right[size // 2] += 1
    return left, right


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("size", SIZES)
def test_the_distance_is_that_of_the_whole(size: int, dtype: str) -> None:
    left, right = _pair(size, dtype)
    wide = np.complex128 if dtype == "c8" else np.float64
    a, b = left.astype(wide), right.astype(wide)
    whole = np.linalg.norm(a - b) / max(np.linalg.norm(a), np.linalg.norm(b))
    assert of_values(left, right) == pytest.approx(whole, rel=1e-12)
    assert dot(a, b) == pytest.approx(np.vdot(a, b).real, rel=1e-12)
    assert of_values(left, left) == 0.0


@pytest.mark.parametrize("place", [0, 8191, 8192, 20_000])
def test_a_value_that_is_not_finite_counts_by_its_place_and_kind(place: int) -> None:
    left, right = _pair(30_000, "f4")
    expected = of_values(left, right)
    left[place] = np.nan
    assert of_values(left, right) == math.inf
    right[place] = np.inf
    assert of_values(left, right) == math.inf
    right[place] = np.nan
    assert of_values(left, right) == pytest.approx(expected, rel=1e-3)


def test_whole_numbers_are_the_same_or_not() -> None:
    assert of_values(np.arange(9), np.arange(9)) == 0.0
    assert of_values(np.arange(9), np.arange(9)[::-1]) == 1.0


def test_the_memory_of_a_distance_does_not_grow_with_the_tensors() -> None:
    pairs = {size: _pair(size, "f4") for size in (1 << 17, 1 << 21)}
    small, large = (most_bytes_in(lambda pair=pair: of_values(*pair)) for pair in pairs.values())
    assert large <= 1.1 * small


def test_another_order_is_seen_also_with_zeros_of_both_signs() -> None:
    values = np.random.default_rng(1).standard_normal(1000)
    values[:500:2] = 0.0
    signed = values.copy()
    signed[signed == 0.0] = -0.0
    assert "another order" in str(relation_of_values(np.random.default_rng(2).permutation(signed), values))
    other = values.copy()
    other[501:] *= 1.5
    assert "another order" not in str(relation_of_values(other, values))

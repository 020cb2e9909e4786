"""How far tensors are apart whose values are in files: the same number for pieces as for the whole, without copies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.growth import most_bytes_in
from support.row_by_row import for_each

from msprobe.diagnose.differences.tensor_files import TensorFiles, dot, flat, values_difference
from msprobe.diagnose.differences.tensor_pass import compare_tensors, digest_of
from msprobe.diagnose.differences.words import relation_of_detail, relation_of_values
from msprobe.messages import said
from msprobe.store.reader import open_dump

SIZES = [1, 5, 8192, 8193, 50_000]


def _pair(size: int, dtype: str) -> tuple[Any, Any]:
    random = np.random.default_rng(size)
    left = (random.standard_normal(size) * 100).astype(dtype)
    right = left.copy()
    right[size // 2] += 1
    return left, right


@for_each("dtype", ["f2", "f4", "f8", "c8"])
@for_each("size", SIZES)
def test_the_distance_is_that_of_the_whole(size: int, dtype: str) -> None:
    left, right = _pair(size, dtype)
    wide = np.complex128 if dtype == "c8" else np.float64
    a, b = left.astype(wide), right.astype(wide)
    whole = np.linalg.norm(a - b) / max(np.linalg.norm(a), np.linalg.norm(b))
    assert values_difference(left, right) == pytest.approx(whole, rel=1e-12)
    assert dot(a, b) == pytest.approx(np.vdot(a, b).real, rel=1e-12)
    assert values_difference(left, left) == 0.0


@pytest.mark.parametrize("place", [0, 8191, 8192, 20_000])
def test_a_value_that_is_not_finite_counts_by_its_place_and_kind(place: int) -> None:
    left, right = _pair(30_000, "f4")
    expected = values_difference(left, right)
    left[place] = np.nan
    assert values_difference(left, right) == math.inf
    right[place] = np.inf
    assert values_difference(left, right) == math.inf
    right[place] = np.nan
    assert values_difference(left, right) == pytest.approx(expected, rel=1e-3)


def test_whole_numbers_are_the_same_or_not() -> None:
    assert values_difference(np.arange(9), np.arange(9)) == 0.0
    assert values_difference(np.arange(9), np.arange(9)[::-1]) == 1.0


def test_the_memory_of_a_distance_does_not_grow_with_the_tensors() -> None:
    pairs = {size: _pair(size, "f4") for size in (1 << 17, 1 << 21)}
    small, large = (most_bytes_in(lambda pair=pair: values_difference(*pair)) for pair in pairs.values())
    assert large <= 1.1 * small


def test_another_order_is_seen_also_with_zeros_of_both_signs() -> None:
    values = np.random.default_rng(1).standard_normal(1000)
    values[:500:2] = 0.0
    signed = values.copy()
    signed[signed == 0.0] = -0.0
    assert str(relation_of_values(np.random.default_rng(2).permutation(signed), values)) == said(
        "same-elements-reordered"
    )
    other = values.copy()
    other[501:] *= 1.5
    assert str(relation_of_values(other, values)) != said("same-elements-reordered")


@for_each("size", [1, 8193, 100_001])
@for_each("dtype", ["f2", "f4", "f8", "c8"])
@for_each("scale", [1.0, 1e-3, 1e-25, 1e25])
def test_one_pass_gives_the_digests_and_the_distance_of_the_whole(size: int, dtype: str, scale: float) -> None:
    left, right = _pair(size, dtype)
    if dtype != "f2":
        left, right = (left * scale).astype(dtype), (right * scale).astype(dtype)
        right[size // 2] = left[size // 2] * np.asarray(1.5, dtype)
    found = compare_tensors(left, right)
    assert found.digests == (digest_of(left), digest_of(right))
    assert found.delta == pytest.approx(values_difference(left, right), rel=1e-5)
    assert compare_tensors(left, left.copy()).delta == 0.0


@pytest.mark.parametrize("place", [0, 65_535, 65_536, 70_000])
def test_one_pass_sees_values_that_are_not_finite(place: int) -> None:
    left, right = _pair(80_000, "f4")
    for mine, theirs in ((np.nan, 1.0), (np.nan, np.inf), (np.nan, np.nan), (np.inf, np.inf), (1.0, 2.0)):
        left[place], right[place] = mine, theirs
        found = compare_tensors(left, right)
        assert found.delta == pytest.approx(values_difference(left, right), rel=1e-5)
        assert found.digests == (digest_of(left), digest_of(right))


def test_elements_at_any_place_of_a_file_are_compared() -> None:
    values, other = _pair(5_000, "f4")
    data = bytearray(b"x" + values.tobytes())
    misplaced = np.ndarray((50, 100), "<f4", data, 1)
    assert not misplaced.flags.aligned
    assert flat(misplaced).flags.aligned
    assert compare_tensors(flat(misplaced), other) == compare_tensors(values, other)


def test_zeros_of_both_signs_are_one_number_in_one_pass() -> None:
    left = np.zeros(100, "f4")
    found = compare_tensors(left, -left)
    assert found.delta == 0.0
    assert found.digests[0] == found.digests[1] == digest_of(left)


def _changed(kind: str, values: Any) -> Any:
    random = np.random.default_rng(3)
    if kind == "rounding":
        return values * np.float32(1 + 2e-7)
    if kind == "few":
        return np.where(np.arange(values.size) % (values.size // 3) == 7, values * 2, values)
    if kind == "zeros":
        return np.where(np.arange(values.size) % 3 == 0, 0, values)
    if kind == "multiple":
        return values * np.float32(3)
    if kind == "order":
        return random.permutation(values)
    if kind == "range":
        return np.where((np.arange(values.size) > 900) & (np.arange(values.size) < 1500), values + 1, values)
    return random.standard_normal(values.size).astype(values.dtype)


@for_each("kind", ["rounding", "few", "zeros", "multiple", "order", "range", "other"])
@for_each("dtype", ["f4", "f8"])
def test_the_words_of_one_pass_are_those_of_the_values(kind: str, dtype: str) -> None:
    right = np.random.default_rng(1).standard_normal(50_000).astype(dtype)
    left = _changed(kind, right).astype(dtype)
    found = compare_tensors(left, right).detail
    assert found is not None
    words = relation_of_detail(found, [50_000])
    # A multiple, and the same elements in another order, are known by the values alone.
    assert (words is None) == (kind in ("multiple", "order"))
    if words is not None:
        assert words == relation_of_values(left, right, [50_000])


def test_the_memory_of_one_pass_does_not_grow_with_the_tensors() -> None:
    pairs = [_pair(size, "f4") for size in (1 << 17, 1 << 21)]
    small, large = (most_bytes_in(lambda pair=pair: compare_tensors(*pair)) for pair in pairs)
    assert large <= 1.1 * small


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("other", ["f4", "f2"])
def test_a_nan_that_the_processor_reports_warns_nobody(other: str) -> None:
    values = np.ones(70_000, "f4")
    values.view("u4")[[3, 69_999]] = 0x7F800001  # a signalling NaN
    assert digest_of(values) == digest_of(values.copy())
    assert compare_tensors(values, values.astype(other)).delta == 0.0
    assert values_difference(values, values.astype(other)) == 0.0


def test_each_pair_of_files_is_measured_by_its_own_values(tmp_path: Path) -> None:
    values: dict[str, dict[str, Any]] = {side: {} for side in ("one", "other")}
    for number, size in enumerate((9, 4000, 200, 4000)):
        for scale, (side, named) in enumerate(values.items()):
            named[f"Tensor.add.{number}.forward.output.0.pt"] = _pair(size + number, "f4")[0] * (number + 1 + scale)
            folder = tmp_path / side / "dump_tensor_data"
            folder.mkdir(parents=True, exist_ok=True)
    for side, named in values.items():
        for name, array in named.items():
            torch.save(torch.from_numpy(array), tmp_path / side / "dump_tensor_data" / name)
        (tmp_path / side / "dump.json").write_text('{"task": "tensor", "data": {}}')
    parts = [open_dump(tmp_path / side).part() for side in values]
    files = TensorFiles(*parts)
    for name, array in values["one"].items():
        found = files.measured(name, name)
        assert found is not None
        assert found.digests == (digest_of(array), digest_of(values["other"][name]))
        assert found.delta == pytest.approx(values_difference(array, values["other"][name]), rel=1e-5)
    # Who asks for values gets some that stay.
    kept = [files.values(name, name) for name in values["one"]]
    for pair, array in zip(kept, values["one"].values(), strict=True):
        assert pair is not None
        assert np.array_equal(pair[0], array)

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.row_by_row import for_each

from msprobe.compare.measures_tensor import _PIECE, TensorMeasures, measure_tensors

EPS = np.finfo(np.float64).eps
FINITE = {"allow_nan": False, "allow_infinity": False, "width": 32, "min_value": -1e6, "max_value": 1e6}


def naive(n: Any, b: Any) -> tuple[float, ...]:
    """The formulas, written out in float64."""
    n, b = n.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    norms = float(np.linalg.norm(n)) * float(np.linalg.norm(b))
    tiny = min(np.linalg.norm(n), np.linalg.norm(b)) <= EPS
    cosine = math.nan if tiny else float(n @ b) / norms
    relative = np.abs((n - b) / np.where(b == 0, EPS, b))
    return (
        cosine,
        float(np.linalg.norm(n - b)),
        float(np.abs(n - b).max()),
        float(relative.max()),
        float((relative < 0.001).mean()),
        float((relative < 0.005).mean()),
    )


@given(
    hnp.arrays(np.float64, st.shared(hnp.array_shapes(max_dims=3), key="shape"), elements=st.floats(**FINITE)),
    hnp.arrays(np.float64, st.shared(hnp.array_shapes(max_dims=3), key="shape"), elements=st.floats(**FINITE)),
)
def test_measures_are_the_formulas(n: Any, b: Any) -> None:
    found, wanted = measure_tensors(n, b), naive(n, b)
    for value, exact in zip(found.values, wanted, strict=True):
        if isinstance(value, float) and not math.isnan(exact):
            assert value == pytest.approx(exact, rel=1e-9, abs=1e-6 if value is found.cosine else 1e-11)


@for_each("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.float16, np.complex64])
def test_pieces_do_not_show(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    n = (rng.standard_normal(2 * _PIECE + 17) * 50 + 100).astype(dtype)
    b = n.copy()
    b[-1] += 3
    found = measure_tensors(n, b)
    assert found.max_absolute == pytest.approx(3.0, rel=1e-2)
    assert found.euclidean == pytest.approx(3.0, rel=1e-2)
    assert found.one_thousandth == pytest.approx(1 - 1 / n.size)
    assert found.cosine == 1.0


def test_rows_and_columns_may_lie_in_any_order_in_memory() -> None:
    n = np.arange(12.0).reshape(3, 4)
    assert measure_tensors(np.asfortranarray(n), n + 1).values == measure_tensors(n, n + 1).values
    assert measure_tensors(n[::2, ::2], n[::2, ::2] + 1).max_absolute == 1.0


@given(hnp.arrays(st.sampled_from([np.float16, np.float32, np.int64, np.bool_]), hnp.array_shapes(min_side=2)))
def test_a_tensor_agrees_with_its_copy(n: Any) -> None:
    assert measure_tensors(n, n.copy()).values == (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)


def test_equal_values_of_other_types_agree() -> None:
    n = np.array([0.0, 1.0, -2.0])
    assert measure_tensors(n.astype(np.float16), n).values == (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    assert measure_tensors(n.astype(np.int8), n).values == (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("n", "b", "distance"),
    [
        ([2**62 + 1], [2**62], 1.0),
        ([-(2**63)], [2**63 - 1], 2.0**64),
        ([-(2**62)], [-(2**62) - 3], 3.0),
    ],
)
def test_whole_numbers_are_subtracted_exactly(n: list[int], b: list[int], distance: float) -> None:
    found = measure_tensors(np.array(n * 2), np.array(b * 2))
    assert found.max_absolute == distance


def test_whole_numbers_of_unlike_signs() -> None:
    found = measure_tensors(np.array([2**63, 1], np.uint64), np.array([-1, 1], np.int64))
    assert found.max_absolute == 2.0**63


def test_complex_numbers_keep_their_imaginary_part() -> None:
    n = np.array([1 + 1j, 1 + 1j])
    found = measure_tensors(n, n.conj())
    assert (found.max_absolute, found.cosine) == (2.0, 0.0)


def test_nan_at_the_same_place_counts_as_zero() -> None:
    n, b = np.array([math.nan, 1.0, math.inf]), np.array([math.nan, 2.0, -math.inf])
    assert measure_tensors(n, b).max_absolute == 1.0
    assert measure_tensors(n, n.copy()).values == (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("b", [[1.0, 1.0, 2.0], [1.0, math.inf, 2.0], [math.nan, math.nan, 2.0]])
def test_nan_at_another_place_is_not_measured(b: list[float]) -> None:
    found = measure_tensors(np.array([1.0, math.nan, 2.0]), np.array(b))
    assert set(found.values) == {"N/A"}
    assert len(found.notes) == 1


def test_nan_in_a_later_piece_is_found() -> None:
    n = np.zeros(_PIECE + 5, np.float32)
    b = n.copy()
    n[0], n[-1] = 1, math.nan
    assert measure_tensors(n, b).cosine == "N/A"


def test_sums_that_overflow_are_no_nan() -> None:
    n = np.full(4, 1e308)
    found = measure_tensors(n, n / 2)
    assert found.max_absolute == 5e307
    assert found.cosine == "Nan"


@for_each(
    ("n", "b", "wanted"),
    [
        (np.zeros(3), np.zeros(3), 1.0),
        (np.zeros(3), np.ones(3), "Nan"),
        (np.ones(3), np.zeros(3), "Nan"),
        (np.ones(1), np.ones(1) * 2, "unsupported"),
        (np.float64(2.5), np.float64(2.0), "unsupported"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "unsupported"),
        (np.ones(3), np.ones(4), "shape unmatched"),
        (np.ones((3, 1)), np.ones((1, 3)), "shape unmatched"),
        (np.float64(1.0), np.ones(4), "shape unmatched"),
        (np.array(["a"]), np.array(["a"]), "unsupported"),
    ],
)
def test_cosine_of_special_tensors(n: Any, b: Any, wanted: float | str) -> None:
    assert measure_tensors(np.asarray(n), np.asarray(b)).cosine == wanted


def test_single_values_have_an_error_and_no_direction() -> None:
    found = measure_tensors(np.array(2.5), np.array(2.0))
    assert found.values == ("unsupported", "unsupported", 0.5, 0.25, "unsupported", "unsupported")


def test_forms_differ_where_the_reference_is_zero() -> None:
    n, b = np.array([12.0, 1.0], np.float32), np.array([0.0, 1.0], np.float32)
    assert measure_tensors(n, b).max_relative == pytest.approx(12 / EPS)
    assert measure_tensors(n, b, "26.2").max_relative == 12 / float(np.finfo(np.float32).eps)
    one = np.ones(1, np.float32)
    assert measure_tensors(one, one * 2).euclidean == 1.0
    assert measure_tensors(one, one * 2, "26.2").euclidean == "unsupported"


def test_half_precision_is_calculated_in_half_precision() -> None:
    n, b = (np.array([1.01, 5.0, 0.0]) * 1.01).astype(np.float16), np.array([1.01, 5.0, 0.0]).astype(np.float16)
    with np.errstate(invalid="ignore"):
        exact = np.abs((n - b) / b)
    assert measure_tensors(n, b).max_relative == round(float(np.nanmax(exact)), 12)


def test_measures_can_be_taken_in_threads() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(50_000).astype(np.float32) for _ in range(16)]

    def measure(array: Any) -> TensorMeasures:
        return measure_tensors(array, array * np.float32(1.5))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(measure, arrays)) == [measure(array) for array in arrays]

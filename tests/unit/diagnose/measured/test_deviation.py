"""How far two rows are apart, and what that is worth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.rows_made import apart as between_rows
from support.rows_made import row_of

_COUNT = 4096
_VALUES = np.random.default_rng(0).standard_normal(_COUNT)
_ERRORS = np.random.default_rng(1).standard_normal(_COUNT)


def test_equal_rows_are_an_exact_nothing() -> None:
    found = between_rows(row_of(_VALUES), row_of(_VALUES), _COUNT)
    assert found.kind == "exact"
    assert found.distance == found.coherent == 0.0
    assert found.norm == pytest.approx(float(np.linalg.norm(_VALUES)))


def test_the_distance_is_an_estimate_good_to_a_factor() -> None:
    found = between_rows(row_of(_VALUES + 1e-3 * _ERRORS), row_of(_VALUES), _COUNT)
    assert found.kind == "estimate"
    assert 0.4 < found.distance / (1e-3 * float(np.linalg.norm(_ERRORS))) < 2.0


def test_a_permutation_is_seen_though_no_sum_changes() -> None:
    assert between_rows(row_of(np.roll(_VALUES, 1)), row_of(_VALUES), _COUNT).distance > 0.5 * np.linalg.norm(_VALUES)


def test_errors_that_know_nothing_of_each_other_hardly_show_in_sums_and_a_scale_does() -> None:
    apart = between_rows(row_of(_VALUES + 1e-3 * _ERRORS), row_of(_VALUES), _COUNT)
    scaled = between_rows(row_of(_VALUES * 1.001), row_of(_VALUES), _COUNT)
    assert apart.coherent < 3.0 * apart.distance / math.sqrt(_COUNT)
    assert scaled.coherent > 10.0 * scaled.distance / math.sqrt(_COUNT)


def test_a_lost_block_shows_in_the_sums() -> None:
    values = _VALUES.copy()
    values[-256:] = 0.0
    lost = between_rows(row_of(values), row_of(_VALUES), _COUNT)
    assert lost.coherent > 5.0 * lost.distance / math.sqrt(_COUNT)


def test_what_no_sum_holds_in_other_places_is_a_lower_bound() -> None:
    values = _VALUES.copy()
    values[3] = math.nan
    assert between_rows(row_of(values), row_of(_VALUES), _COUNT).kind == "lower"
    assert not between_rows(row_of(values), row_of(_VALUES), _COUNT).is_known


def test_without_rows_or_signed_sums_nothing_is_known() -> None:
    unsigned = replace(row_of(_VALUES), signed=(math.nan,) * 8)
    assert between_rows(None, row_of(_VALUES), _COUNT).kind == "unknown"
    assert between_rows(unsigned, row_of(_VALUES), _COUNT).kind == "unknown"


def test_few_large_elements_average_out_less() -> None:
    values = _VALUES.copy()
    values[:512] *= 100.0
    assert between_rows(row_of(values), row_of(_VALUES), _COUNT).alike < _COUNT / 4
    assert between_rows(row_of(_VALUES * 1.1), row_of(_VALUES), _COUNT).alike > 0.9 * _COUNT


def test_nan_in_the_record_is_no_equality() -> None:
    row = row_of(_VALUES)
    assert between_rows(row, row, _COUNT, is_alike=False).kind == "estimate"


@pytest.mark.parametrize("squares", [-1.0, math.inf, 1e300])
def test_rows_that_no_recorder_writes_say_nothing(squares: float) -> None:
    row = replace(row_of(_VALUES), squares=squares)
    assert between_rows(row, row_of(_VALUES), _COUNT).kind == "unknown"
    assert not row.norm <= 1e18

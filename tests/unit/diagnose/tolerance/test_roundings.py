from __future__ import annotations

from pathlib import Path

import pytest
from unit.diagnose.training import Plan, train

from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.roundings import is_same_number, least, roundings_limit
from msprobe.store.reader import open_dump

BFLOAT16, FLOAT32 = 2.0**-7, 2.0**-23


@pytest.mark.parametrize(("unit", "expected"), [(BFLOAT16, BFLOAT16), (2.0**-10, 2.0**-10), (FLOAT32, 64 * FLOAT32)])
def test_a_unit_is_rounding_and_more_of_it_where_types_have_many_digits(unit: float, expected: float) -> None:
    assert least(unit) == expected


def test_a_module_may_move_its_result_further_than_a_call_in_it(tmp_path: Path) -> None:
    timeline = Timeline(open_dump(train(tmp_path / "a", Plan(dtype="bfloat16"))).part())
    module = next(event for event in timeline if event.is_module and len(event.children) > 1)
    call = next(child for child in module.children if child.is_call)
    alone, inside = roundings_limit([call], 0.0), roundings_limit([module], 0.0)
    assert BFLOAT16 <= alone < inside < 16 * BFLOAT16


def test_what_a_run_computes_in_counts_where_a_call_shows_a_finer_type(tmp_path: Path) -> None:
    timeline = Timeline(open_dump(train(tmp_path / "a", Plan())).part())
    call = next(event for event in timeline if event.is_call and event.direction == "forward")
    assert roundings_limit([call], 0.0) < 1e-5
    assert roundings_limit([call], BFLOAT16) >= BFLOAT16


def test_numbers_of_single_precision_are_the_same_if_calculated_otherwise() -> None:
    assert is_same_number(0.1, 0.1 * (1 + 8 * FLOAT32))
    assert not is_same_number(0.1, 0.1 * (1 + 32 * FLOAT32))
    assert not is_same_number(1e-5, 1e-6)

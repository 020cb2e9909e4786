"""Tables that tests go through: no row is left out, and each that fails is named."""

from __future__ import annotations

import pytest
from support.row_by_row import for_each, in_turn


def test_each_row_is_tried_and_all_that_fail_are_named() -> None:
    tried = []

    @for_each("left, right", [(1, 1), (2, 3), (4, 4), (5, 6)])
    def equal(left: int, right: int) -> None:
        tried.append(left)
        assert left == right

    with pytest.raises(pytest.fail.Exception) as failed:
        equal()
    assert tried == [1, 2, 4, 5]
    said = str(failed.value)
    assert said.startswith("2 of 4 rows fail")
    assert "'left': 2" in said
    assert "'left': 5" in said
    assert "'left': 4" not in said


@for_each("factor", [1, 2])
@for_each(("left", "right"), [(1, 2), (3, 4)])
def test_tables_are_combined_and_fixtures_are_given(left: int, right: int, factor: int, tmp_path: object) -> None:
    assert factor * left < factor * right
    assert tmp_path


def test_a_table_without_rows_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        for_each("left", [])


def test_each_way_has_its_turn_and_one_is_always_there() -> None:
    rows = in_turn("abcd", ["x", "y", "z"], always="w", slow="d")
    assert len(rows) == 16
    usual = [row.values for row in rows if not row.marks]
    assert usual == [("a", "x"), ("a", "w"), ("b", "y"), ("b", "w"), ("c", "z"), ("c", "w")]

"""What a record says of results that are arguments of the call, and of whose gradient it has."""

from __future__ import annotations

from typing import Any

from support.row_by_row import for_each

from msprobe.store.handed_through import HANDED_THROUGH, handed_through, has_own_backward

NOTED = {"input.0": "output.0"}


@for_each(
    ("record", "found"),
    [
        ({"msprobe": {"order": 3, HANDED_THROUGH: NOTED}}, NOTED),
        ({"input": [], HANDED_THROUGH: NOTED}, NOTED),
        ({"msprobe": {"order": 3}}, {}),
        ({}, {}),
        (None, {}),
        ([], {}),
        ({HANDED_THROUGH: ["input.0"]}, {}),
        ({"msprobe": None, HANDED_THROUGH: {"input.0": 1}}, {}),
    ],
)
def test_both_directions_and_strange_records_are_read(record: Any, found: dict[str, str]) -> None:
    assert handed_through(record) == found


def test_a_backward_is_the_calls_own_as_long_as_one_result_is_computed() -> None:
    assert not has_own_backward({HANDED_THROUGH: NOTED})
    assert has_own_backward({HANDED_THROUGH: NOTED}, results=2)
    assert has_own_backward({"input": []})

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.config.ranges import LARGEST, RangeError, expand, parse_element

SMALL = st.integers(0, 60)


@for_each(
    ("elements", "numbers"),
    [
        ([], ()),
        ([3, 1, 3], (1, 3)),
        (["4-6", 5, 1], (1, 4, 5, 6)),
        (["4"], (4,)),
        ([" 4 - 6 "], (4, 5, 6)),
        (["6-6"], (6,)),
        (["007-8"], (7, 8)),
        ([0, LARGEST], (0, LARGEST)),
    ],
)
def test_lists_of_numbers_and_ranges_expand_sorted_and_without_repetition(elements, numbers):
    assert expand(map(parse_element, elements)) == numbers


@for_each(
    ("element", "reason"),
    [
        (1.5, "not a fraction"),
        (True, "not a boolean"),
        ([1], "not a list"),
        (None, "not null"),
        (-1, f"between 0 and {LARGEST}"),
        (LARGEST + 1, f"between 0 and {LARGEST}"),
        (f"0-{LARGEST + 1}", f"between 0 and {LARGEST}"),
        ("1-" + "9" * 10_000, f"between 0 and {LARGEST}"),
        ("6-4", "left number must not be greater"),
        ("a-b", "two numbers with one hyphen"),
        ("1-2-3", "two numbers with one hyphen"),
        ("-1", "two numbers with one hyphen"),
        ("1-", "two numbers with one hyphen"),
        ("", "two numbers with one hyphen"),
        ("1.5", "two numbers with one hyphen"),
        ("٣", "two numbers with one hyphen"),
    ],
)
def test_other_elements_are_refused_with_the_reason(element, reason):
    with pytest.raises(RangeError, match=reason):
        parse_element(element)


@given(st.lists(st.tuples(SMALL, SMALL).map(sorted).map(tuple)))
def test_expanding_intervals_is_the_sorted_union_of_their_numbers(intervals):
    assert expand(intervals) == tuple(sorted({n for low, high in intervals for n in range(low, high + 1)}))


@given(SMALL, SMALL)
def test_numbers_and_texts_mean_the_same(low, extent):
    assert parse_element(low) == parse_element(str(low)) == (low, low)
    assert parse_element(f"{low}-{low + extent}") == (low, low + extent)


def test_many_overlapping_ranges_cost_no_more_than_their_union():
    started = time.process_time()
    assert len(expand(map(parse_element, [f"0-{LARGEST}"] * 20_000))) == LARGEST + 1
    assert time.process_time() - started < 5

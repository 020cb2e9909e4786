"""A set of step numbers that takes little room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msprobe.capture.step_numbers import StepNumbers


def of(numbers: list[int] | range) -> StepNumbers:
    found = StepNumbers()
    for number in numbers:
        found.add(number)
    return found


@given(st.lists(st.integers(-3, 30)))
def test_it_is_a_set(numbers: list[int]) -> None:
    found = of(numbers)
    assert sorted(found) == sorted(set(numbers))
    assert len(found) == len(set(numbers))
    assert all((number in found) == (number in numbers) for number in range(-4, 32))


def test_evenly_spaced_numbers_are_one_stretch() -> None:
    for numbers in (range(1000), range(5, 1000, 7)):
        assert of(numbers)._stretches == [numbers]


def test_numbers_from_further_back_once_more() -> None:
    found = of([*range(100), *range(50, 120)])
    assert found._stretches == [range(120)]

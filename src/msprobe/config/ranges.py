"""The range syntax of ``rank`` and ``step``: whole numbers and texts such as ``"4-6"``."""

from __future__ import annotations

import re
from collections.abc import Iterable

LARGEST = 1_000_000
MOST_ELEMENTS = 1_000_000

_ONE = re.compile(r"\s*(\d+)\s*", re.ASCII)
_TWO = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*", re.ASCII)

Interval = tuple[int, int]


class RangeError(ValueError):
    """The text says what is wrong with one element, or the list; the caller knows the field and the value."""


def parse_element(element: object) -> Interval:
    """One element as an interval, ends included: ``4`` and ``"4"`` are (4, 4). Raises RangeError."""
    if isinstance(element, bool) or not isinstance(element, (int, str)):
        raise RangeError(f"an element must be a whole number or a text, not {_kind(element)}")
    if isinstance(element, int):
        low = high = element
    elif single := _ONE.fullmatch(element):
        low = high = _number(single[1])
    elif double := _TWO.fullmatch(element):
        low, high = _number(double[1]), _number(double[2])
    else:
        raise RangeError('a text must be a number or two numbers with one hyphen, such as "4" or "4-6"')
    if not (0 <= low <= LARGEST and 0 <= high <= LARGEST):
        raise RangeError(f"numbers must be between 0 and {LARGEST}")
    if low > high:
        raise RangeError("the left number must not be greater than the right one")
    return low, high


def expand(intervals: Iterable[Interval]) -> tuple[int, ...]:
    """All numbers of the intervals, each once, ascending. Costs no more than the result is long."""
    numbers: list[int] = []
    following = 0
    for low, high in sorted(intervals):
        numbers.extend(range(max(low, following), high + 1))
        following = max(following, high + 1)
    return tuple(numbers)


def parse_ranges(elements: object) -> tuple[int, ...]:
    """The numbers of a whole list; None is the empty list, which means all. Raises RangeError."""
    if elements is None:
        return ()
    if not isinstance(elements, list):
        raise RangeError(f"must be a list, not {_kind(elements)}")
    if len(elements) > MOST_ELEMENTS:
        raise RangeError(f"the list has {len(elements)} elements; the limit is {MOST_ELEMENTS}")
    return expand(parse_element(element) for element in elements)


def _number(digits: str) -> int:
    # Python refuses to convert endless digits; anything of that length is out of bounds anyway.
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) <= len(str(LARGEST)) else LARGEST + 1


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a fraction",
    str: "a text",
    list: "a list",
    dict: "an object",
}

"""The range syntax of ``rank`` and ``step``: whole numbers and texts such as ``"4-6"``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msprobe.messages import said

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
        raise RangeError(said("range-element-of-kind", _kind(element)))
    if isinstance(element, int):
        low = high = element
    elif single := _ONE.fullmatch(element):
        low = high = _number(single[1])
    elif double := _TWO.fullmatch(element):
        low, high = _number(double[1]), _number(double[2])
    else:
        raise RangeError(said("range-text-wrong"))
    if not (0 <= low <= LARGEST and 0 <= high <= LARGEST):
        raise RangeError(said("range-numbers-between", LARGEST))
    if low > high:
        raise RangeError(said("range-left-greater"))
    return low, high


def expand(intervals: Iterable[Interval]) -> tuple[int, ...]:
    """All numbers of the intervals, each once, ascending. Costs no more than the result is long."""
    numbers: list[int] = []
    following = 0
    for low, high in sorted(intervals):
        numbers.extend(range(max(low, following), high + 1))
        following = max(following, high + 1)
    return tuple(numbers)


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

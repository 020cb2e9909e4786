"""Statistics as they stand in a description: from the numbers of a kernel to text, by the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msprobe.capture.native import HAS_INF, HAS_NAN, in_one_line
from msprobe.statistics_table import KEYS, Numbers, choose, needed

SEPARATOR = b","
_COUNTED = ((b"nan", "nan"), (b"inf", "inf"), (b"zero", "zero"))


class Rendered(NamedTuple):
    """``text``: the statistics. ``counts``: of NaN, infinity and zero, where there are any. ``answer``: HAS_NAN |
    HAS_INF, or -1 where that is not known.
    """

    text: bytes
    counts: bytes
    answer: int


class StatisticsText:
    """Writes the statistics that are asked for, all the usual ones if ``names`` is empty."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.chosen = choose(names)
        self.is_usual = not names
        self.needs = needed(self.chosen)
        self._rows: list[tuple[bytes, Callable[[Numbers], Any]]] = [
            (b'"%s":' % statistic.key.encode(), statistic.of) for statistic in self.chosen
        ]
        self.nulls = SEPARATOR.join(head + b"null" for head, _ in self._rows)

    def values(self, numbers: Numbers) -> dict[str, Any]:
        """The statistics by their keys."""
        return {statistic.key: statistic.of(numbers) for statistic in self.chosen}

    def render(self, numbers: Numbers) -> Rendered:
        """The text of what a kernel has computed. No numbers at all: the elements could not be read."""
        if not numbers.get("count"):
            return Rendered(self.nulls, b"", answer_of(numbers))
        text = SEPARATOR.join([head + _number(of(numbers)) for head, of in self._rows])
        answer = answer_of(numbers)
        if numbers.get("single"):
            return Rendered(text, b"", answer)
        counts = SEPARATOR.join([b'"%s":%d' % (key, numbers[name]) for key, name in _COUNTED if numbers.get(name)])
        return Rendered(text, counts, answer)


def answer_of(numbers: Numbers) -> int:
    """HAS_NAN | HAS_INF; -1 where the elements could not be read."""
    if "count" not in numbers:
        return -1
    return (HAS_NAN if numbers.get("nan") else 0) | (HAS_INF if numbers.get("inf") else 0)


def statistics_in(text: bytes) -> dict[str, Any]:
    """The statistics in the text of a description, by their keys."""
    numbers = json.loads(text)
    return {key: numbers[key] for key in KEYS if key in numbers}


def _number(value: Any) -> bytes:
    if type(value) is float and value - value == 0:
        return repr(value).encode()
    return in_one_line(value)

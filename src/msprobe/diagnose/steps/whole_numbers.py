"""Whole numbers that become floating-point numbers of a type that cannot hold them: positions above 256 in bfloat16.

They are rounded to their neighbours, so that several positions get one angle, and nothing fails. It is reported only
where a dump proves it: the largest or the smallest number came out as another one, or the numbers were counted, so that
those which the type lacks are among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import is_floating, is_integer, numbers, numel
from msprobe.diagnose.differences.words import dtype_word
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance import units
from msprobe.messages import said

_MOST_CALLS = 20


@dataclass(frozen=True)
class RoundedNumbers:
    """A call that rounds whole numbers. ``given``: they; None where the call made them itself. ``limit``: every whole
    number up to it is one of the type.
    """

    event: Event
    given: dict[str, Any] | None
    result: dict[str, Any]
    limit: float

    @property
    def text(self) -> str:
        """What it does, in words."""
        largest = _largest(self.given if self.given is not None else self.result)
        of = said("of-value", dtype_word(self.given)) if self.given is not None else ""
        return said("whole-numbers-rounded", self.event.name, dtype_word(self.result), of, largest, self.limit)


def rounded_numbers(timeline: Timeline, makers: Producers) -> Iterator[RoundedNumbers]:
    """The forward calls that round whole numbers, in order."""
    for event in timeline:
        if event.direction == "forward" and event.parts.kind == "api":
            rounded = _rounded(event, makers)
            if rounded is not None:
                yield rounded


def _rounded(event: Event, makers: Producers) -> RoundedNumbers | None:
    result = next((leaf for _, leaf in event.outputs() if is_floating(leaf)), None)
    if result is None or not units.is_coarse(result):
        return None
    word, limit = operation(event.stem), units.whole_numbers_up_to(result)
    if word == "arange":
        counted = _largest(result) > limit and numel(result) > limit
        return RoundedNumbers(event, None, result, limit) if counted else None
    if word not in operators.CASTS | operators.PROMOTES:
        return None
    for _, leaf in event.inputs():
        if not is_tensor(leaf) or not is_integer(leaf) or not _largest(leaf) > limit:
            continue
        if (word in operators.CASTS and _is_changed(leaf, result)) or _is_counted(event, leaf, makers):
            return RoundedNumbers(event, leaf, result, limit)
    return None


def _largest(leaf: dict[str, Any]) -> float:
    """The size of the largest element; 0 where it is not known."""
    statistics = numbers(leaf)
    sizes = [abs(extreme) for extreme in statistics[:2] if math.isfinite(extreme)] if statistics is not None else []
    return max(sizes, default=0.0)


def _is_changed(given: dict[str, Any], result: dict[str, Any]) -> bool:
    """True if the largest or the smallest number came out as another one."""
    left, right = numbers(given), numbers(result)
    if left is None or right is None or not all(map(math.isfinite, right[:2])):
        return False
    return left[:2] != right[:2]


def _is_counted(event: Event, leaf: dict[str, Any], makers: Producers) -> bool:
    """True if these numbers were counted, by a call whose result is moved alone, or shifted."""
    for _ in range(_MOST_CALLS):
        maker = makers.of(leaf, event)
        if maker is None or operation(maker.stem) in operators.COUNTS:
            return maker is not None
        given = [leaf_given for _, leaf_given in maker.inputs() if is_tensor(leaf_given) and is_integer(leaf_given)]
        if not given or operation(maker.stem) not in operators.MOVES | operators.SHIFTS | operators.CASTS:
            return False
        event, leaf = maker, given[0]
    return False

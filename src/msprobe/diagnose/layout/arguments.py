"""Numbers and words that calls of a module are given on one side and not on the other.

Between layouts single calls are not compared, and what another argument does may be less than the sums of other parts
differ by. The argument stands in both dumps all the same, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import described
from msprobe.diagnose.layout.sides import LayoutSide
from msprobe.diagnose.steps.argument_names import argument_name
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.messages import joined, said

#: Their arguments say how something is stored, how large it is, or where it lies.
_QUIET = operators.MOVES | operators.CASTS | operators.IDLE
#: Whole numbers are sizes and places, which another layout has others of; truth values say how, not what.
_COMPARED_TYPES = ("float", "str")
#: By module and function: the values that its calls are given, by argument.
_Given = dict[tuple[str, str], dict[str, dict[str, None]]]


def other_arguments(candidate: LayoutSide, reference: LayoutSide) -> list[str]:
    """What the calls of a function in a module are given in no pass of the other side, in words; in order."""
    mine, theirs = _given(candidate), _given(reference)
    lines: list[str] = []
    for key, arguments in mine.items():
        others = theirs.get(key, {})
        for name, values in arguments.items():
            if name in others and not values.keys() & others[name].keys():
                module, function = key
                there = _in_words(others[name])
                lines.append(said("argument-differs-in-layout", function, module, name, _in_words(values), there))
    return lines


def _given(side: LayoutSide) -> _Given:
    given: _Given = {}
    for rank, timeline in side.timelines.items():
        for event in timeline:
            if event.direction != "forward" or event.parts.kind != "api" or event.module is None:
                continue
            if operation(event.stem) in _QUIET:
                continue
            own = given.setdefault((side.name(event.module, rank), event.stem), {})
            for name, leaf in _plain(event):
                own.setdefault(name, {})[described(leaf)] = None
    return given


def _plain(event: Event) -> Iterator[tuple[str, Any]]:
    for slot, leaf in event.inputs():
        if isinstance(leaf, dict) and not is_tensor(leaf) and leaf.get("type") in _COMPARED_TYPES:
            yield argument_name(event, slot), leaf


def _in_words(values: dict[str, None]) -> str:
    return joined(" or ", values)

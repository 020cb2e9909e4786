"""Which calls of a dump are checked, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msprobe.messages import said, text_of
from msprobe.precheck.arguments import UnreadableArgumentError
from msprobe.precheck.requests import Requests, api_name

#: Calls whose results are memory that nobody has written, or a copy between devices.
SKIP_ALWAYS = frozenset(
    "to empty empty_like empty_strided new_empty new_empty_strided empty_with_format empty_permuted".split()
)
#: The type of a call -> the message that says why it is not checked.
_SKIP_PREFIXES = {
    "Distributed": "collectives-need-ranks",
    "NPUDistributed": "collectives-need-ranks",
    "MindSpeed": "mindspeed-needed",
}


@dataclass(frozen=True)
class Selection:
    """White and black list: names of APIs without type and number. Black wins; an empty white list allows all."""

    white: frozenset[str] = frozenset()
    black: frozenset[str] = frozenset()

    def refuse(self, key: str, prefixes: Iterable[str] = _SKIP_PREFIXES) -> str:
        """Why a call is not checked; empty if it is."""
        prefix = key.partition(".")[0]
        if prefix in prefixes:
            return said(_SKIP_PREFIXES.get(prefix, "prefix-not-checked"))
        try:
            name = api_name(key).name
        except UnreadableArgumentError as problem:
            return text_of(problem)
        if name in self.black:
            return said("in-black-list", name)
        if name in SKIP_ALWAYS:
            return said("never-checked", name)
        if self.white and name not in self.white:
            return said("not-in-white-list", name)
        return ""


def without_repeated(requests: Requests, keys: Iterable[str]) -> list[str]:
    """The first of all calls that are the same test: same API, types, shapes, strides and plain arguments."""
    seen = set()
    kept = []
    for key in keys:
        try:
            form = requests.call(key).form
        except UnreadableArgumentError:
            form = key
        if form not in seen:
            seen.add(form)
            kept.append(key)
    return kept

"""Which calls of a dump are checked, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msprobe.precheck.arguments import UnreadableArgumentError
from msprobe.precheck.requests import Requests, api_name

#: Calls whose results are memory that nobody has written, or a copy between devices.
SKIP_ALWAYS = frozenset(
    "to empty empty_like empty_strided new_empty new_empty_strided empty_with_format empty_permuted".split()
)
_SKIP_PREFIXES = {
    "Distributed": "collectives need other ranks",
    "NPUDistributed": "collectives need other ranks",
    "MindSpeed": "functions of MindSpeed need its package",
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
            return f"{_SKIP_PREFIXES.get(prefix, 'not checked')}."
        try:
            name = api_name(key).name
        except UnreadableArgumentError as problem:
            return f"{problem}."
        if name in self.black:
            return f"{name} is in black_list."
        if name in SKIP_ALWAYS:
            return f"{name} is never checked: what it gives is not computed."
        if self.white and name not in self.white:
            return f"{name} is not in white_list."
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

"""The names in ``scope`` and ``list``: which names can end a scope, and what a list item matches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from msprobe.foreign.patterns import PatternError, compile_pattern
from msprobe.messages import said

EntryKind = Literal["api", "module"]

_MODULE = re.compile(r"(?:Cell|Module)\..*\.(?:forward|backward)\.\d+", re.ASCII)
_API = re.compile(r"(?!(?:Cell|Module)\.)[A-Za-z_][\w.]*\..+\.\d+\.(?:forward|backward)", re.ASCII)
_NAME_REGEX = re.compile(r"name-regex\((.*)\)", re.DOTALL)

API_EXAMPLE = '"Functional.relu.0.forward"'
MODULE_EXAMPLE = '"Module.block.Linear.forward.0"'


def entry_kind(name: str) -> EntryKind | None:
    """Whether ``name`` is the full name of an API entry or of a module entry; None if it is neither."""
    if _MODULE.fullmatch(name):
        return "module"
    if _API.fullmatch(name):
        return "api"
    return None


def scope_kinds(level: str) -> tuple[EntryKind, ...]:
    """The kinds of entries that exist at a level and so can be the ends of a scope."""
    if level == "L0":
        return ("module",)
    if level == "L1":
        return ("api",)
    return ("api", "module")


@dataclass(frozen=True)
class ListPattern:
    """One item of ``list`` or ``tensor_list``.

    A plain text matches every entry whose name contains it, ``name-regex(...)`` every entry in whose name the
    regular expression is found. Case counts.
    """

    text: str
    regex: re.Pattern[str] | None = None

    def matches(self, name: str) -> bool:
        """True if the entry of this name is meant."""
        return self.text in name if self.regex is None else self.regex.search(name) is not None


def compile_list_item(item: str) -> ListPattern:
    """The pattern of one item. Raises ValueError with reason and place if its regular expression is bad."""
    wrapped = _NAME_REGEX.fullmatch(item)
    if wrapped is None:
        return ListPattern(item)
    try:
        return ListPattern(item, compile_pattern(wrapped[1], item).compiled)
    except PatternError as refused:
        problem = refused.__cause__
        if problem is None:
            raise ValueError(refused.reason) from refused
        column = getattr(problem, "pos", None)
        where = "" if column is None else said("inside-brackets", column + 1)
        reason = getattr(problem, "msg", None) or str(problem)
        raise ValueError(said("bad-regular-expression", reason, where)) from problem


def compile_list(items: Iterable[str]) -> tuple[ListPattern, ...]:
    """The patterns of all items, in their order. Raises ValueError as :func:`compile_list_item` does."""
    return tuple(compile_list_item(item) for item in items)

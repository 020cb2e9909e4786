"""Attributes that are replaced while recording, and put back exactly as they were.

Several hundred of them are replaced at each start, so a replacement is made once and kept.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

_MISSING: Any = object()


class Replacement:
    """One attribute of a module or class, and what takes its place."""

    __slots__ = ("holder", "in_place", "name", "new", "own")

    def __init__(self, holder: Any, name: str, new: Any) -> None:
        self.holder = holder
        self.name = name
        self.new = new
        # What the holder itself had under the name; _MISSING if it inherits it.
        self.own: Any = _MISSING
        self.in_place = False

    def put(self) -> None:
        """Replace the attribute."""
        self.own = vars(self.holder).get(self.name, _MISSING)
        setattr(self.holder, self.name, self.new)
        self.in_place = True

    def below(self, inherited: Any) -> Any:
        """What the holder itself had under the name when the attribute was replaced, or what it inherits."""
        return inherited if self.own is _MISSING else self.own

    def take_off(self) -> None:
        """Put the original back; what somebody else has put there since stays."""
        if not self.in_place:
            return
        self.in_place = False
        if vars(self.holder).get(self.name, _MISSING) is not self.new:
            return
        if self.own is _MISSING:
            delattr(self.holder, self.name)
        else:
            setattr(self.holder, self.name, self.own)


class ExecutorWatch:
    """What notices something by one replacement, which this MindSpore may have no place for."""

    _replacement: Replacement | None = None

    def attach(self) -> None:
        """Begin to watch."""
        if self._replacement is not None:
            self._replacement.put()

    def detach(self) -> None:
        """Leave what was replaced as it was."""
        if self._replacement is not None:
            self._replacement.take_off()


class Patches:
    """Replacements that are put in place and taken off together."""

    def __init__(self) -> None:
        self._all: list[Replacement] = []
        self.attached = False

    def add(self, holder: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Replace the function ``holder.name`` by ``make(function)`` while attached; False if there is none.

        Static and class methods stay what they are.
        """
        stored = inspect.getattr_static(holder, name, _MISSING)
        if stored is _MISSING:
            return False
        if isinstance(stored, (staticmethod, classmethod)):
            new = type(stored)(make(stored.__func__))
        elif callable(stored):
            new = make(stored)
        else:
            return False
        self.add_replacement(Replacement(holder, name, new))
        return True

    def add_replacement(self, replacement: Replacement) -> None:
        """Put this in place with the others."""
        self._all.append(replacement)
        if self.attached:
            replacement.put()

    def remove(self, holder: Any, name: str) -> bool:
        """Replace this attribute no more; False if it was not replaced."""
        for replacement in self._all:
            if replacement.holder is holder and replacement.name == name:
                replacement.take_off()
                self._all.remove(replacement)
                return True
        return False

    def attach(self) -> None:
        """Put all replacements in place."""
        if not self.attached:
            self.attached = True
            for replacement in self._all:
                with contextlib.suppress(AttributeError, TypeError):
                    replacement.put()

    def detach(self) -> None:
        """Put the originals back."""
        if self.attached:
            self.attached = False
            for replacement in reversed(self._all):
                replacement.take_off()

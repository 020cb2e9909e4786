"""Attributes of torch that are replaced while recording, and put back exactly as they were.

Few things need this: what the function mode cannot see (``Function.apply``, the reflected operators), and the
marks for clipping. Everything else is seen without replacing anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """Replaced attributes, restored in reverse order."""

    def __init__(self) -> None:
        self._wanted: list[tuple[Any, str, Callable[[Any], Any]]] = []
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        # By place among the wanted: what was replaced last time, and by what.
        self._made: dict[int, tuple[Any, Any]] = {}

    def add(self, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``holder.name`` by ``make(original)`` when attached; nothing happens if it does not exist."""
        self._wanted.append((holder, name, make))

    def attach(self) -> None:
        """Put all replacements in place."""
        if self._replaced:
            return
        for place, (holder, name, make) in enumerate(self._wanted):
            original = getattr(holder, name, _MISSING)
            if original is _MISSING:
                continue
            own = vars(holder).get(name, _MISSING)
            known, replacement = self._made.get(place, (_MISSING, None))
            if known is not original:
                replacement = make(original)
                self._made[place] = original, replacement
            setattr(holder, name, replacement)
            self._replaced.append((holder, name, own, replacement))

    def detach(self) -> None:
        """Put the originals back. What somebody else has replaced since stays as it is."""
        replaced, self._replaced = self._replaced, []
        for holder, name, own, replacement in reversed(replaced):
            current = vars(holder).get(name, _MISSING)
            if current is not replacement and getattr(current, "__func__", current) is not getattr(
                replacement, "__func__", replacement
            ):
                continue
            if own is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, own)


def in_front(original: Callable[..., Any], first: Callable[[], None]) -> Callable[..., Any]:
    """A function that does ``first`` and then what ``original`` does."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        first()
        return original(*args, **kwargs)

    return replacement

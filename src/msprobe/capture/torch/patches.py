"""Attributes of torch that are replaced while recording, and put back exactly as they were.

Few things need this: what the function mode cannot see (``Function.apply``, the reflected operators), and the
marks for clipping. Everything else is seen without replacing anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class _Replacement:
    """One replaced attribute: what the holder had itself before (or nothing), and what it has now."""

    __slots__ = ("is_wanted", "own", "replacement")

    def __init__(self, own: Any, replacement: Any) -> None:
        self.own = own
        self.replacement = replacement
        self.is_wanted = True


# By holder and name, what lies over what. Who is not the last to have replaced an attribute can only mark its own: that
# goes with the last one that lies over it.
_layers: dict[tuple[int, str], list[_Replacement]] = {}


class Patches:
    """Replaced attributes, restored in reverse order."""

    def __init__(self) -> None:
        self._wanted: list[tuple[Any, str, Callable[[Any], Any]]] = []
        self._replaced: list[tuple[Any, str, _Replacement]] = []
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
            layer = _Replacement(own, replacement)
            _layers.setdefault((id(holder), name), []).append(layer)
            self._replaced.append((holder, name, layer))

    def detach(self) -> None:
        """Put the originals back. What somebody else has replaced since stays as it is."""
        replaced, self._replaced = self._replaced, []
        for holder, name, layer in reversed(replaced):
            layer.is_wanted = False
            layers = _layers.get((id(holder), name), [])
            while layers and not layers[-1].is_wanted:
                _take_off(holder, name, layers.pop())
            if not layers:
                _layers.pop((id(holder), name), None)


def _take_off(holder: Any, name: str, layer: _Replacement) -> None:
    current = vars(holder).get(name, _MISSING)
    replacement = layer.replacement
    if current is not replacement and getattr(current, "__func__", current) is not getattr(
        replacement, "__func__", replacement
    ):
        return
    if layer.own is _MISSING:
        delattr(holder, name)
    else:
        setattr(holder, name, layer.own)

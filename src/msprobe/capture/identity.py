"""Collections of objects of the user's, which are distinguished by what they are alone: their ``==`` and ``hash`` may
be overridden, raise, or be switched off.

Nothing is kept alive. What is gone is in no collection any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, overload

from msprobe.guard import attempt

_Value = TypeVar("_Value")
_Default = TypeVar("_Default")


def _let_go(entries: dict[int, tuple[weakref.ref[Any], Any]], number: int, reference: weakref.ref[Any]) -> None:
    """An object is gone: its entry goes, unless another object has its number by now."""
    entry = entries.get(number)
    if entry is not None and entry[0] is reference:
        del entries[number]


class IdentityMap(Generic[_Value]):
    """Values of objects, as long as these live."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], _Value]] = {}

    def __setitem__(self, key: Any, value: _Value) -> None:
        known = self._entries.get(id(key))
        if known is not None and known[0]() is key:
            self._entries[id(key)] = known[0], value
            return
        number = id(key)
        self._entries[number] = weakref.ref(key, partial(attempt, _let_go, self._entries, number)), value  # type: ignore[call-arg]

    def __contains__(self, key: Any) -> bool:
        known = self._entries.get(id(key))
        return known is not None and known[0]() is key

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    @overload
    def get(self, key: Any) -> _Value | None: ...

    @overload
    def get(self, key: Any, default: _Default) -> _Value | _Default: ...

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        known = self._entries.get(id(key))
        return known[1] if known is not None and known[0]() is key else default

    @overload
    def pop(self, key: Any) -> _Value | None: ...

    @overload
    def pop(self, key: Any, default: _Default) -> _Value | _Default: ...

    def pop(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``, which has none from now on, or ``default``."""
        value = self.get(key, default)
        self._entries.pop(id(key), None)
        return value

    def setdefault(self, key: Any, value: _Value) -> _Value:
        """The value of ``key``, which is ``value`` if it had none."""
        if key not in self:
            self[key] = value
        return self.get(key, value)

    def keys(self) -> list[Any]:
        """The objects that are alive."""
        alive = [reference() for reference, _ in list(self._entries.values())]
        return [key for key in alive if key is not None]

    def values(self) -> list[_Value]:
        """What is kept of them."""
        return [value for _, value in list(self._entries.values())]

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()


class IdentitySet:
    """Objects, as long as they live."""

    def __init__(self, members: Iterable[Any] = ()) -> None:
        self._members: IdentityMap[None] = IdentityMap()
        self.update(members)

    def add(self, member: Any) -> None:
        """From now on it is one of these."""
        self._members[member] = None

    def update(self, members: Iterable[Any]) -> None:
        """From now on they are."""
        for member in members:
            self._members[member] = None

    def discard(self, member: Any) -> None:
        """It is none of these."""
        if member in self._members:
            self._members.pop(member)

    def __contains__(self, member: Any) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members.keys())

    def __len__(self) -> int:
        return len(self._members)

    def clear(self) -> None:
        """There are none."""
        self._members.clear()

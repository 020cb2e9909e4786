"""A bounded memory of what takes long to make and much room to keep, for several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class _Entry(Generic[T]):
    """One thing: made by the first who asks, while the others wait. ``users``: how many look at it now."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: T | None = None
    size: int = 0
    users: int = 0
    is_made: bool = False


class RecentlyUsed(Generic[T]):
    """Keeps what was asked for last, up to a sum of sizes; what goes is closed when nobody looks at it any more."""

    def __init__(self, most: int, size_of: Callable[[T], int], close: Callable[[T], None]) -> None:
        self._most = most
        self._size_of = size_of
        self._close = close
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._leaving: list[_Entry[T]] = []

    @contextmanager
    def get(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """The thing of this key, made now if it is not there; it stays open inside the block."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            entry.users += 1
        try:
            with entry.lock:
                if not entry.is_made:
                    entry.value = make()
                    entry.size = self._size_of(entry.value)
                    entry.is_made = True
            self._shrink()
            assert entry.value is not None
            yield entry.value
        finally:
            self._leave(key, entry)

    def forget(self, key: Hashable) -> None:
        """Let go of one thing."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._leaving.append(entry)
        self._close_left()

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            self._leaving += self._entries.values()
            self._entries.clear()
        self._close_left()

    def _shrink(self) -> None:
        with self._lock:
            whole = sum(entry.size for entry in self._entries.values())
            for key, entry in list(self._entries.items()):
                # The largest of all may be larger than the limit: it has to be shown all the same.
                if whole <= self._most or len(self._entries) == 1:
                    break
                if entry.is_made and not entry.users:
                    whole -= entry.size
                    self._leaving.append(self._entries.pop(key))
        self._close_left()

    def _leave(self, key: Hashable, entry: _Entry[T]) -> None:
        with self._lock:
            entry.users -= 1
            if not entry.is_made and not entry.users and self._entries.get(key) is entry:
                del self._entries[key]  # making it failed: the next who asks tries again
        self._close_left()

    def _close_left(self) -> None:
        with self._lock:
            done = [entry for entry in self._leaving if not entry.users]
            self._leaving = [entry for entry in self._leaving if entry.users]
        for entry in done:
            if entry.is_made and entry.value is not None:
                self._close(entry.value)
                entry.value = None

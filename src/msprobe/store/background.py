"""What a training hands over to a thread of its own, so that it waits neither for a disk nor for a connection.

What waits is bounded in bytes: who puts more waits for room. A forked child takes nothing over: what waits there, and
the thread, are the parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class Background(Generic[Item]):
    """A thread that is given items in their order.

    ``work`` runs in it, from the first item on, and goes through an iterator of them; an item is done when the next one
    is asked for, or when ``work`` ends. ``most``: so many bytes may wait; a single item may have more. ``idle``:
    seconds, and the item that is given where none came for so long.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Iterator[Item]], None],
        most: int,
        idle: tuple[float, Item] | None = None,
    ) -> None:
        self._name = name
        self._work = work
        self._most = most
        self._idle = idle
        self._begin()
        _live.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        #: True once nothing more is taken: it was closed or dropped, or this is a fork of its process.
        self.is_closed = False

    def put(self, item: Item, nbytes: int, patience: float | None = None) -> bool:
        """Hand over an item. False if there is no room for ``patience`` seconds (None: waits for it), or if nothing is
        taken any more.
        """
        with self._changed:
            if not self.is_closed and self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: self.is_closed or self._has_room(nbytes), patience)
            if self.is_closed or not self._has_room(nbytes):
                return False
            self._waiting.append((item, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()
            return True

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until all items are done; False if that took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._bytes and not self._waiting, seconds)

    def close(self, seconds: float | None = None) -> bool:
        """Take nothing more, and wait for the end of the thread, which does what waits; False if that took longer."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        if self._thread is None or self.is_this_thread():
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_this_thread(self) -> bool:
        """Whether the thread asks this itself: it must not wait for its own work."""
        return self._thread is threading.current_thread()

    def drop(self) -> None:
        """Take nothing more, and let go of what waits."""
        with self._changed:
            self.is_closed = True
            self._bytes -= sum(nbytes for _, nbytes in self._waiting)
            self._waiting.clear()
            self._changed.notify_all()

    def _has_room(self, nbytes: int) -> bool:
        return not self._bytes or self._bytes + nbytes <= self._most

    def _run(self) -> None:
        try:
            self._work(self._items())
        finally:
            self.drop()

    def _items(self) -> Iterator[Item]:
        seconds = None if self._idle is None else self._idle[0]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self.is_closed, seconds)
                if self._waiting:
                    item, nbytes = self._waiting.popleft()
                elif self.is_closed or self._idle is None:
                    return
                else:
                    item, nbytes = self._idle[1], 0
            try:
                yield item
            finally:
                del item
                with self._changed:
                    self._bytes -= nbytes
                    self._changed.notify_all()

    def _leave_to_parent(self) -> None:
        self._begin()
        self.is_closed = True


_live: weakref.WeakSet[Background[Any]] = weakref.WeakSet()


def _forked() -> None:
    for writer in list(_live):
        writer._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

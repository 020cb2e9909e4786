"""What each thread of the program is in the middle of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class RunningPass(Protocol):
    """A module's forward pass that is running: its entry, and the module."""

    entry: str
    module: Any


class ThreadState(threading.local):
    """What one thread is in the middle of."""

    def __init__(self, passes: dict[int, list[RunningPass]]) -> None:
        # Of all threads, by their number (which is given again when a thread is gone).
        self._passes = passes
        self.modules: list[RunningPass] = []
        passes[threading.get_ident()] = self.modules
        self.region: str | None = None
        # Above zero: what runs now is not recorded (our own work, or the inside of a recorded unit).
        self.muted = 0

    def forget_passes(self) -> None:
        """No thread runs a module that is watched: no end is seen of what a thread has begun."""
        for passes in list(self._passes.values()):
            passes.clear()

    def mute_more(self, more: int) -> int:
        """What runs from now on is muted so many times more, or less; ``more``."""
        self.muted += more
        return more

    def enter_region(self, region: str | None) -> str | None:
        """What runs from now on belongs to ``region``; the region in which it was."""
        before, self.region = self.region, region
        return before

    @contextmanager
    def mute(self) -> Iterator[None]:
        """What runs in this block is not recorded."""
        self.muted += 1
        try:
            yield
        finally:
            self.muted -= 1

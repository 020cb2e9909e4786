"""``enable_dataloader``: each batch that a DataLoader hands out begins a new step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch.utils import data as _data  # noqa: F401 - what is looked up is there

from msprobe.capture.torch import private
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt


class LoaderSteps:
    """Calls ``end`` before and ``begin`` after every ``next()`` of any DataLoader in this thread.

    The first ``next()`` has nothing to end; when a loader is exhausted, the last step ends and none begins.
    The loaders that are found in other threads (prefetching wrappers) do not count.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.begin = begin
        self.end = end
        # A step is running: a batch was handed out and the next one not yet asked for.
        self.inside = False
        self._thread = threading.get_ident()
        self._nested = False
        self._patches = Patches()
        if private.has("data loaders"):
            self._patches.add(private.iterator_of_loaders(), "__next__", self._counted)

    def attach(self) -> None:
        """Begin to watch the loaders."""
        self._patches.attach()

    def detach(self) -> None:
        """Leave nothing behind."""
        self._patches.detach()

    def _counted(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def __next__(iterator: Any) -> Any:
            counts = attempt(self._asks)
            try:
                batch = original(iterator)
            finally:
                if counts:
                    self._nested = False
            if counts:
                attempt(self._gives)
            return batch

        return __next__

    def _asks(self) -> bool:
        """The program asks for a batch. False where that begins no step."""
        # A data set may read from a loader of its own.
        if self._nested or threading.get_ident() != self._thread:
            return False
        self._nested = True
        if self.inside:
            self.inside = False
            attempt(self.end)
        return True

    def _gives(self) -> None:
        self.inside = True
        self.begin()

"""Steps that come while others are checked: they are put on the disk meanwhile, so that no training waits."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from msprobe import log
from msprobe.messages import said
from msprobe.precheck.online.spool import ReceivedStep

#: While the disk has less room than this, nothing is taken from the ranks until a step has been checked.
LEAST_FREE_BYTES = 2 << 30


class Arriving:
    """Takes ``steps`` in a thread of its own, and gives them in their order. ``folder``: the disk that they are put on.

    What taking them raises is raised where they are given.
    """

    def __init__(self, steps: Iterator[ReceivedStep], folder: Path) -> None:
        self._steps = steps
        self._folder = folder
        self._queue: queue.Queue[ReceivedStep | Exception | None] = queue.Queue()
        threading.Thread(target=self._take, daemon=True, name="msprobe-arriving").start()

    @property
    def waiting(self) -> int:
        """How many are there and have not been given."""
        return self._queue.qsize()

    def __iter__(self) -> Iterator[ReceivedStep]:
        while (arrived := self._queue.get()) is not None:
            if isinstance(arrived, Exception):
                raise arrived
            yield arrived

    def _take(self) -> None:
        try:
            for step in self._steps:
                self._queue.put(step)
                self._wait_for_room()
        except Exception as problem:
            self._queue.put(problem)
        self._queue.put(None)

    def _wait_for_room(self) -> None:
        is_logged = False
        while self.waiting and shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES:
            if not is_logged:
                is_logged = True
                log.warning(said("online-disk-nearly-full", self._folder, self.waiting))
            time.sleep(0.2)

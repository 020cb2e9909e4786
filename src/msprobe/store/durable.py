"""Files that are to survive a loss of power are waited for by a thread, not by the training."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable

# Waiting for the disk this often is enough. What comes sooner reaches the disk when the system writes it,
# within half a minute as a rule; that files are whole after a kill is not in question.
_SECONDS_BETWEEN = 1.0

_Job = tuple[list[str], Callable[[], None]]


class _Syncer:
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._last = -math.inf
        self._ending = False

    def submit(self, paths: list[str], then: Callable[[], None]) -> None:
        with self._lock:
            now = time.monotonic()
            wait = now - self._last >= _SECONDS_BETWEEN
            if wait and not self._ending:
                self._last = now
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="msprobe-sync", daemon=True)
                    self._thread.start()
                self._jobs.put((paths, then))
                return
        if wait:
            _sync(paths)
        _call(then)

    def drain(self, ending: bool) -> None:
        with self._lock:
            self._ending = self._ending or ending
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            paths, then = job
            _sync(paths)
            _call(then)


_syncer = _Syncer()


def after_sync(paths: Iterable[str], then: Callable[[], None]) -> None:
    """Call ``then`` once ``paths`` are on the disk: in a thread, or at once if the last wait is a moment ago.

    Errors of the system are passed over.
    """
    _syncer.submit(list(paths), then)


def drain() -> None:
    """Wait until all that was submitted is done."""
    _syncer.drain(ending=False)


def forget_after_fork() -> None:
    """In a child: the thread and its work are the parent's."""
    global _syncer
    _syncer = _Syncer()


def _drain_at_exit() -> None:
    _syncer.drain(ending=True)


def _sync(paths: list[str]) -> None:
    for path in [*paths, *{os.path.dirname(path) for path in paths}]:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _call(then: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        then()


atexit.register(_drain_at_exit)

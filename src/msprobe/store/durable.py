"""Files that are to survive a loss of power are waited for by a thread, not by the training."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

# With more than this many waiting, the disk cannot follow. The training goes on: the files then reach the
# disk when the system writes them, within half a minute as a rule; that they are whole after a kill is not in
# question.
_MOST_WAITING = 32

_Job = tuple[list[Path], Callable[[], None]]


class _Syncer:
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ending = False

    def submit(self, paths: list[Path], then: Callable[[], None]) -> None:
        with self._lock:
            inline = self._ending
            if not inline:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="msprobe-sync", daemon=True)
                    self._thread.start()
                self._jobs.put((paths, then))
        if inline:
            _finish(paths, then, wait=True)

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
            _finish(*job, wait=self._jobs.qsize() <= _MOST_WAITING)


_syncer = _Syncer()


def after_sync(paths: Iterable[Path], then: Callable[[], None]) -> None:
    """Call ``then`` once ``paths`` are on the disk, from a thread, in the order of the calls; errors are
    passed over.
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


def _finish(paths: list[Path], then: Callable[[], None], wait: bool) -> None:
    if wait:
        for path in [*paths, *{path.parent for path in paths}]:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
    with contextlib.suppress(OSError):
        then()


atexit.register(_drain_at_exit)

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

from msprobe import log
from msprobe.messages import said

# Waiting for the disk this often is enough. What comes sooner reaches the disk when the system writes it,
# within half a minute as a rule; that files are whole after a kill is not in question.
_SECONDS_BETWEEN = 1.0
# How long the thread waits for the next work before it looks what was left lying; longer than that, so that
# what a step leaves without giving the thread work is looked at all the same.
_SECONDS_IDLE = 2.0

_Job = tuple[list[str], Callable[[], None]]
# Called with the least age in seconds of what is to go; says in how many seconds to come again, or None.
_Tidy = Callable[[float], "float | None"]

_tidiers: list[_Tidy] = []


class _Syncer:
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._last = -math.inf
        self._busy = False
        self._ending = False

    def submit(self, paths: list[str], then: Callable[[], None]) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN or self._ending:
            with self._lock:
                if not self._ending and not self._busy:
                    if self._thread is None:
                        self._thread = threading.Thread(target=self._run, name="msprobe-sync", daemon=True)
                        self._thread.start()
                    self._last = now
                    self._busy = True
                    self._jobs.put((paths, then))
                    return
            if self._ending:
                _sync(paths)
        _call(then)

    def drain(self, ending: bool) -> None:
        with self._lock:
            self._ending = self._ending or ending
            thread, self._thread = self._thread, None
            self._last = -math.inf
            if thread is not None:
                self._jobs.put(None)
        if thread is not None:
            thread.join()
        for tidy in _tidiers:
            tidy(0.0)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            # What waits for the disk is done at once from here on.
            self._ending = True
            self._busy = False
            log.once("msprobe-sync", "error", said("files-not-waited-for", type(error).__name__, error))

    def _work(self) -> None:
        wait: float | None = _SECONDS_IDLE
        while True:
            try:
                job = self._jobs.get(timeout=wait)
            except queue.Empty:
                again = [seconds for tidy in _tidiers if (seconds := tidy(_SECONDS_IDLE)) is not None]
                wait = max(0.1, min(again)) if again else None
                continue
            if job is None:
                return
            paths, then = job
            _sync(paths)
            _call(then)
            self._busy = False
            wait = _SECONDS_IDLE


_syncer = _Syncer()


def after_sync(paths: Iterable[str], then: Callable[[], None]) -> None:
    """Call ``then`` once ``paths`` are on the disk: in a thread, or at once if the last wait is a moment ago or
    still goes on.

    Errors of the system are passed over.
    """
    _syncer.submit(list(paths), then)


def when_idle(tidy: _Tidy) -> None:
    """Let the thread call ``tidy`` when it has had nothing to do for two seconds, and at the end.

    ``tidy`` is given the age in seconds from which things are to go, and returns in how many seconds the next will
    be that old, or None if nothing is left.
    """
    _tidiers.append(tidy)


def drain() -> None:
    """Wait until all that was submitted is done, and tidy up."""
    _syncer.drain(ending=False)


def forget_after_fork() -> None:
    """In a child: the thread and its work are the parent's."""
    global _syncer
    _syncer = _Syncer()


def _drain_at_exit() -> None:
    try:
        _syncer.drain(ending=True)
    except Exception as error:
        log.error(said("files-perhaps-not-on-disk", type(error).__name__, error))


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

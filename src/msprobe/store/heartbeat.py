"""A sign of life that other machines see: the time of a journal is set every few seconds while its process lives.

No machine can ask another one for a process, and locks on a shared disk are often known to one machine only. Who finds
a journal there watches it: for a time that three signs fit into, by the clock of the watcher alone, since the clocks of
machines differ.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from msprobe import log
from msprobe.messages import said
from msprobe.store.processes import Owner

SECONDS = 5.0
_WATCHED_SECONDS = 3 * SECONDS
_SECONDS_BETWEEN_LOOKS = 0.5
# What failed keeps its journal; a training on a full disk leaves many.
_MOST_KEPT = 64
# Who lives is believed to live for so long: a training meets the same owner in every step.
_BELIEVED_SECONDS = 600.0


class _Heart:
    def __init__(self) -> None:
        self._paths: dict[str, None] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(self, path: str) -> None:
        with self._lock:
            self._paths[path] = None
            while len(self._paths) > _MOST_KEPT:
                del self._paths[next(iter(self._paths))]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="msprobe-heartbeat", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(SECONDS)
            with self._lock:
                paths = list(self._paths)
            gone = [path for path in paths if not _touch(path)]
            with self._lock:
                for path in gone:
                    self._paths.pop(path, None)
                if not self._paths:
                    self._thread = None
                    return


_heart = _Heart()
# Of owners of other machines: when it turned out that they live; None for those that do not.
_seen: dict[Owner, float | None] = {}


def keep(path: str) -> None:
    """Touch this file every few seconds from now on, until it is gone or the process ends."""
    _heart.keep(path)


def is_alive(owner: Owner, path: str | os.PathLike[str]) -> bool:
    """Whether the owner of the journal at ``path`` touches it. Waits for a sign, once for each owner."""
    if owner in _seen:
        since = _seen[owner]
        if since is None or time.monotonic() - since < _BELIEVED_SECONDS:
            return since is not None
    lives = _changes(owner, path)
    _seen[owner] = time.monotonic() if lives else None
    return lives


def forget_after_fork() -> None:
    """In a child: the journals are the parent's."""
    global _heart
    _heart = _Heart()


def _changes(owner: Owner, path: str | os.PathLike[str]) -> bool:
    before = state(path)
    log.info(said("folder-of-running-process", os.path.dirname(path), owner.pid, owner.host, _WATCHED_SECONDS))
    until = time.monotonic() + _WATCHED_SECONDS
    while time.monotonic() < until:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        # One that is gone was finished by its owner.
        if state(path) != before:
            return True
    return False


def state(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """The time and size of the file, as its server has them: opening asks it, a look at the name may not."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            return status.st_mtime_ns, status.st_size
        finally:
            os.close(descriptor)
    return None


def _touch(path: str) -> bool:
    """False if the file is gone."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        pass  # a disk that is away for a moment
    return True

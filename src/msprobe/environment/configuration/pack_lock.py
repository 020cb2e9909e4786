"""One writer at a time: a lock beside a file that is replaced, and when this process began."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import lru_cache

from msprobe import log
from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.paths import FILE_MODE

_MOST_SECONDS = 60.0
_LOADED_NS = time.time_ns()


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Be the only writer of the file for a while; no more than a minute is waited for others.

    The lock is on a hidden file beside it, which is removed: the file itself is replaced by each writer. Raises
    PathError, OSError.
    """
    beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.lock"[-255:])
    descriptor = _acquire(beside, path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        os.close(descriptor)


def _acquire(beside: str, path: str) -> int:
    end = time.monotonic() + _MOST_SECONDS
    while True:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), FILE_MODE)
        if _try(descriptor) and _is_still(beside, descriptor):
            return descriptor
        os.close(descriptor)
        if time.monotonic() > end:
            raise PathError(said("pack-locked", path))
        time.sleep(0.01)


def _is_still(beside: str, descriptor: int) -> bool:
    """False if whoever had the lock removed the file meanwhile: then this lock is on nothing."""
    try:
        return os.path.samestat(os.stat(beside), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _try(descriptor: int) -> bool:
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError) as problem:
        log.once("pack lock", "warning", said("packs-cannot-be-locked", problem))
    return True


def process_start_ns() -> int:
    """When this process began, in nanoseconds since 1970; where the system does not say, when this was loaded."""
    return _start_of(os.getpid())


@lru_cache(maxsize=1)
def _start_of(_process: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.time_ns() - int(age * 1e9)
    return _LOADED_NS

"""Which process writes in which folder: never two in one.

The owner of a folder is written in a lock file there while it writes, and at the end of its finished
``dump.json`` afterwards, so that a second process of the same job, which comes later, does not take the
folder either. An owner is a process number, a host and the moment the process started: a number that was
given to a new process does not count.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe import log
from msprobe.errors import PathError
from msprobe.paths import FILE_MODE, FOLDER_MODE, make_folder
from msprobe.store import durable, layout

# A lock from another host cannot be asked whether its owner lives; one this old is taken for a remnant.
_FOREIGN_LOCK_SECONDS = 24 * 3600.0
# A lock is empty for the moment between its creation and its writing.
_EMPTY_LOCK_SECONDS = 5.0
_TAIL_BYTES = 4096
_OWNER_IN_TAIL = re.compile(rb'"process": (\{[^{}]*\})')

# Folders this process has locked, with the number of writers in each.
_held: dict[str, int] = {}
_held_lock = threading.Lock()


@dataclass(frozen=True)
class Owner:
    """A process: its number, its host, and its start in clock ticks since boot (0 where not known)."""

    pid: int
    host: str
    started: int

    def as_dict(self) -> dict[str, int | str]:
        return {"pid": self.pid, "host": self.host, "started": self.started}


def this_process() -> Owner:
    return _owner_of(os.getpid())


@functools.lru_cache(maxsize=4)
def _owner_of(pid: int) -> Owner:
    return Owner(pid, socket.gethostname(), _start_ticks(pid) or 0)


def claim(wanted: Path, existing: layout.Existing) -> Path:
    """Make ``wanted`` this process's own folder and return it; if another living process has it, ``proc{pid}`` beside.

    The folder is created where it is missing, locked, and freed of old files as ``existing`` says. A lock whose owner
    is dead is taken over. Raises PathError.
    """
    if os.path.abspath(wanted) in _held:
        durable.drain()  # a step in this folder that was just finished gives it back
    for folder in (wanted, layout.process_folder(wanted.parent)):
        other = _take(folder, existing)
        if other is None:
            return folder
        log.once(
            ("folder of another process", wanted.name),
            "warning",
            f'folder "{wanted}" belongs to process {other.pid} on {other.host}, which still runs; process '
            f'{os.getpid()} writes to "{layout.process_folder(wanted.parent).name}" beside it. '
            "If these are ranks of one job, set RANK or call start() after init_process_group().",
        )
    raise PathError(f'folder "{folder}" belongs to another process; choose another dump_path.')


def release(folder: Path) -> None:
    """Give ``folder`` back; the lock goes when the last writer of this process has given it back."""
    key = os.path.abspath(folder)
    with _held_lock:
        left = _held.get(key, 0) - 1
        if left > 0:
            _held[key] = left
            return
        _held.pop(key, None)
    with contextlib.suppress(OSError):
        os.unlink(folder / layout.LOCK_FILE)


def forget_after_fork() -> None:
    """In a child: the locks are the parent's."""
    global _held_lock
    _held_lock = threading.Lock()
    _held.clear()


def _take(folder: Path, existing: layout.Existing) -> Owner | None:
    """Lock the folder and clear it, or tell who else has it."""
    key = os.path.abspath(folder)
    with _held_lock:
        if key in _held:
            _held[key] += 1
            return None
        # A folder that did not exist has no owner and no old files, unless someone is faster from here on.
        if not (_is_new(folder) and _write_lock(folder)):
            with _alone_in(folder):
                other = _take_used(folder, existing)
            if other is not None:
                return other
        _held[key] = 1
    return None


def _is_new(folder: Path) -> bool:
    """Create the folder; False if it was there."""
    make_folder(folder.parent)
    try:
        os.mkdir(folder)
        os.chmod(folder, FOLDER_MODE)
    except OSError:
        make_folder(folder)  # it is there, or the error has its words there
        return False
    return True


def _take_used(folder: Path, existing: layout.Existing) -> Owner | None:
    """The same for a folder that was there, while no other process does it."""
    while True:
        other = _other_owner(folder)
        if other is not None:
            return other
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / layout.LOCK_FILE)  # of a dead process
        if _write_lock(folder):
            break
    try:
        layout.prepare(folder, existing)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(folder / layout.LOCK_FILE)
        raise
    return None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """While it lasts no other process claims this folder; file systems without flock do without."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = -1
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _other_owner(folder: Path) -> Owner | None:
    """The living process that writes in ``folder`` or wrote the dump in it, if it is not this one."""
    me = this_process()
    lock = folder / layout.LOCK_FILE
    with contextlib.suppress(OSError):
        text = lock.read_bytes()
        age = time.time() - lock.stat().st_mtime
        owner = _parse(text)
        if owner is None and age < _EMPTY_LOCK_SECONDS:
            return Owner(0, "an unknown host", 0)
        if owner is not None and owner != me and _lives(owner, age):
            return owner
    for name in (layout.DUMP_FILE, layout.DEBUG_FILE):
        with contextlib.suppress(OSError):
            age = time.time() - (folder / name).stat().st_mtime
            match = _OWNER_IN_TAIL.search(_tail(folder / name))
            owner = _parse(match.group(1)) if match else None
            # A finished dump of another host says nothing about now.
            if owner is not None and owner.host == me.host and owner != me and _lives(owner, age):
                return owner
    return None


def _lives(owner: Owner, age: float) -> bool:
    if owner.host != socket.gethostname():
        return age < _FOREIGN_LOCK_SECONDS
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it lives, and is not ours to signal
    started = _start_ticks(owner.pid)
    return started is None or owner.started == 0 or started == owner.started


def _start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where the system does not tell, or it is
    dead.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # A zombie is dead: it waits only for its parent to ask.
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _parse(text: bytes) -> Owner | None:
    try:
        found = json.loads(text)
        return Owner(int(found["pid"]), str(found["host"]), int(found["started"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _tail(path: Path) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read()


def _write_lock(folder: Path) -> bool:
    """Write our name into a new lock file; False if there is one already."""
    path = folder / layout.LOCK_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.write(descriptor, json.dumps(this_process().as_dict()).encode() + b"\n")
        finally:
            os.close(descriptor)
    except FileExistsError:
        return False
    except OSError as problem:
        raise PathError(f'cannot write lock file "{path}": {(problem.strerror or str(problem)).lower()}.') from problem
    return True

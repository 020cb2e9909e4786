"""Which process writes in which folder: never two in one.

A process announces itself in a folder by its journal, which tells the owner at its beginning, and the finished
``dump.json`` tells it at its end, so that a second process of the same job, which comes later, does not take the
folder either. An owner is a process number, a host and the moment the process started: a number that was given
to a new process does not count.

Who announces itself looks afterwards who else is there. Of two that come at once at least one sees the other, so
never do both stay.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from msprobe import log
from msprobe.errors import PathError
from msprobe.paths import StrPath, create_folder
from msprobe.store import layout

# A journal from another host cannot be asked whether its owner lives; one this old is taken for a remnant.
_FOREIGN_SECONDS = 24 * 3600.0
# The owner stands so near to the beginning of a journal, and to the end of a finished file.
_LOOKED_AT_BYTES = 4096
_OWNER = re.compile(rb'"process": (\{[^{}]*\})')

# Folders that this process has, with the number of writers in each.
_held: dict[str, int] = {}
# Reentrant: a writer that the garbage collector finds gives its folder back wherever we are.
_held_lock = threading.RLock()


@dataclass(frozen=True)
class Owner:
    """A process: its number, its host, and its start in clock ticks since boot (0 where not known)."""

    pid: int
    host: str
    started: int

    def as_dict(self) -> dict[str, int | str]:
        return {"pid": self.pid, "host": self.host, "started": self.started}


class Announcement(Protocol):
    """The journal of this process in a folder."""

    path: str

    def abandon(self) -> None: ...


_Announced = TypeVar("_Announced", bound=Announcement)


def this_process() -> Owner:
    return _owner_of(os.getpid())


@functools.lru_cache(maxsize=4)
def _owner_of(pid: int) -> Owner:
    return Owner(pid, socket.gethostname(), _start_ticks(pid) or 0)


def claim(wanted: Path, existing: layout.Existing, announce: Callable[[Path], _Announced]) -> tuple[Path, _Announced]:
    """Make ``wanted`` this process's own folder; if another living process has it, ``proc{pid}`` beside.

    ``announce`` starts a journal in a folder, its first frame written. Returns the folder, created where it was
    missing and freed of old files as ``existing`` says, and the journal in it. Raises PathError, and what
    ``announce`` raises.
    """
    taken = _try(wanted, existing, announce)
    if not isinstance(taken, Owner):
        return wanted, taken
    beside = layout.process_folder(wanted.parent)
    log.once(
        ("folder of another process", wanted.name),
        "warning",
        f'folder "{wanted}" belongs to process {taken.pid} on {taken.host}, which still runs; process '
        f'{os.getpid()} writes to "{beside.name}" beside it. '
        "If these are ranks of one job, set RANK or call start() after init_process_group().",
    )
    taken = _try(beside, existing, announce)
    if not isinstance(taken, Owner):
        return beside, taken
    raise PathError(f'folder "{beside}" belongs to another process; choose another dump_path.')


def refuse_old_dumps(dump_path: StrPath, rank: int | None, wanted: Callable[[int], bool]) -> None:
    """Raise DumpExistsError if ``dump_path`` has a dump of this rank for a step that is ``wanted``.

    One that another living process writes, or wrote, is of this very run: the ranks of a job begin when they like.
    """
    try:
        steps = layout.steps_of_rank(dump_path, rank)
    except OSError:
        return
    for step in filter(wanted, steps):
        folder = layout.rank_folder(layout.step_folder(dump_path, step), rank)
        if _other_owner(folder, "") is None:
            layout.prepare(folder, "refuse", "")


def release(folder: Path) -> None:
    """Give ``folder`` back, once for each claim. Other processes go by the files in it."""
    key = _key(folder)
    with _held_lock:
        left = _held.get(key, 0) - 1
        if left > 0:
            _held[key] = left
        else:
            _held.pop(key, None)


def forget_after_fork() -> None:
    """In a child: the folders are the parent's."""
    global _held_lock
    _held_lock = threading.RLock()
    _held.clear()


def _try(folder: Path, existing: layout.Existing, announce: Callable[[Path], _Announced]) -> _Announced | Owner:
    """Our journal in ``folder``, or who else has the folder."""
    is_new = create_folder(folder)
    announced = announce(folder)
    try:
        other = _take(folder, existing, os.path.basename(announced.path), is_new)
    except BaseException:
        _withdraw(announced)
        raise
    if other is None:
        return announced
    _withdraw(announced)
    return other


def _take(folder: Path, existing: layout.Existing, ours: str, is_new: bool) -> Owner | None:
    """Clear the folder, in which our journal is already, or tell who else has it."""
    key = _key(folder)
    with _held_lock:
        if key in _held:
            _held[key] += 1
            return None
        # Whoever comes into a folder that we made a moment ago finds our journal in it.
        if not (is_new and os.listdir(folder) == [ours]):
            # One looks after the other: else each of two might see the other, and nobody would stay.
            with _alone_in(folder):
                other = _other_owner(folder, ours)
                if other is not None:
                    # Before the next one looks.
                    _remove(folder / ours)
                    return other
                layout.prepare(folder, existing, ours)
        _held[key] = 1
    return None


def _key(folder: Path) -> str:
    return str(folder) if folder.is_absolute() else os.path.abspath(folder)


def _withdraw(announced: Announcement) -> None:
    _remove(announced.path)
    with contextlib.suppress(OSError):
        announced.abandon()


def _remove(path: str | Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


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


def _other_owner(folder: Path, ours: str) -> Owner | None:
    """The living process that writes in ``folder`` or wrote the dump in it, if it is not this one."""
    me = this_process()
    for name in os.listdir(folder):
        if name == ours or not layout.is_journal(name):
            continue
        with contextlib.suppress(OSError):
            # One without an owner was being made when its process died, or is of a process that has yet to look
            # who is here.
            owner, age = _look(folder / name, from_end=False)
            if owner is not None and owner != me and _lives(owner, age):
                return owner
    for name in (layout.DUMP_FILE, layout.DEBUG_FILE):
        with contextlib.suppress(OSError):
            owner, _ = _look(folder / name, from_end=True)
            # A finished dump of another host says nothing about now.
            if owner is not None and owner.host == me.host and owner != me and _lives(owner, 0.0):
                return owner
    return None


def _lives(owner: Owner, age: float) -> bool:
    if owner.host != socket.gethostname():
        return age < _FOREIGN_SECONDS
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


def _owner_in(text: bytes) -> Owner | None:
    match = _OWNER.search(text)
    if match is None:
        return None
    try:
        found = json.loads(match[1])
        return Owner(int(found["pid"]), str(found["host"]), int(found["started"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _look(path: Path, from_end: bool) -> tuple[Owner | None, float]:
    """The owner that a file tells, and its age in seconds since the last change."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if from_end:
            file.seek(max(0, status.st_size - _LOOKED_AT_BYTES))
        return _owner_in(file.read(_LOOKED_AT_BYTES)), time.time() - status.st_mtime

"""Which process writes in which folder: never two in one.

A process announces itself in a folder by its journal, which names the owner at its beginning, and the finished
``dump.json`` names it at its end, so that a second process of the same job, which comes later, does not take the
folder either. What a process left that lives no more is free: a job that was killed and begins anew gets its folders
back, at once, on whichever machine and in whichever container. Whether an owner lives

- the system says, if it is the same start of the same machine and the same set of process numbers;
- the lock on its journal says, if it is on a disk of this machine: of another container, or of before a restart;
- its journal itself says on a disk that machines share, where it is touched every few seconds;
- of a journal by an earlier version that none of this holds for, it is taken to live for a day.

Who announces itself looks afterwards who else is there. Of two that come at once at least one sees the other, so
never do both stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from msprobe import log
from msprobe.errors import MsprobeError, PathError
from msprobe.foreign import zstd
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.paths import StrPath, create_folder
from msprobe.store import file_systems, heartbeat, layout, locks, processes
from msprobe.store.processes import Owner

# A journal of whose owner nothing is known is taken for a remnant when it is this old.
_FOREIGN_SECONDS = 24 * 3600.0
# Processes that want the same folder and have the same number, each in a container of its own.
_MOST_BESIDE = 64
# How often a folder may vanish between being made and being used.
_MOST_TRIES = 5
# The owner stands so near to the beginning of a journal, and to the end of a finished file.
_LOOKED_AT_BYTES = 4096
_OWNER = re.compile(rb'"process": (\{[^{}]*\})')

# Folders that this process has, with the number of writers in each.
_held: dict[str, int] = {}
# Of owners of finished dumps that the system does not know: whether they were writing another step.
_busy: dict[Owner, bool] = {}
# Reentrant: a writer that the garbage collector finds gives its folder back wherever we are.
_held_lock = threading.RLock()


class Announcement(Protocol):
    """The journal of this process in a folder."""

    path: str

    def abandon(self) -> None: ...


_Announced = TypeVar("_Announced", bound=Announcement)


def claim(wanted: Path, existing: layout.Existing, announce: Callable[[Path], _Announced]) -> tuple[Path, _Announced]:
    """Make ``wanted`` this process's own folder; if another living process has it, ``proc{pid}`` beside.

    ``announce`` starts a journal in a folder, its first frame written. Returns the folder, created where it was
    missing and freed of old files as ``existing`` says, and the journal in it. Raises PathError, and what
    ``announce`` raises.
    """
    taken = _try(wanted, existing, announce)
    if not isinstance(taken, Owner):
        return wanted, taken
    owner = taken
    for number in range(_MOST_BESIDE):
        beside = layout.process_folder(wanted.parent, number)
        taken = _try(beside, existing, announce)
        if isinstance(taken, Owner):
            continue  # the same process number, in another container or on another machine
        log.once(
            ("folder in use", wanted.name),
            "warning",
            said("folder-of-other-process", wanted, owner.pid, owner.host, os.getpid(), beside.name),
        )
        return beside, taken
    raise PathError(said("folder-of-another-process", beside))


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


def remove_old_dump(folder: Path) -> bool:
    """Remove the dump in ``folder`` that is of an earlier run; False if there is none, or its owner lives.

    Raises PathError where a file cannot be removed, OSError where the folder cannot be read.
    """
    with _held_lock:
        if _key(folder) in _held:
            return False
        # Who comes meanwhile waits until it is empty.
        with _alone_in(folder):
            return _other_owner(folder, "") is None and layout.remove(folder)


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
    heartbeat.forget_after_fork()


def _try(folder: Path, existing: layout.Existing, announce: Callable[[Path], _Announced]) -> _Announced | Owner:
    """Our journal in ``folder``, or who else has the folder."""
    for left in reversed(range(_MOST_TRIES)):
        is_new = create_folder(folder)
        try:
            announced = announce(folder)
            break
        except FileNotFoundError:
            # Somebody removed the old dump in it, and the empty folder with it, a moment ago.
            if not left:
                raise
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
    """Clear the folder, in which our journal is already, or say who else has it."""
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
    me = processes.this_process()
    is_local = file_systems.is_local_folder(folder)
    for name in os.listdir(folder):
        if name == ours or not layout.is_journal(name):
            continue
        with contextlib.suppress(OSError):
            # One without an owner was cut short, or is of a version that named journals before they named it.
            owner, written = _look(folder / name, from_end=False)
            if owner is not None and owner != me and _writes(owner, folder / name, time.time() - written, is_local):
                return owner
    for name in layout.MAIN_FILES:
        with contextlib.suppress(OSError, MsprobeError):
            owner, written = _look(folder / name, from_end=True)
            if owner is None or owner == me:
                continue
            if _is_of_now(owner, written, folder / ours, is_local) or _writes_elsewhere(owner, folder, is_local):
                return owner
    return None


def _writes(owner: Owner, path: Path, age: float, is_local: bool) -> bool:
    """Whether the owner of the journal at ``path`` lives, as far as can be known; True in doubt."""
    if processes.can_be_asked(owner):
        return processes.runs(owner)
    if owner.beats:
        return age < _FOREIGN_SECONDS and heartbeat.is_alive(owner, path)
    if is_local and owner.boot:
        # Of another container, which holds the file as long as it lives; or of the time before the machine was
        # started anew.
        is_held = locks.is_held(path)
        if is_held is not None:
            return is_held
        if owner.boot != processes.this_process().boot:
            return False
    return age < _FOREIGN_SECONDS


def _is_of_now(owner: Owner, written: float, ours: Path, is_local: bool) -> bool:
    """Whether the owner of a finished dump may still run, as one that cannot be asked: if it wrote since we began."""
    if processes.can_be_asked(owner):
        return processes.runs(owner)
    if is_local and owner.boot and owner.boot != processes.this_process().boot:
        return False
    now = time.time()
    if not is_local:
        # By the clock that the other time is of: our journal was written a moment ago.
        with contextlib.suppress(OSError):
            now = os.stat(ours).st_mtime
    return now - written < processes.seconds_since_start()


def _writes_elsewhere(owner: Owner, folder: Path, is_local: bool) -> bool:
    """Whether the owner of a finished dump, which cannot be asked, is writing another step of the same rank."""
    if processes.can_be_asked(owner):
        return False
    is_busy = _busy.get(owner)
    if is_busy is None:
        is_busy = False
        with contextlib.suppress(OSError):
            for _, step in layout.step_folders(folder.parent.parent):
                is_busy = is_busy or any(
                    _look(path, from_end=False)[0] == owner and _is_held_or_touched(owner, path, is_local)
                    for path in _journals(step / folder.name)
                )
        _busy[owner] = is_busy
    return is_busy


def _journals(folder: Path) -> list[Path]:
    try:
        return layout.journals(folder)
    except OSError:
        return []


def _is_held_or_touched(owner: Owner, path: Path, is_local: bool) -> bool:
    with contextlib.suppress(OSError):
        return _writes(owner, path, time.time() - os.stat(path).st_mtime, is_local)
    return False


def _owner_in(text: bytes) -> Owner | None:
    match = _OWNER.search(text)
    if match is None:
        return None
    try:
        return Owner.of(json.loads(match[1]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _look(path: Path, from_end: bool) -> tuple[Owner | None, float]:
    """The owner that a file names, and when the file was changed last."""
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if path.name.endswith(layout.COMPRESSED):
            return _owner_in(zstd.unpacked(file, path)[-_LOOKED_AT_BYTES:]), status.st_mtime
        if from_end:
            file.seek(max(0, status.st_size - _LOOKED_AT_BYTES))
        return _owner_in(file.read(_LOOKED_AT_BYTES)), status.st_mtime

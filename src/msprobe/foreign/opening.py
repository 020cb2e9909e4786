"""Open a file that a stranger may have made: only a regular file is opened, and opening never waits.

A pipe, a device, a socket or a folder under the expected name ends in a sentence. The kind is checked on the open
descriptor, so that nothing can be exchanged between a look and the opening. What is read whole has been written, too:
a file of few bytes that says that it is large (a sparse one) is refused.
"""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO

from msprobe.errors import PathError
from msprobe.foreign.budget import Budget
from msprobe.messages import said
from msprobe.paths import StrPath, quoted

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_PIECE_BYTES = 1 << 20
# A system that loses its power leaves some megabytes that were never written behind the end of a file.
_MOST_UNWRITTEN_BYTES = 64 << 20
FileState = tuple[int, int, int]
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: StrPath, *, follow_links: bool = True) -> BinaryIO:
    """Open a regular file for reading bytes, without waiting.

    ``follow_links``: whether the last name of the path may be a symbolic link. False for files that were found in a
    dump or another folder of a stranger.

    Raises PathError where it is anything but a regular file, and OSError as ``open`` does (FileNotFoundError,
    PermissionError).
    """
    flags = _FLAGS if follow_links else _FLAGS | getattr(os, "O_NOFOLLOW", 0)
    if not follow_links and os.path.islink(path):
        raise PathError(said("link-in-recorded-folder", quoted(path)))
    try:
        descriptor = os.open(path, flags)
    except IsADirectoryError:
        raise PathError(said("folder-in-place-of-file", quoted(path))) from None
    except OSError as problem:
        kind = _kind_of(path)
        if kind:
            raise PathError(said("special-file-opened", quoted(path), kind)) from problem
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise PathError(said("special-file", quoted(path), _name_of(mode)))
        # As os.fdopen makes it, without asking whether it is a terminal.
        return io.BufferedReader(io.FileIO(descriptor, "rb"))
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: StrPath, budget: Budget, *, follow_links: bool = True) -> bytes:
    """All bytes of a regular file, which are taken off ``budget``. Raises BudgetError, and as :func:`open_regular`
    and :func:`check_written`.
    """
    with open_regular(path, follow_links=follow_links) as file:
        size = os.fstat(file.fileno()).st_size
        budget.spend_bytes(size)
        check_written(file, path)
        data = file.read(size + 1)
        if len(data) > size:  # it grows while it is read
            budget.spend_bytes(len(data) - size)
            pieces = [data]
            while piece := file.read(_PIECE_BYTES):  # room is made at once for all that is asked for
                budget.spend_bytes(len(piece))
                pieces.append(piece)
            data = b"".join(pieces)
        return data


def check_written(file: BinaryIO, path: StrPath) -> None:
    """Raise PathError where a large part of a file was never written, so that its size says nothing of what it costs.

    For files that are read whole, before that: no text has such holes. The file is read from its beginning afterwards.
    """
    if not hasattr(os, "SEEK_HOLE"):
        return
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    if size <= _MOST_UNWRITTEN_BYTES:
        return
    unwritten = end = 0
    try:
        while end < size and unwritten <= _MOST_UNWRITTEN_BYTES:
            hole = os.lseek(descriptor, end, os.SEEK_HOLE)
            if hole >= size:
                break
            try:
                end = os.lseek(descriptor, hole, os.SEEK_DATA)
            except OSError:  # nothing was written behind it
                end = size
            unwritten += end - hole
    except OSError:  # a file system that does not know
        unwritten = 0
    os.lseek(descriptor, 0, os.SEEK_SET)
    if unwritten > _MOST_UNWRITTEN_BYTES:
        raise PathError(said("file-mostly-unwritten", quoted(path), size))


def file_bytes(path: StrPath, budget: Budget | None = None, *, follow_links: bool = True) -> bytes:
    """All bytes of a regular file within a budget. Raises PathError and BudgetError."""
    try:
        return read_bounded(path, Budget(path) if budget is None else budget, follow_links=follow_links)
    except FileNotFoundError as problem:
        raise PathError(said("database-missing", path)) from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise PathError(said("file-unreadable", path, reason.lower())) from problem


def is_regular(path: StrPath) -> bool:
    """Whether there is a regular file. No error where there is nothing, or where it cannot be looked at."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode)


def state_of(path: StrPath) -> FileState | None:
    """What a file has other than before once it was written again: time in ns, bytes, number. None where none is."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def size_of(path: StrPath, *, follow_links: bool = True) -> int:
    """The bytes of a regular file; -1 where there is none, or it cannot be looked at."""
    try:
        status = os.stat(path, follow_symlinks=follow_links)
    except (OSError, ValueError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _kind_of(path: StrPath) -> str:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""
    return "" if stat.S_ISREG(mode) else _name_of(mode)


def _name_of(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")

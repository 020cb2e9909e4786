"""A mark on an open file that goes when its process does, however that ends; every process of the machine sees it.

Process numbers mean nothing in another container, a lock does. It belongs to the open file, not to the process: other
uses of the same file in this process leave it alone, and a forked child that closes the file leaves it to its parent.
Only for files on a disk of this machine: over a network a lock may be unknown to other machines, or may be waited for.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys

# struct flock of 64-bit Linux: type, whence, start, length (0: to the end), process; with the gaps of the C compiler.
_FLOCK = struct.Struct("@hhqqi0q")


def hold(descriptor: int) -> None:
    """Lock the open file until it is closed everywhere; nothing where the system has no such locks."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        if _is_known_layout():
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _asked(fcntl.F_WRLCK))


def is_held(path: str | os.PathLike[str]) -> bool | None:
    """Whether somebody holds the file; None where that cannot be known."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        if not _is_known_layout():
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            lock = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _asked(fcntl.F_RDLCK))
        finally:
            os.close(descriptor)
        return bool(_FLOCK.unpack(lock)[0] != fcntl.F_UNLCK)
    return None


def _is_known_layout() -> bool:
    return sys.platform == "linux" and sys.maxsize > 1 << 32


def _asked(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)

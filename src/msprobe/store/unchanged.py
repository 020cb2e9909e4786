"""Files that say the same in every step: one content under several names.

``stack.json`` and ``construct.json`` of a training rarely change from step to step. To create a file costs a file
system fifty to three hundred microseconds, a further name for one that is there ten; and the disk holds it once.
Whoever writes such a file anew, as all of ours do, leaves the other names what they were.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from msprobe.paths import write_atomically

# Nothing larger is kept in memory to be compared.
_MOST_BYTES = 1 << 20

_State = tuple[int, int, int, int, int]


class _Written(NamedTuple):
    path: str
    state: _State
    content: bytes


# By name: the file as it was last written.
_last: dict[str, _Written] = {}


def write(path: str, pieces: Iterator[bytes]) -> None:
    """Let ``path`` hold these pieces, whole or not at all; as a further name of the last file of the same name, if
    that one says the same. Raises PathError.
    """
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            write_atomically(path, itertools.chain(held, pieces), fsync=False)
            return
    content = b"".join(held)
    name = os.path.basename(path)
    last = _last.get(name)
    if last is not None and last.content == content:
        # No hard links here, too many of this file, another disk, or a file of that name: written as any other.
        with contextlib.suppress(OSError):
            if _state_of(last.path) == last.state:
                os.link(last.path, path)
                return
    write_atomically(path, content, fsync=False)
    with contextlib.suppress(OSError):
        _last[name] = _Written(path, _state_of(path), content)


def _state_of(path: str) -> _State:
    """What is another number if somebody has touched the file."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode

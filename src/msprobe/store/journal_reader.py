"""The frames of a journal, read back: however the writing ended, and while it still goes on."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe.errors import PathError
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.store.journal import HEAD, HEAD_BYTES, LARGEST_RECYCLED, MAGIC, START, START_BYTES, digest

_GENERATION_IN_NAME = re.compile(r".*-([0-9a-f]+)\.journal")


class JournalGone(PathError):
    """The journal is no longer in its folder: its step is finished, and the JSON files hold everything."""


@dataclass(frozen=True)
class Damage:
    """What was not readable in a journal: how many frames were passed over, and whether its end is torn."""

    frames: int = 0
    torn: bool = False


class JournalReader:
    """The frames of a journal, however it ended; what was unreadable (``damage``) is known at the end."""

    first_frame = START_BYTES

    def __init__(self, path: Path) -> None:
        """Raises PathError if the file cannot be read or is no journal, JournalGone if it is not there.

        A file without a whole head is empty, and so is one whose head is not of the generation that its name
        says.
        """
        self.path = path
        self.damage = Damage()
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                self.data: mmap.mmap | bytes
                if size > LARGEST_RECYCLED:
                    self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                else:
                    # Its writer may empty it at any moment, for another step. It renames it then, too.
                    self.data = file.read()
                    if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                        raise FileNotFoundError
        except FileNotFoundError as problem:
            raise JournalGone(said("journal-gone", path)) from problem
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise PathError(said("journal-unreadable", path, reason.lower())) from problem
        start = self.data[: len(MAGIC)]
        if not MAGIC.startswith(start.rstrip(b"\0")):
            raise PathError(said("journal-of-something-else", path, start, MAGIC))
        magic, self._generation = START.unpack(self.data[:START_BYTES].ljust(START_BYTES, b"\0"))
        named = _GENERATION_IN_NAME.fullmatch(path.name)
        self._is_empty = magic != MAGIC or (named is not None and int(named[1], 16) != self._generation)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Start and end of the body of each whole frame, in order.

        A frame whose bytes changed is passed over if the one behind it is whole; else the reading ends there.
        """
        data, size = self.data, 0 if self._is_empty else len(self.data)
        position, passed_over = self.first_frame, 0
        while position + HEAD_BYTES <= size:
            length, noted = HEAD.unpack_from(data, position)
            start = position + HEAD_BYTES
            end = start + length
            if length == 0 or end > size:
                break
            if digest(data[start:end], self._generation) == noted:
                yield start, end
            elif self._is_whole(end):
                passed_over += 1
            else:
                break
            position = end
        self.damage = Damage(passed_over, torn=position < size and _has_content(data, position))

    def read(self, start: int, end: int) -> bytes:
        return self.data[start:end]

    def close(self) -> None:
        if isinstance(self.data, mmap.mmap):
            self.data.close()

    def _is_whole(self, position: int) -> bool:
        data = self.data
        if position + HEAD_BYTES > len(data):
            return False
        length, noted = HEAD.unpack_from(data, position)
        start = position + HEAD_BYTES
        end = start + length
        return bool(length) and end <= len(data) and digest(data[start:end], self._generation) == noted


def _has_content(data: mmap.mmap | bytes, position: int) -> bool:
    """True if anything but zero bytes stands from ``position`` on."""
    step = 1 << 20
    return any(data[at : at + step].strip(b"\0") for at in range(position, len(data), step))

"""The journal: finished records, appended at once; a killed process loses at most the one being written.

A journal is a file of frames behind a head::

    magic (8 bytes) | generation (8 bytes) | frame | frame | ... | zero bytes
    frame = length of body (4 bytes) | xxh3 of body, seeded with the generation (8 bytes) | body    (little-endian)
    body  = kind (1 byte) | length of key (4 bytes) | key | content

What the kinds mean is said in :mod:`msprobe.store.entries`; this file knows bytes only.

The file is mapped into memory and grown by writing zeros, so that a full disk is an error at the next growth
and not a signal that ends the training; an append is a copy of some hundred bytes and no call of the system.
(Space from ``posix_fallocate`` is as safe, but touching its pages costs three times as much.) Where a file
system cannot promise that a written block can be written again (those that copy on write, the layers of
containers, network and user-space file systems: see :mod:`msprobe.store.file_systems`), the journal is written by
plain calls: one for each record on a disk of this machine, elsewhere one for some 16 kB or a tenth of a second.

The open file is locked as long as its process lives, where the disk is this machine's own: processes of other
containers, which do not see the process, see the lock.

One file serves many steps (:mod:`msprobe.store.recycling`): emptied, it is renamed into the folder of the next.
Each use has a generation of its own, which stands in the name of the file, in its head and in every digest.
Whatever order the pages and the new name reach the disk in, no record shows up in a step that it is not of.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import xxhash

from msprobe.messages import said
from msprobe.paths import FILE_MODE
from msprobe.store import file_systems, locks

MAGIC = b"MSPJRNL2"
START = struct.Struct("<8sQ")
START_BYTES = START.size
HEAD = struct.Struct("<IQ")
HEAD_BYTES = HEAD.size

# No journal larger than this is used for a second step.
LARGEST_RECYCLED = 1 << 24

_FIRST_CHUNK = 1 << 17
_LARGEST_CHUNK = 1 << 24
_KEPT_MAPPED = 1 << 24
_ZEROS = bytes(_FIRST_CHUNK)
# MADV_POPULATE_WRITE, which the mmap module does not name.
_POPULATE_WRITE = 23 if sys.platform == "linux" else None
# Written by plain calls: the append that makes it more than this, or comes later than this, writes all.
_HELD_BYTES = 1 << 14
_HELD_SECONDS = 0.1

digest: Callable[[bytes, int], int] = xxhash.xxh3_64_intdigest
_pack_head = HEAD.pack
# The head of a frame has no room for more.
_LONGEST_BODY = (1 << 32) - 1


class Journal(Protocol):
    """A file that only grows. All methods raise OSError when the disk fails."""

    path: str
    size: int

    def append(self, body: bytes) -> int:
        """Write one frame, whole or not at all; return the position of its body.

        Raises OverflowError for a body of 4 GiB or more; the journal is as it was then.
        """

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``, which must have been appended."""

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """As ``read``, for many at once."""

    def flush(self) -> None:
        """Let the file have what was appended; there is nothing to do for a mapped one."""

    def close(self) -> None:
        """Cut the file to what was appended and close it; twice is harmless."""

    def abandon(self) -> None:
        """Let go of the file and leave it as it is: in a forked child it belongs to the parent."""


def create(path: str, generation: int, first: bytes) -> Journal:
    """Start a journal under a name that is not in use, mapped if the file system allows it.

    ``generation`` is a number below 2**64 that no other journal has, ``first`` the body of the first frame. The file
    has its name only when that is in it, since without an owner it is taken for what a killed process left.
    """
    begun = os.path.join(os.path.dirname(path), f".msprobe-{os.getpid()}-{generation}.tmp")
    try:
        created = _begin(begun, path, generation, first)
        try:
            os.replace(begun, path)
        except BaseException:
            created.abandon()
            raise
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(begun)
        raise
    return created


def _begin(begun: str, path: str, generation: int, first: bytes) -> Journal:
    """The journal, which stands at ``begun`` and is to be at ``path``."""
    descriptor = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
        is_local = file_systems.is_local(descriptor)
        if is_local:
            # Before the first frame, which names the owner: who is named there has the lock.
            locks.hold(descriptor)
        if _can_be_mapped(descriptor):
            with contextlib.suppress(_CannotBeMapped):
                return MappedJournal(descriptor, path, generation, first)
        return PlainJournal(descriptor, path, generation, first, 0 if is_local else _HELD_BYTES)
    except BaseException:
        os.close(descriptor)
        raise


class _CannotBeMapped(Exception):
    pass


class MappedJournal:
    """See :class:`Journal`; an append of 1.5 kB costs 0.6 µs, growth included (bench/store)."""

    def __init__(self, descriptor: int, path: str, generation: int, first: bytes) -> None:
        self._descriptor = -1
        opening = _opening(generation, first)
        allocated = _in_chunks(len(opening))
        _write(descriptor, 0, opening)
        _write_zeros(descriptor, len(opening), allocated)
        try:
            self._map = mmap.mmap(descriptor, allocated)
        except OSError as problem:
            os.ftruncate(descriptor, 0)
            raise _CannotBeMapped from problem
        self.path = path
        self.size = len(opening)
        self._generation = generation
        self._descriptor = descriptor
        self._allocated = allocated
        self._touch(0, allocated)

    def append(self, body: bytes) -> int:
        frame = _head(body, self._generation) + body
        start = self.size
        end = start + len(frame)
        if end > self._allocated:
            self._grow(end)
        self.size = end
        self._map[start:end] = frame
        return start + HEAD_BYTES

    def read(self, start: int, end: int) -> bytes:
        return self._map[start:end]

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        text = self._map
        return [text[start:end] for start, end in places]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if self._descriptor < 0:
            return
        self._map.close()
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.ftruncate(descriptor, self.size)
        finally:
            os.close(descriptor)

    def abandon(self) -> None:
        if self._descriptor >= 0:
            self._map.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        try:
            _let_go(self)
        except Exception:
            return

    @property
    def can_be_recycled(self) -> bool:
        """True for a journal that is open and of no more than usual size."""
        return self._descriptor >= 0 and self._allocated <= LARGEST_RECYCLED

    def recycle(self, path: str, generation: int, first: bytes) -> None:
        """Empty the journal and take it to ``path``, where it begins anew.

        Nothing of what it holds may be needed any more. Raises OSError if it cannot be moved there; it is
        as it was then.
        """
        # From here on what it holds is void: it is not of the generation that its name says.
        os.rename(self.path, path)
        self.path = path
        opening = _opening(generation, first)
        # The first frame, which says whose journal this is, stays legible until the new one is written over it.
        for start in range(len(opening), self.size, _FIRST_CHUNK):
            end = min(start + _FIRST_CHUNK, self.size)
            self._map[start:end] = _ZEROS[: end - start]
        if len(opening) > self._allocated:
            self._grow(len(opening))
        self._map[: len(opening)] = opening
        self._generation = generation
        self.size = len(opening)

    def _grow(self, end: int) -> None:
        # An eighth more, in whole first chunks: few growths, and little that is never used.
        more = _in_chunks(max(end - self._allocated, min(self._allocated >> 3, _LARGEST_CHUNK)))
        _write_zeros(self._descriptor, self._allocated, self._allocated + more)
        self._map.resize(self._allocated + more)
        self._touch(self._allocated, more)
        self._allocated += more
        self._unmap_written()

    def _touch(self, start: int, length: int) -> None:
        """Map the pages for writing in one call: a third of the cost of meeting each for the first time."""
        if _POPULATE_WRITE is not None:
            with contextlib.suppress(OSError):  # Linux before 5.14 does not know it
                self._map.madvise(_POPULATE_WRITE, start, length)

    def _unmap_written(self) -> None:
        """Take whole pages that are full out of this process's memory; they stay in the file and come back if read."""
        if self._allocated >= _KEPT_MAPPED:
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_DONTNEED, 0, self.size // mmap.PAGESIZE * mmap.PAGESIZE)


class PlainJournal:
    """See :class:`Journal`; up to ``held_bytes`` may wait in this process for the next append or ``flush``."""

    def __init__(
        self, descriptor: int, path: str, generation: int, first: bytes, held_bytes: int = _HELD_BYTES
    ) -> None:
        self._descriptor = -1
        opening = _opening(generation, first)
        _write(descriptor, 0, opening)
        self.path = path
        self.size = len(opening)
        self._generation = generation
        self._descriptor = descriptor
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._most_held = held_bytes
        self._flushed_at = 0.0

    def append(self, body: bytes) -> int:
        self._held += (_head(body, self._generation), body)
        length = HEAD_BYTES + len(body)
        self._held_bytes += length
        self.size += length
        if self._held_bytes > self._most_held or time.monotonic() - self._flushed_at > _HELD_SECONDS:
            self.flush()
        return self.size - len(body)

    def read(self, start: int, end: int) -> bytes:
        self.flush()
        return _read(self._descriptor, start, end)

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        self.flush()
        return [_read(self._descriptor, start, end) for start, end in places]

    def close(self) -> None:
        if self._descriptor < 0:
            return
        descriptor = self._descriptor
        try:
            self.flush()
        finally:
            self._descriptor = -1
            os.close(descriptor)

    def abandon(self) -> None:
        self._held.clear()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        try:
            _let_go(self)
        except Exception:
            return

    def flush(self) -> None:
        if not self._held:
            return
        _write(self._descriptor, self.size - self._held_bytes, b"".join(self._held))
        self._held.clear()
        self._held_bytes = 0
        self._flushed_at = time.monotonic()


def _let_go(journal: MappedJournal | PlainJournal) -> None:
    """For a journal that nobody closed: no descriptor is lost, and the file stays as it is.

    It may be dropped in a forked child, where cutting the file would pull it from under the parent.
    """
    with contextlib.suppress(Exception):
        journal.abandon()


def _can_be_mapped(descriptor: int) -> bool:
    return file_systems.can_be_mapped(descriptor)


def _opening(generation: int, first: bytes) -> bytes:
    """The head and the first frame, together: the one without the other is never seen."""
    return START.pack(MAGIC, generation) + _head(first, generation) + first


def _head(body: bytes, generation: int) -> bytes:
    if len(body) > _LONGEST_BODY:
        raise OverflowError(said("record-too-long", len(body), _LONGEST_BODY))
    return _pack_head(len(body), digest(body, generation))


def _in_chunks(length: int) -> int:
    return _FIRST_CHUNK * -(-length // _FIRST_CHUNK)


def _write(descriptor: int, start: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, start)
        view, start = view[written:], start + written


def _read(descriptor: int, start: int, end: int) -> bytes:
    """What is read at once has 2 GiB at most."""
    data = os.pread(descriptor, end - start, start)
    while start + len(data) < end:
        more = os.pread(descriptor, end - start - len(data), start + len(data))
        if not more:
            raise OSError(errno.EIO, said("journal-shorter"))
        data += more
    return data


def _write_zeros(descriptor: int, start: int, end: int) -> None:
    while start < end:
        start += os.pwrite(descriptor, memoryview(_ZEROS)[: end - start], start)

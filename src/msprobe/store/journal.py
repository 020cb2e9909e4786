"""The journal: finished records, appended at once; a killed process loses at most the one being written.

A journal is a file of frames behind a magic word::

    magic (8 bytes) | frame | frame | ... | zero bytes
    frame = length of body (4 bytes) | xxh3 of body (8 bytes) | body          (little-endian)
    body  = kind (1 byte) | length of key (4 bytes) | key | content

What the kinds mean is said in :mod:`msprobe.store.entries`; this file knows bytes only.

The file is mapped into memory and grown by writing zeros, so that a full disk is an error at the next growth
and not a signal that ends the training; an append is a copy of some hundred bytes and no call of the system.
(Space from ``posix_fallocate`` is as safe, but touching its pages costs three times as much.) Where a file
system cannot promise that a written block can be written again (network and user-space file systems, those
that copy on write), the journal is written by plain calls, each for some 16 kB or a tenth of a second.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import xxhash

from msprobe.errors import PathError
from msprobe.paths import FILE_MODE

MAGIC = b"MSPJRNL1"
_HEAD = struct.Struct("<IQ")
HEAD_BYTES = _HEAD.size

_FIRST_CHUNK = 1 << 17
_LARGEST_CHUNK = 1 << 24
_KEPT_MAPPED = 1 << 24
_ZEROS = bytes(_FIRST_CHUNK)
# MADV_POPULATE_WRITE, which the mmap module does not name.
_POPULATE_WRITE = 23 if sys.platform == "linux" else None
# Written by plain calls: the append that makes it more than this, or comes later than this, writes all.
_HELD_BYTES = 1 << 14
_HELD_SECONDS = 0.1

# On these a block that was written once can be written again, whatever else fills the disk.
_MAPPABLE = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})

_hash = xxhash.xxh3_64_intdigest
_pack_head = _HEAD.pack


class Journal(Protocol):
    """A file that only grows. All methods raise OSError when the disk fails."""

    size: int

    def append(self, body: bytes) -> int:
        """Write one frame, whole or not at all; return the position of its body."""

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``, which must have been appended."""

    def flush(self) -> None:
        """Let the file have what was appended; there is nothing to do for a mapped one."""

    def close(self) -> None:
        """Cut the file to what was appended and close it; twice is harmless."""

    def abandon(self) -> None:
        """Let go of the file and leave it as it is: in a forked child it belongs to the parent."""


def create(path: Path) -> Journal:
    """Start an empty journal under a name that is not in use; mapped if the file system allows it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
        if _can_be_mapped(descriptor):
            with contextlib.suppress(_CannotBeMapped):
                return MappedJournal(descriptor)
        return PlainJournal(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


class _CannotBeMapped(Exception):
    pass


class MappedJournal:
    """See :class:`Journal`; an append of 1.5 kB costs 0.6 µs, growth included (bench/store)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = -1
        _write_zeros(descriptor, 0, _FIRST_CHUNK)
        try:
            self._map = mmap.mmap(descriptor, _FIRST_CHUNK)
        except OSError as problem:
            os.ftruncate(descriptor, 0)
            raise _CannotBeMapped from problem
        self._descriptor = descriptor
        self._allocated = _FIRST_CHUNK
        self._touch(0, _FIRST_CHUNK)
        self._map[: len(MAGIC)] = MAGIC
        self.size = len(MAGIC)

    def append(self, body: bytes) -> int:
        start = self.size
        end = start + HEAD_BYTES + len(body)
        if end > self._allocated:
            self._grow(end)
        self.size = end
        self._map[start:end] = _pack_head(len(body), _hash(body)) + body
        return start + HEAD_BYTES

    def read(self, start: int, end: int) -> bytes:
        return self._map[start:end]

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
        _let_go(self)

    def _grow(self, end: int) -> None:
        # An eighth more, in whole first chunks: few growths, and little that is never used.
        step = max(end - self._allocated, min(self._allocated >> 3, _LARGEST_CHUNK))
        more = _FIRST_CHUNK * -(-step // _FIRST_CHUNK)
        _write_zeros(self._descriptor, self._allocated, more)
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
    """See :class:`Journal`; up to 16 kB may wait in this process for the next append or ``flush``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = -1
        _write_all(descriptor, MAGIC, 0)
        self._descriptor = descriptor
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._flushed_at = 0.0
        self.size = len(MAGIC)

    def append(self, body: bytes) -> int:
        self._held.append(_pack_head(len(body), _hash(body)))
        self._held.append(body)
        length = HEAD_BYTES + len(body)
        self._held_bytes += length
        self.size += length
        if self._held_bytes > _HELD_BYTES or time.monotonic() - self._flushed_at > _HELD_SECONDS:
            self.flush()
        return self.size - len(body)

    def read(self, start: int, end: int) -> bytes:
        self.flush()
        return os.pread(self._descriptor, end - start, start)

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
        _let_go(self)

    def flush(self) -> None:
        if not self._held:
            return
        _write_all(self._descriptor, b"".join(self._held), self.size - self._held_bytes)
        self._held.clear()
        self._held_bytes = 0
        self._flushed_at = time.monotonic()


@dataclass(frozen=True)
class Damage:
    """What was not readable in a journal: how many frames were passed over, and whether its end is torn."""

    frames: int = 0
    torn: bool = False


class JournalReader:
    """The frames of a journal, however it ended; what was unreadable (``damage``) is known at the end."""

    def __init__(self, path: Path) -> None:
        """Raises PathError if the file cannot be read or is no journal; a file shorter than the magic word is
        empty.
        """
        self.path = path
        self.damage = Damage()
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.data: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise PathError(f'journal "{path}" cannot be read: {reason.lower()}.') from problem
        start = self.data[: len(MAGIC)]
        if not MAGIC.startswith(start.rstrip(b"\0")):
            raise PathError(f'"{path}" is no journal of msprobe: it begins with {start!r}, not with {MAGIC!r}.')

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Start and end of the body of each whole frame, in order.

        A frame whose bytes changed is passed over if the one behind it is whole; else the reading ends there.
        """
        data, size = self.data, len(self.data)
        position, passed_over = len(MAGIC), 0
        while position + HEAD_BYTES <= size:
            length, digest = _HEAD.unpack_from(data, position)
            start = position + HEAD_BYTES
            end = start + length
            if length == 0 or end > size:
                break
            if _hash(data[start:end]) == digest:
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
        if position + HEAD_BYTES > len(self.data):
            return False
        length, digest = _HEAD.unpack_from(self.data, position)
        end = position + HEAD_BYTES + length
        return bool(length) and end <= len(self.data) and _hash(self.data[position + HEAD_BYTES : end]) == digest


def _let_go(journal: MappedJournal | PlainJournal) -> None:
    """For a journal that nobody closed: no descriptor is lost, and the file stays as it is.

    It may be dropped in a forked child, where cutting the file would pull it from under the parent.
    """
    with contextlib.suppress(Exception):
        journal.abandon()


def _has_content(data: mmap.mmap | bytes, position: int) -> bool:
    """True if anything but zero bytes stands from ``position`` on."""
    step = 1 << 20
    return any(data[at : at + step].strip(b"\0") for at in range(position, len(data), step))


def _can_be_mapped(descriptor: int) -> bool:
    return _file_system(os.fstat(descriptor).st_dev) in _MAPPABLE


def _write_zeros(descriptor: int, start: int, length: int) -> None:
    for place in range(start, start + length, _FIRST_CHUNK):
        _write_all(descriptor, _ZEROS, place)


def _write_all(descriptor: int, data: bytes, start: int) -> None:
    """Write ``data`` at ``start``; the system may take less than all at a time."""
    written = os.pwrite(descriptor, data, start)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], start + written)


@functools.lru_cache(maxsize=64)
def _file_system(device: int) -> str:
    """The kind of the file system with this device number; empty where the system does not tell."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open("/proc/self/mountinfo", encoding="utf-8") as file,
    ):
        for line in file:
            left, _, right = line.partition(" - ")
            if left.split()[2] == wanted:
                return right.split()[0]
    return ""

"""Zip archives that a stranger may have made: the one place that unpacks.

An entry is unpacked up to what its reader needs, while it is counted, and never to what a header claims. Only what is
stored or deflated is read, so each byte of the archive gives a bounded number at a time. Entries that lie over one
another, or stand twice under one name, are refused: that is how a small archive claims to hold much.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from msprobe.errors import InvalidInputError, in_one_line
from msprobe.foreign.budget import factor
from msprobe.messages import said

#: What the library raises for archives that are broken.
BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, OverflowError,
)  # fmt: skip
_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_END_64_LOCATOR = struct.Struct("<4sLQL")
#: What a directory may have: checkpoints of large models have the most entries.
_MOST_ENTRIES = 4_000_000
_MOST_ENTRY_BYTES = 336
_HEAD_BYTES = _LOCAL_HEADER.size
_ENCRYPTED = 1
# What deflated numbers of a training come to; more than so many bytes of zeros are no state that anybody keeps.
_MOST_RATIO = 20
_FREE_BYTES = 64 << 20


class Archive:
    """The entries of an open archive by their names.

    ``path`` names it in messages. ``names_may_repeat``: of entries with one name the last one counts. ``most``: how
    many entries it may say to have, which is asked before its directory is read into memory. Raises InvalidInputError
    for what is no archive, or none that is read here; OSError as the file does.
    """

    def __init__(
        self, file: IO[bytes], path: object, *, names_may_repeat: bool = False, most: int = _MOST_ENTRIES
    ) -> None:
        self.file = file
        self.path = path
        count, directory = _directory(file, path)
        if count > most or directory > most * _MOST_ENTRY_BYTES:
            raise InvalidInputError(said("archive-entries", path, count, directory, most))
        try:
            self._zip = zipfile.ZipFile(file)
        except BROKEN as problem:
            raise InvalidInputError(said("archive-unreadable", path, in_one_line(problem))) from problem
        #: All of them, in the order of the directory.
        self.listed = listed = self._zip.infolist()
        self.entries: dict[str, zipfile.ZipInfo] = {entry.filename: entry for entry in listed}
        if len(self.entries) < len(listed) and not names_may_repeat:
            raise InvalidInputError(said("archive-names-repeat", path))
        if any(entry.header_offset < 0 for entry in listed):
            raise InvalidInputError(said("archive-directory-before-start", path))
        if not _are_apart(listed):  # in the order of the directory, as most are
            for earlier, entry in itertools.pairwise(sorted(listed, key=lambda entry: entry.header_offset)):
                if not _are_apart([earlier, entry]):
                    raise InvalidInputError(said("archive-entries-overlap", path, _name(entry)))

    def start_of(self, entry: zipfile.ZipInfo) -> int:
        """Where the content of a stored entry begins: behind its local header, whose length the directory does not say.

        Raises InvalidInputError where there is no such header, or the content is not stored as it is.
        """
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & _ENCRYPTED:
            raise InvalidInputError(said("archive-entry-compressed", self.path, _name(entry)))
        self.file.seek(entry.header_offset)
        head = self.file.read(_LOCAL_HEADER.size)
        if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\3\4"):
            raise InvalidInputError(said("archive-directory-points-nowhere", self.path))
        fields = _LOCAL_HEADER.unpack(head)
        return int(entry.header_offset + _LOCAL_HEADER.size + fields[9] + fields[10])

    def read(self, entry: zipfile.ZipInfo, most: int) -> bytes:
        """All of an entry that unpacks to at most ``most`` bytes; its checksum is right.

        Raises InvalidInputError for one that unpacks to more, or is damaged.
        """
        if entry.file_size > most:
            raise InvalidInputError(said("archive-entry-too-large", self.path, _name(entry), entry.file_size, most))
        with self.open(entry) as file:
            data = file.read(most + 1)
        if len(data) != entry.file_size:
            raise InvalidInputError(said("archive-entry-cut", self.path, _name(entry), entry.file_size))
        return data

    @contextlib.contextmanager
    def open(self, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
        """An entry as a file that never gives more than is asked for, and no more than its size in the directory.

        Raises InvalidInputError, also from reading, for one that is damaged or packed in a way that is not read.
        """
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & _ENCRYPTED:
            raise InvalidInputError(said("archive-packing-unknown", self.path, _name(entry)))
        try:
            with self._zip.open(entry) as file:
                yield file
        except BROKEN as problem:
            raise InvalidInputError(
                said("archive-entry-damaged", self.path, _name(entry), in_one_line(problem))
            ) from problem

    def check_ratio(self) -> None:
        """Raise InvalidInputError if its entries unpack to more than any training's numbers do."""
        unpacked = sum(entry.file_size for entry in self.entries.values())
        packed = sum(entry.compress_size for entry in self.entries.values())
        if unpacked > max(_FREE_BYTES, _MOST_RATIO * packed) * factor():
            raise InvalidInputError(said("archive-unpacks-too-large", self.path, packed, unpacked))


def _directory(file: IO[bytes], path: object) -> tuple[int, int]:
    """How many entries an archive says to have, and in how many bytes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 0xFFFF - _END.size))
    tail = file.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) - place < _END.size:
        raise InvalidInputError(said("no-zip-file", path))
    *_, count, directory, _, _ = _END.unpack_from(tail, place)
    before = max(0, size - len(tail) + place - _END_64_LOCATOR.size)
    file.seek(before)
    locator = file.read(_END_64_LOCATOR.size)
    if locator.startswith(b"PK\6\7") and len(locator) == _END_64_LOCATOR.size:
        file.seek(max(0, before - _END_64.size))
        end = file.read(_END_64.size)
        if len(end) == _END_64.size and end.startswith(b"PK\6\6"):
            *_, count, directory, _ = _END_64.unpack(end)
    file.seek(0)
    return int(count), int(directory)


def _are_apart(entries: list[zipfile.ZipInfo]) -> bool:
    """Whether each begins behind the end of the one before."""
    end = 0
    for entry in entries:
        start = entry.header_offset
        if start < end:
            return False
        end = start + _HEAD_BYTES + entry.compress_size
    return True


def _name(entry: zipfile.ZipInfo) -> str:
    return ascii(entry.filename[:80])

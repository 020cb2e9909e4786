"""What lies where in a zip archive of the plainest form: nothing packed, nothing encrypted, no comment.

Most tensor files are of this form, and the general reader (:mod:`msprobe.foreign.archives`) takes longer for one than
reading its values does. Whatever is not of this form is that reader's, which also says in words what is wrong.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from msprobe.messages import said

_END = struct.Struct("<4s4H2IH")
_END_64_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s4x2H4x3I3H8xI")
_LOCAL = struct.Struct("<4s5H3I2H")
_MOST_ENTRIES = 64
_FLAGS_KNOWN = 0x0808  # sizes behind the content, which the directory has; names in UTF-8
_UNSAID = 0xFFFFFFFF


class Stored(NamedTuple):
    """Where an entry begins in the archive, with its local header; the bytes of its content, and their checksum."""

    begin: int
    size: int
    crc: int


def content_of(data: memoryview, entry: Stored) -> memoryview:
    """The content of an entry. Raises ValueError where it does not lie where the directory says."""
    mark, *_, name_length, extra_length = _LOCAL.unpack_from(data, entry.begin)
    start = entry.begin + _LOCAL.size + name_length + extra_length
    if mark != b"PK\3\4" or start + entry.size > len(data):
        raise ValueError(said("stored-archive-without-entry"))
    return data[start : start + entry.size]


def stored_entries(data: memoryview) -> dict[str, Stored] | None:
    """The entries of an archive by their names; None for one that is not of the plainest form, or no archive."""
    entries: dict[str, Stored] = {}
    place, count, end = _directory(data)
    directory = bytes(data[place:end])
    behind = at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory):
            return None
        mark, flags, method, crc, packed, size, name_bytes, extra, comment, begin = _ENTRY.unpack_from(directory, at)
        if mark != b"PK\1\2" or flags & ~_FLAGS_KNOWN or method or packed != size or size == _UNSAID:
            return None
        if begin < behind or begin + _LOCAL.size + size > place:
            return None
        behind = begin + _LOCAL.size + size
        at += _ENTRY.size
        try:
            entries[directory[at : at + name_bytes].decode("ascii")] = Stored(begin, size, crc)
        except UnicodeDecodeError:
            return None
        at += name_bytes + extra + comment
    return entries if entries and at == len(directory) and len(entries) == count else None


def _directory(data: memoryview) -> tuple[int, int, int]:
    """Where the directory begins, how many entries it has, and where it ends; no entries if there is none."""
    end = len(data) - _END.size
    if end < 0:
        return 0, 0, 0
    mark, disk, first_disk, here, count, size, place, comment = _END.unpack_from(data, end)
    if mark != b"PK\5\6" or comment or disk or first_disk:
        return 0, 0, 0
    if end >= _END_64_LOCATOR.size + _END_64.size:
        mark, _, at, _ = _END_64_LOCATOR.unpack_from(data, end - _END_64_LOCATOR.size)
        if mark == b"PK\6\7":
            end -= _END_64_LOCATOR.size + _END_64.size
            mark, _, _, _, _, _, here, count, size, place = _END_64.unpack_from(data, end)
            if mark != b"PK\6\6" or at != end:
                return 0, 0, 0
    if here != count or count > _MOST_ENTRIES or place + size != end:
        return 0, 0, 0
    return place, count, end

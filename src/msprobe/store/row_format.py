"""The file of rows: ``dump_rows.bin`` beside ``dump.json`` (``debug_rows.bin`` beside ``debug.json``).

::

    magic "MSPROWS1" | length of the header (4 bytes, little-endian) | header, JSON | zeros | row | row | ...

The first row begins at a multiple of the size of a row. The header is data: ``version``, ``byteorder`` ("little" or
"big"), ``row_bytes``, ``start`` (of the first row), and ``fields``, a list of ``[name, type, count, offset]`` with the
types ``f4 f8 u4``. A reader takes the fields that it knows. A row that was never written is all ones (NaN).
"""

from __future__ import annotations

import json
import struct
import sys

MAGIC = b"MSPROWS1"
LENGTH = struct.Struct("<I")
VERSION = 1
ROW_BYTES = 128
FIELDS: tuple[tuple[str, str, int, int], ...] = (
    ("sum", "f8", 1, 0),
    ("squares", "f8", 1, 8),
    ("signed", "f8", 8, 16),
    ("blocks", "f4", 8, 80),
    ("max", "f4", 1, 112),
    ("min", "f4", 1, 116),
    ("zero", "u4", 1, 120),
    ("left_out", "u4", 1, 124),
)
# As rows lie in memory while they are recorded.
NATIVE = struct.Struct("=dd8d8fffII")
# Places of rows whose numbers have not come from a device.
MISSING = b"\xff" * ROW_BYTES
# What is left out of sums: NaN, infinities, and fill values of masks, which are larger.
LARGEST = 1e18
MOST_COUNTED = 0xFFFFFFFF


def block_of(count: int) -> int:
    """How many elements of ``count`` are in a block: an eighth, in whole words of 64 (of signs)."""
    return 64 * -(-count // 512)


def header() -> bytes:
    """All that stands before the first row."""
    start = 4 * ROW_BYTES
    header = {
        "version": VERSION,
        "byteorder": sys.byteorder,
        "row_bytes": ROW_BYTES,
        "start": start,
        "fields": FIELDS,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return (MAGIC + LENGTH.pack(len(text)) + text).ljust(start, b"\0")

"""What a training sends to who checks it: frames of bytes, each with one thing that its recorder has to say.

A frame is a fixed head, a header in JSON, and data: the elements of a tensor, or the text of a record::

    b"MSP1"  4 bytes    what follows is a frame of this form
    length   4 bytes    of the header, big-endian
    length   8 bytes    of the data
    CRC-32   4 bytes    of header and data

Nothing in it is executed or imported.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAGIC = b"MSP1"
HEAD = struct.Struct(">4sIQI")
#: A header says little: more is no header of ours.
MOST_HEADER_BYTES = 16 << 20
#: One tensor; a receiver takes no more than this into its memory.
MOST_DATA_BYTES = 16 << 30
_FIXED = ("what", "step", "rank", "sequence")

Data = bytes | bytearray | memoryview


class FrameError(Exception):
    """Bytes that are no frame. ``is_whole``: they have a frame's length, so that the next one begins behind them."""

    def __init__(self, message: str, is_whole: bool = False) -> None:
        super().__init__(message)
        self.is_whole = is_whole


@dataclass(frozen=True)
class Frame:
    """One thing. ``what`` is one of ``begin``, ``record``, ``stack``, ``parent``, ``tensor``, ``link``, ``error`` and
    ``end``; ``content`` what JSON says of it.
    """

    what: str
    step: int
    rank: int
    content: Mapping[str, Any] = field(default_factory=dict)
    data: Data = b""


def pack(frame: Frame, sequence: int) -> list[Data]:
    """A frame as bytes, in pieces to be sent one after the other. ``sequence``: its number among those of its rank."""
    fixed = {"what": frame.what, "step": frame.step, "rank": frame.rank, "sequence": sequence}
    header = json.dumps({**frame.content, **fixed}).encode()
    data = memoryview(frame.data).cast("B")
    crc = zlib.crc32(data, zlib.crc32(header))
    return [HEAD.pack(MAGIC, len(header), len(data), crc), header, data]


def unpack(read: Callable[[int], bytes | bytearray]) -> tuple[Frame, int]:
    """The next frame and its number; ``read(n)`` gives the next n bytes, no less.

    Raises FrameError for what is no frame.
    """
    magic, header_length, length, crc = HEAD.unpack(bytes(read(HEAD.size)))
    if magic != MAGIC:
        raise FrameError(f"a frame begins with {MAGIC!r}, not with {magic!r}")
    if header_length > MOST_HEADER_BYTES or length > MOST_DATA_BYTES:
        raise FrameError(f"a frame says that it has {header_length} bytes of header and {length} of data")
    header, data = bytes(read(header_length)), read(length)
    if zlib.crc32(data, zlib.crc32(header)) != crc:
        raise FrameError("the checksum of a frame is wrong", is_whole=True)
    try:
        content = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header of a frame is no JSON: {error}", is_whole=True) from error
    if not isinstance(content, dict):
        raise FrameError("the header of a frame is no object", is_whole=True)
    what, step, rank, sequence = (content.pop(name, None) for name in _FIXED)
    if not isinstance(what, str) or type(step) is not int or type(rank) is not int or type(sequence) is not int:
        raise FrameError(f"a frame of {what!r}, step {step!r}, rank {rank!r}, number {sequence!r}", is_whole=True)
    if step < 0 or rank < 0:
        raise FrameError(f"a frame of step {step} and rank {rank}", is_whole=True)
    return Frame(what, step, rank, content, data), sequence

"""What a training sends to who checks it: frames of bytes, each with one thing that its recorder has to say.

A frame is a fixed head, a header in JSON, and data: the elements of a tensor, or the text of a record::

    b"MSP1"  4 bytes    what follows is a frame of this form
    length   4 bytes    of the header, big-endian
    length   8 bytes    of the data
    CRC-32   4 bytes    of header and data

Nothing in it is executed or imported, and nothing is used before it is what :mod:`schema` says.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe.messages import said
from msprobe.precheck.online import schema

MAGIC = b"MSP1"
HEAD = struct.Struct(">4sIQI")
#: The kind of a frame that no sender sends: the one named in it sends no more.
GONE = "gone"
_FIXED = ("what", "step", "rank", "sequence")
# So much is read of a frame whose header is refused, to find out whether it was damaged on its way.
_MOST_UNUSED_BYTES = 1 << 20

Data = bytes | bytearray | memoryview


class FrameError(Exception):
    """Bytes that are no frame. ``is_whole``: they have a frame's length, so that the next one begins behind them.
    ``is_damaged``: they are not what was sent, and may be sent again.
    """

    def __init__(self, message: str, is_whole: bool = False, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.is_whole = is_whole
        self.is_damaged = is_damaged


@dataclass(frozen=True)
class WireFrame:
    """One thing. ``what`` is a kind of :data:`schema.FORMS`; ``content`` what JSON says of it. ``sender``: who has sent
    it, a name that nobody else knows; "" where it is not said.
    """

    what: str
    step: int
    rank: int
    content: Mapping[str, Any] = field(default_factory=dict)
    data: Data = b""
    sender: str = ""


def pack(frame: WireFrame, sequence: int, sender: str = "") -> list[Data]:
    """A frame as bytes, in pieces to be sent one after the other. ``sequence``: its number among those of its sender;
    ``sender``: the name of that one, if not the frame's own.
    """
    fixed: dict[str, Any] = {"what": frame.what, "step": frame.step, "rank": frame.rank, "sequence": sequence}
    if sender or frame.sender:
        fixed["sender"] = sender or frame.sender
    header = json.dumps({**frame.content, **fixed}).encode()
    data = memoryview(frame.data).cast("B")
    crc = zlib.crc32(data, zlib.crc32(header))
    return [HEAD.pack(MAGIC, len(header), len(data), crc), header, data]


def unpack(read: Callable[[int], bytes | bytearray]) -> tuple[WireFrame, int]:
    """The next frame and its number; ``read(n)`` gives the next n bytes, no less.

    Raises FrameError for what is no frame. Of a frame whose header is refused no more than a mebibyte is read.
    """
    magic, header_length, length, crc = HEAD.unpack(bytes(read(HEAD.size)))
    if magic != MAGIC:
        raise FrameError(said("frame-magic-wrong", MAGIC, magic))
    if header_length > schema.MOST_HEADER_BYTES or length > schema.MOST_DATA_BYTES:
        raise FrameError(said("frame-lengths", header_length, length))
    is_small = length <= _MOST_UNUSED_BYTES
    # At once, unless a header that is refused would cost the reading of much that nobody wants.
    whole = read(header_length + length if is_small else header_length)
    header = bytes(whole[:header_length])
    problem = ""
    content: dict[str, Any] = {}
    try:
        content = schema.header_of(header)
        schema.check_length(content, length)
    except ValueError as error:
        problem = str(error)
        if not is_small:
            raise FrameError(problem) from None
    data: Data = memoryview(whole)[header_length:] if is_small else read(length)
    if zlib.crc32(data, zlib.crc32(header)) != crc:
        raise FrameError(said("frame-checksum-wrong"), is_whole=True, is_damaged=True)
    if not problem and content["what"] == "record":
        data = bytes(data)
        try:
            schema.check_record(data)
        except ValueError as error:
            problem = str(error)
    if problem:
        raise FrameError(problem, is_whole=True)
    what, step, rank, sequence = (content.pop(name) for name in _FIXED)
    sender = content.pop("sender", "")
    return WireFrame(what, step, rank, content, data, sender), sequence

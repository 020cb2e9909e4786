"""What the receiver of a frame answers, and how bytes are read from a socket.

A word is four letters and a number of 8 bytes, big-endian::

    TAKE  sequence   the frame is there
    MORE  0          it came damaged and is wanted again
    SKIP  length     it is not wanted, and a text of so many bytes says why; the sender goes on
    DENY  length     it cannot be taken, or one before it was lost; the text says why, and the sender stops
    DONE  0          the farewell has been heard, and all that was taken before it is on the disk
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from msprobe.messages import said
from msprobe.precheck.online import frames

WORD = struct.Struct(">4sQ")
TAKE, MORE, SKIP, DENY, DONE = b"TAKE", b"MORE", b"SKIP", b"DENY", b"DONE"
#: A frame without content says that this rank sends no more.
FAREWELL = frames.HEAD.pack(b"BYE!", 0, 0, 0)
_MOST_REASON_BYTES = 500
_PIECE_BYTES = 1 << 20


def word_with_reason(word: bytes, reason: str) -> bytes:
    """``SKIP`` or ``DENY`` and why."""
    text = reason.encode("utf-8", "backslashreplace")[:_MOST_REASON_BYTES]
    return WORD.pack(word, len(text)) + text


def read_word(read: Callable[[int], bytes | bytearray]) -> tuple[bytes, int, str]:
    """A word, its number and its reason; ``read(n)`` gives the next n bytes. Raises EOFError for what is no word."""
    word, number = WORD.unpack(bytes(read(WORD.size)))
    if word not in (SKIP, DENY):
        return word, number, ""
    if number > _MOST_REASON_BYTES:
        raise EOFError(said("reason-too-long", number))
    text = bytes(read(number)).decode("utf-8", "replace")
    return word, 0, text if text.isprintable() else ascii(text)


def keep_alive(connection: socket.socket) -> None:
    """Ask an end that says nothing whether it is there: a machine without power closes no connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def read_exactly(connection: socket.socket, length: int) -> bytearray:
    """The next ``length`` bytes; memory is taken as they come, so that a length alone takes none."""
    received, piece = bytearray(), memoryview(bytearray(min(length, _PIECE_BYTES)))
    while len(received) < length:
        # Into the same memory: TLS gives 16 KiB at a time, whatever is asked for.
        count = connection.recv_into(piece, min(length - len(received), len(piece)))
        if not count:
            raise EOFError(said("bytes-received", len(received), length))
        received += piece[:count]
    return received

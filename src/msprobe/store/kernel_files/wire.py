"""The protobuf wire format, as far as reading a message needs it.

Source: https://protobuf.dev/programming-guides/encoding. Nothing is copied, and nothing is allocated by a length that
a file tells: a field of bytes is a view of the message.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_FIXED = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


class WireError(ValueError):
    """The bytes are no message."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an int (varints without sign, fixed ones too), or the bytes of a text, a message
    or a packed list. Raises WireError where the bytes are no message.
    """
    position = 0
    while position < len(data):
        tag, position = varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError(f"a field has the number 0 at byte {position}")
        if kind == VARINT:
            value, position = varint(data, position)
            yield number, value
            continue
        if kind in _FIXED:
            length = _FIXED[kind]
        elif kind == BYTES:
            length, position = varint(data, position)
        else:
            raise WireError(f"a field has the unknown wire type {kind} at byte {position}")
        if length > len(data) - position:
            raise WireError(f"a field of {length} bytes at byte {position} reaches beyond the end")
        piece = data[position : position + length]
        yield number, int.from_bytes(piece, "little") if kind in _FIXED else piece
        position += length


def varint(data: memoryview, position: int) -> tuple[int, int]:
    """A whole number without sign, and the place behind it."""
    value = 0
    for count in range(_MOST_VARINT_BYTES):
        if position >= len(data):
            raise WireError("a number is cut off at the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, position
    raise WireError(f"a number has more than 64 bits at byte {position}")


def packed(value: int | memoryview, most: int) -> list[int]:
    """The numbers of a repeated field, packed or one alone; not more than ``most``."""
    if isinstance(value, int):
        return [value]
    found: list[int] = []
    position = 0
    while position < len(value):
        number, position = varint(value, position)
        found.append(number)
        if len(found) > most:
            raise WireError(f"a list has more than {most} numbers")
    return found

"""The protobuf wire format, as far as reading a message needs it: the one reader of it.

Source: https://protobuf.dev/programming-guides/encoding. Nothing is copied, and nothing is allocated by a length that
a file states: a field of bytes is a view of the message, or its place in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msprobe.messages import said

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_FIXED = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


class WireError(ValueError):
    """The bytes are no message."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an int (varints without sign, fixed ones too), or the bytes of a text, a message
    or a packed list. Raises WireError where the bytes are no message.
    """
    for number, value in placed_fields(data):
        yield number, value if isinstance(value, int) else data[value]


def placed_fields(data: memoryview, within: slice | None = None) -> Iterator[tuple[int, int | slice]]:
    """As :func:`fields`, with the place of bytes in ``data``; of the message that lies ``within`` a place of it."""
    position, end = (0, len(data)) if within is None else (within.start, within.stop)
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError(said("protobuf-field-zero", position))
        if kind == VARINT:
            value, position = _varint(data, position, end)
            yield number, value
            continue
        if kind in _FIXED:
            length = _FIXED[kind]
        elif kind == BYTES:
            length, position = _varint(data, position, end)
        else:
            raise WireError(said("protobuf-wire-type", kind, position))
        if length > end - position:
            raise WireError(said("protobuf-field-beyond", length, position))
        place = slice(position, position + length)
        yield number, int.from_bytes(data[place], "little") if kind in _FIXED else place
        position += length


def packed(data: memoryview, value: int | slice, most: int) -> list[int]:
    """The numbers of a repeated field, packed at a place of ``data`` or one alone; not more than ``most``."""
    if isinstance(value, int):
        return [value]
    unpacked: list[int] = []
    position = value.start
    while position < value.stop:
        number, position = _varint(data, position, value.stop)
        unpacked.append(number)
        if len(unpacked) > most:
            raise WireError(said("protobuf-list-too-long", most))
    return unpacked


def numbers(data: memoryview, within: slice, most: int) -> list[int]:
    """Field 1 of a message, which is repeated: at most ``most`` numbers, each by itself or all in one field."""
    numbers_found: list[int] = []
    for field, value in placed_fields(data, within):
        if field == 1:
            numbers_found += packed(data, value, most)
            if len(numbers_found) > most:
                raise WireError(said("protobuf-list-too-long", most))
    return numbers_found


def signed(number: int) -> int:
    """A varint as a number of 64 bits with a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """A whole number without sign, and the place behind it."""
    value = 0
    for count in range(_MOST_VARINT_BYTES):
        if position >= end:
            raise WireError(said("protobuf-number-cut-off"))
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, position
    raise WireError(said("protobuf-number-too-long", position))

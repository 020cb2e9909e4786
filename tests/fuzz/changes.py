"""Changes of an input that keep its form: what is read behind the first check of a format is reached by these alone."""

from __future__ import annotations

import contextlib
import io
import json
import pickletools
import random
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzz.pieces import NUMBERS, PICKLES, STATEMENTS, TEXTS, VALUES

Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

MOST_BYTES = 1 << 18


def of_bytes(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Bytes that are changed, put in, taken out, repeated or cut off."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        place = dice.randrange(len(found) + 1)
        kind = dice.randrange(8)
        if kind == 0 and found:
            found[place % len(found)] ^= 1 << dice.randrange(8)
        elif kind == 1 and found:
            found[place % len(found)] = dice.randrange(256)
        elif kind == 2 and words:
            found[place:place] = dice.choice(words)
        elif kind == 3 and words:
            word = dice.choice(words)
            found[place : place + len(word)] = word
        elif kind == 4:
            del found[place : place + dice.choice((1, 2, 8, 64))]
        elif kind == 5:
            piece = found[place : place + dice.choice((1, 4, 16, 256))]
            found[place:place] = piece * dice.choice((1, 2, 50))
        elif kind == 6:
            size = dice.choice((1, 2, 4, 8))
            number = dice.choice(NUMBERS) & ((1 << 8 * size) - 1)
            found[place : place + size] = number.to_bytes(size, dice.choice(("little", "big")))
        elif len(found) > 8 and not dice.randrange(4):
            del found[place:]
    return bytes(found[:MOST_BYTES])


def tree(dice: random.Random, value: Any, names: Sequence[str] = ()) -> Any:
    """A tree of JSON in which one value, or name, is a different one."""
    if isinstance(value, dict) and value and dice.randrange(5):
        name = dice.choice(list(value))
        kind = dice.randrange(8)
        if kind == 0:
            return {key: inner for key, inner in value.items() if key != name}
        if kind == 1:
            return {**value, dice.choice([*names, *TEXTS]): value[name]}
        return {**value, name: tree(dice, value[name], names)}
    if isinstance(value, list) and value and dice.randrange(5):
        place = dice.randrange(len(value))
        kind = dice.randrange(8)
        if kind == 0:
            return value[:place] + value[place + 1 :]
        if kind == 1:
            return value + value * dice.choice((1, 3, 100))
        return [*value[:place], tree(dice, value[place], names), *value[place + 1 :]]
    kind = dice.randrange(6)
    if kind == 0:
        for _ in range(dice.choice((3, 50, 150, 900))):
            value = [value] if dice.randrange(2) else {"a": value}
        return value
    if kind == 1 and names:
        return dice.choice(names)
    return dice.choice(VALUES)


def _as_text(found: Any) -> bytes:
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")


def of_json(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """JSON with different values in it; sometimes what is no JSON any more."""
    if not dice.randrange(5):
        return of_bytes(dice, data, words)
    try:
        found = json.loads(data)
        for _ in range(dice.choice((1, 1, 2, 5))):
            found = tree(dice, found, [word.decode(errors="replace") for word in words])
        return _as_text(found)[:MOST_BYTES]
    except (ValueError, RecursionError):
        return of_bytes(dice, data, words)


def of_lines(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Lines (YAML, shell, Python, logs) that come, go, are repeated, moved or indented; or their bytes changed."""
    lines = data.split(b"\n")
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(len(lines) + 1)
        kind = dice.randrange(7)
        if kind <= 1 and words:
            lines[place:place] = dice.choice(words).split(b"\n")
        elif kind == 2 and lines:
            del lines[place % len(lines)]
        elif kind == 3 and lines:
            lines[place:place] = [lines[place % len(lines)]] * dice.choice((1, 3, 60))
        elif kind == 4 and lines:
            lines.insert(place, lines.pop(dice.randrange(len(lines))))
        elif kind == 5 and lines:
            lines[place % len(lines)] = dice.choice((b"  ", b"\t", b"- ", b"")) + lines[place % len(lines)].lstrip()
        elif lines:
            lines[place % len(lines)] = of_bytes(dice, lines[place % len(lines)], words)
        lines = lines or [b""]
    return b"\n".join(lines)[:MOST_BYTES]


def of_cells(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A csv file with different cells, more of them, or fewer."""
    if not dice.randrange(5):
        return of_lines(dice, data, words)
    rows = [line.split(b",") for line in data.split(b"\n")]
    for _ in range(dice.choice((1, 2, 5))):
        row = dice.choice(rows)
        kind = dice.randrange(5)
        texts = [text.encode("utf-8", "surrogatepass") for text in TEXTS]
        if kind <= 2 and row:
            row[dice.randrange(len(row))] = dice.choice([*texts, *words, b'"', b'""', b"-1", b"1e308", b"inf"])
        elif kind == 3 and row:
            del row[dice.randrange(len(row))]
        else:
            row.extend(row * dice.choice((1, 2, 200)))
    return b"\n".join(b",".join(row) for row in rows)[:MOST_BYTES]


def of_pickle(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A pickle with instructions that are put in, taken out, repeated or changed."""
    pieces: list[bytes] = []
    with contextlib.suppress(Exception):
        places = [place for _, _, place in pickletools.genops(data) if place is not None]
        pieces = [data[a:b] for a, b in zip(places, [*places[1:], len(data)], strict=True)]
    if not pieces or not dice.randrange(5):
        return of_bytes(dice, data, [*words, *PICKLES])
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(len(pieces))
        kind = dice.randrange(5)
        if kind <= 1:
            pieces.insert(place, dice.choice([*words, *PICKLES]))
        elif kind == 2 and len(pieces) > 1:
            del pieces[place]
        elif kind == 3:
            pieces[place:place] = pieces[max(0, place - dice.choice((1, 3, 10))) : place] * dice.choice((1, 2, 40))
        else:
            pieces[place] = of_bytes(dice, pieces[place], words) or b"N"
    return b"".join(pieces)[:MOST_BYTES]


def of_archive(inner: Change) -> Change:
    """An archive of entries that ``inner`` changes, under other names, packed otherwise, twice, or larger."""

    def change(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                entries = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
        except Exception:
            return of_bytes(dice, data, words)
        if not entries or not dice.randrange(4):
            return of_bytes(dice, data, words)
        for _ in range(dice.choice((1, 1, 2))):
            place = dice.randrange(len(entries))
            name, content = entries[place]
            kind = dice.randrange(7)
            if kind <= 2:
                entries[place] = name, inner(dice, content, words)
            elif kind == 3:
                entries[place] = dice.choice(("../x", "/x", "a/../../x", name.upper(), "", "a\\b", "x" * 300)), content
            elif kind == 4:
                entries.append((name, inner(dice, content, words)))
            elif kind == 5 and len(entries) > 1:
                del entries[place]
            else:
                entries[place] = name, bytes(8 << 20)
        made = io.BytesIO()
        with contextlib.suppress(Exception), zipfile.ZipFile(made, "w") as archive:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name, content in entries:
                    archive.writestr(name, content, dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
        packed = made.getvalue()
        return packed if dice.randrange(4) else of_bytes(dice, packed, words)

    return change


def of_database(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A database with other tables, views and values, or other bytes."""
    if not dice.randrange(3):
        return of_bytes(dice, data, words)
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(sqlite3.Error, ValueError), contextlib.closing(sqlite3.connect(file.name)) as base:
            tables = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for _ in range(dice.choice((1, 2, 3))):
                table = dice.choice(tables or ["t"])
                columns = [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]
                parts = {
                    "t": f'"{table}"',
                    "v": f'"{dice.choice([*tables, "v"])}"',
                    "c": f'"{dice.choice(columns or ["c"])}"',
                }
                with contextlib.suppress(sqlite3.Error):
                    base.execute(dice.choice(STATEMENTS).format(**parts))
            base.commit()
        return Path(file.name).read_bytes()[: 8 * MOST_BYTES]


def of_numbers(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A .npy file with a different header of the right length."""
    if not data.startswith(b"\x93NUMPY") or not dice.randrange(3):
        return of_bytes(dice, data, words)
    length = int.from_bytes(data[8:10], "little")
    header = (
        of_bytes(dice, data[10 : 10 + length].rstrip(), words)
        if dice.randrange(2)
        else repr(
            {
                "descr": dice.choice(
                    ("<f4", "|O", "<f8", ">i2", "|V0", "<U9", [("a", "<f4")], "x", "<M8[ns]", "|S1000000")
                ),
                "fortran_order": dice.choice((True, False, 1)),
                "shape": dice.choice(((2,), (-1,), (1 << 40,), (0, 1 << 62), (1,) * 70, (2.0,), (True,), ())),
            }
        ).encode()
    )
    header = header[:60000] + b"\n"
    return data[:8] + struct.pack("<H", len(header)) + header + data[10 + length :]


def of_safetensors(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A safetensors file with a different header of the right length."""
    length = int.from_bytes(data[:8], "little")
    if length > len(data) or not dice.randrange(4):
        return of_bytes(dice, data, words)
    header = of_json(dice, data[8 : 8 + length], words)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def of_message(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A dump file of a kernel: the length of its protobuf message, that, and values. Fields come and go."""
    length = int.from_bytes(data[:8], "little")
    if length > len(data) or not dice.randrange(4):
        return of_bytes(dice, data, words)
    message = bytearray(data[8 : 8 + length])
    for _ in range(dice.choice((1, 1, 3))):
        place = dice.randrange(len(message) + 1)
        field = dice.randrange(1, 16) << 3
        number = dice.choice([one & ((1 << 64) - 1) for one in NUMBERS])
        piece = dice.choice(
            (
                _varint(field) + _varint(number),
                _varint(field | 2) + _varint(number % 300) + bytes(number % 300),
                _varint(field | 2) + _varint(number),
                _varint(field | 1) + bytes(8),
                _varint(field | 5) + bytes(4),
                b"\xff" * 11,
            )
        )
        message[place : place + dice.choice((0, 0, 1, len(piece)))] = piece
    if not dice.randrange(4):
        message = bytearray(of_bytes(dice, bytes(message), words))
    return struct.pack("<Q", len(message)) + bytes(message) + data[8 + length :]


_FRAME = struct.Struct(">4sIQI")


def of_frames(dice: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Frames of the online check in which headers say something else, under a right checksum."""
    frames: list[tuple[bytes, bytes]] = []
    place = 0
    while place + _FRAME.size <= len(data):
        _, header_length, length, _ = _FRAME.unpack_from(data, place)
        place += _FRAME.size
        frames.append(
            (data[place : place + header_length], data[place + header_length : place + header_length + length])
        )
        place += header_length + length
    if not frames or not dice.randrange(6):
        return of_bytes(dice, data, words)
    for _ in range(dice.choice((1, 1, 2, 4))):
        number = dice.randrange(len(frames))
        header, content = frames[number]
        kind = dice.randrange(6)
        if kind <= 2:
            frames[number] = of_json(dice, header, words), content
        elif kind == 3:
            frames[number] = (
                header,
                of_json(dice, content, words) if content[:1] in b"{[" else of_bytes(dice, content, words),
            )
        elif kind == 4:
            frames.insert(dice.randrange(len(frames) + 1), frames[number])
        elif len(frames) > 1:
            del frames[number]
    return b"".join(
        _FRAME.pack(b"MSP1", len(header), len(content), zlib.crc32(content, zlib.crc32(header))) + header + content
        for header, content in frames
    )[:MOST_BYTES]

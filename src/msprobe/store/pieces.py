"""The text of the JSON files of a dump, in pieces of some hundred items."""

from __future__ import annotations

from collections.abc import Iterator

from msprobe.store import journal, row_format
from msprobe.store.entries import KEY_BYTES, ROW_NUMBER

# Where a record stands in the journal: position and length in one number.
LENGTH_BITS = 32
LENGTH = (1 << LENGTH_BITS) - 1
_BATCH = 512


def object_pieces(source: journal.Journal, places: dict[bytes, int], depth: int) -> Iterator[bytes]:
    """The JSON object of the frames at ``places``, as it stands at ``depth``, in pieces of some hundred
    items.
    """
    if not places:
        yield b"{}"
        return
    line = b"\n" + b" " * depth
    before = b"{" + line + b" "
    between = b"," + line + b" "
    every = list(places.values())
    for first in range(0, len(every), _BATCH):
        batch = [
            ((place >> LENGTH_BITS) + KEY_BYTES, (place >> LENGTH_BITS) + (place & LENGTH))
            for place in every[first : first + _BATCH]
        ]
        yield before + between.join(source.read_all(batch))
        before = between
    yield line + b"}"


def parent_pieces(parents: dict[bytes, bytes]) -> Iterator[bytes]:
    """The text of construct.json, in pieces of some hundred items."""
    if not parents:
        yield b"{}"
        return
    before = b"{\n "
    batch: list[bytes] = []
    for key, parent in parents.items():
        batch.append(key + b": " + parent)
        if len(batch) == _BATCH:
            yield before + b",\n ".join(batch)
            before = b",\n "
            batch.clear()
    if batch:
        yield before + b",\n ".join(batch)
    yield b"\n}"


def stack_pieces(stack_of: dict[bytes, int], frames: dict[int, bytes]) -> Iterator[bytes]:
    """``{"0": [[name, ...], [frame, ...]], ...}``: names that share their frames share one number."""
    groups: dict[bytes, list[bytes]] = {}
    for key, stack_id in stack_of.items():
        text = frames.get(stack_id)
        if text is not None:
            groups.setdefault(text, []).append(key)
    before = b"{"
    for number, (text, keys) in enumerate(groups.items()):
        names = b",\n   ".join(keys)
        yield before + b'\n "%d": [\n  [\n   ' % number + names + b"\n  ],\n  " + text + b"\n ]"
        before = b","
    yield b"\n}" if groups else b"{}"


def row_pieces(source: journal.Journal, rows: list[tuple[int, int]]) -> Iterator[bytes]:
    """The file of the rows that stand in the frames at these places, each with the number of its first row."""
    yield row_format.header()
    places = [
        ((place >> LENGTH_BITS) + KEY_BYTES + ROW_NUMBER.size, (place >> LENGTH_BITS) + (place & LENGTH))
        for _, place in rows
    ]
    end = 0
    if all(first == (end := end + size) - size for first, size in _sizes(rows, places)):
        for begin in range(0, len(places), _BATCH):
            yield b"".join(source.read_all(places[begin : begin + _BATCH]))
        return
    # Some came later than others that have greater numbers.
    whole = bytearray(row_format.MISSING * max(first + size for first, size in _sizes(rows, places)))
    for (first, _), data in zip(rows, source.read_all(places), strict=True):
        start = first * row_format.ROW_BYTES
        whole[start : start + len(data)] = data
    yield bytes(whole)


def _sizes(rows: list[tuple[int, int]], places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of each frame the number of the first row, and how many there are."""
    for (first, _), (start, end) in zip(rows, places, strict=True):
        yield first, (end - start) // row_format.ROW_BYTES

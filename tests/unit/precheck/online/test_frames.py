"""Frames: what is packed is unpacked again, and nothing else is."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import Frame, FrameError


def reader(data: bytes) -> Callable[[int], bytes]:
    place = 0

    def read(length: int) -> bytes:
        nonlocal place
        found = data[place : place + length]
        if len(found) < length:
            raise EOFError
        place += length
        return found

    return read


def packed(frame: Frame, sequence: int = 1) -> bytes:
    return b"".join(map(bytes, frames.pack(frame, sequence)))


def framed(header: bytes, data: bytes = b"") -> bytes:
    head = frames.HEAD.pack(frames.MAGIC, len(header), len(data), zlib.crc32(data, zlib.crc32(header)))
    return head + header + data


names = st.text().filter(lambda name: name not in ("what", "step", "rank", "sequence"))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.text(), st.integers(0, 1 << 60), st.integers(0, 1 << 30), st.dictionaries(names, values), st.binary())
def test_a_frame_comes_back_as_it_was_sent(what: str, step: int, rank: int, content: Any, data: bytes) -> None:
    frame = Frame(what, step, rank, content, data)
    assert frames.unpack(reader(packed(frame, 7))) == (frame, 7)


def test_every_damaged_byte_is_noticed() -> None:
    whole = packed(Frame("tensor", 0, 0, {"name": "a.pt"}, b"12345678"))
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        with pytest.raises((FrameError, EOFError)):
            frames.unpack(reader(bytes(damaged)))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=60))
def test_any_header_is_a_frame_or_an_error(header: bytes, data: bytes) -> None:
    with pytest.raises(FrameError) as found:
        frames.unpack(reader(framed(header, data)))
    assert found.value.is_whole


@pytest.mark.parametrize(
    "changed", [{"step": True}, {"step": -1}, {"rank": "0"}, {"rank": -2}, {"what": 1}, {"sequence": None}], ids=str
)
def test_headers_that_say_nothing_are_refused(changed: dict[str, Any]) -> None:
    sound = {"what": "end", "step": 0, "rank": 0, "sequence": 1}
    assert frames.unpack(reader(framed(json.dumps(sound).encode()))) == (Frame("end", 0, 0), 1)
    with pytest.raises(FrameError):
        frames.unpack(reader(framed(json.dumps({**sound, **changed}).encode())))


def test_a_header_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(FrameError):
        frames.unpack(reader(framed(b"[" * 100_000)))


def test_a_length_alone_takes_no_memory() -> None:
    head = struct.pack(">4sIQI", frames.MAGIC, 10, 1 << 60, 0)
    with pytest.raises(FrameError, match="bytes of header"):
        frames.unpack(reader(head))

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
from support.row_by_row import for_each

from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import FrameError, WireFrame


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


def packed(frame: WireFrame, sequence: int = 1) -> bytes:
    return b"".join(map(bytes, frames.pack(frame, sequence)))


def framed(header: bytes, data: bytes = b"") -> bytes:
    head = frames.HEAD.pack(frames.MAGIC, len(header), len(data), zlib.crc32(data, zlib.crc32(header)))
    return head + header + data


texts = st.text(min_size=1, max_size=50)
numbers = st.integers(0, (1 << 63) - 1)
parents = st.none() | st.just(False) | texts | st.tuples(st.none() | texts, numbers).map(list)
objects = st.dictionaries(st.text(), st.none() | st.booleans() | numbers | st.text() | st.lists(st.text()), max_size=3)
BEGIN = {"header": {"task": "tensor"}, "extra": {}, "kind": "dump", "with_stacks": True, "with_construct": False,
         "with_tensors": True}  # fmt: skip
contents = st.one_of(
    st.tuples(st.just("begin"), objects.map(lambda header: {**BEGIN, "header": header}), st.just(b"")),
    st.tuples(
        st.just("record"),
        st.fixed_dictionaries({"name": texts, "stack": st.none() | numbers, "parent": parents}),
        st.dictionaries(st.text(), numbers).map(lambda record: json.dumps(record).encode()),
    ),
    st.tuples(st.just("stack"), st.fixed_dictionaries({"stack": numbers, "frames": st.lists(texts)}), st.just(b"")),
    st.tuples(st.just("parent"), st.fixed_dictionaries({"name": texts, "parent": parents}), st.just(b"")),
    st.tuples(st.just("reserve"), st.fixed_dictionaries({"name": texts}), st.just(b"")),
    st.tuples(st.just("error"), st.fixed_dictionaries({"text": st.text()}), st.just(b"")),
    st.binary(max_size=50).map(lambda data: ("tensor", {"name": "a.pt", "dtype": "int8", "shape": [len(data)]}, data)),
    st.just(("link", {"name": "a.pt", "existing": "b.pt"}, b"")),
    st.tuples(st.just("end"), st.fixed_dictionaries({"is_complete": st.booleans()}), st.just(b"")),
)


@settings(max_examples=200, deadline=None)
@given(contents, numbers, st.integers(0, (1 << 31) - 1), numbers, st.sampled_from(["", "0123456789abcdef"]))
def test_a_frame_comes_back_as_it_was_sent(what: Any, step: int, rank: int, sequence: int, sender: str) -> None:
    frame = WireFrame(what[0], step, rank, what[1], what[2], sender)
    assert frames.unpack(reader(packed(frame, sequence))) == (frame, sequence)


def test_every_damaged_byte_is_noticed() -> None:
    whole = packed(WireFrame("tensor", 0, 0, {"name": "a.pt", "dtype": "int8", "shape": [8]}, b"12345678"))
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


RECORD = {"name": "Torch.add.0.forward", "stack": None, "parent": None}
TENSOR = {"name": "a.pt", "dtype": "float32", "shape": [1]}
STACK = {"stack": 1, "frames": ["a"]}
#: Numbers that are none, or that 64 bits do not hold.
ODD = (10**40, 1 << 63, -1, 1.0, True, "1", None, float("inf"), float("nan"), [1], {})


def refused(what: str, content: dict[str, Any], data: bytes = b"", **fixed: Any) -> FrameError:
    header = {**content, "what": what, "step": 0, "rank": 0, "sequence": 1, **fixed}
    with pytest.raises(FrameError) as found:
        frames.unpack(reader(framed(json.dumps(header).encode(), data)))
    return found.value


@for_each("value", ODD)
@for_each("field", ["step", "rank", "sequence"])
def test_numbers_of_a_header_are_whole_and_have_64_bits(field: str, value: Any) -> None:
    sound = {"what": "end", "step": 0, "rank": 0, "sequence": 1, "is_complete": True}
    assert frames.unpack(reader(framed(json.dumps(sound).encode())))[0].what == "end"
    problem = refused("end", {"is_complete": True}, **{field: value})
    assert (problem.is_whole, problem.is_damaged) == (True, False)


@for_each("value", [one for one in ODD if one is not None])
def test_numbers_of_stacks_are_whole_and_have_64_bits(value: Any) -> None:
    refused("stack", {**STACK, "stack": value})
    refused("record", {**RECORD, "stack": value}, b"{}")
    refused("record", {**RECORD, "parent": ["Module.a", value]}, b"{}")
    refused("tensor", {**TENSOR, "shape": [value]}, b"1234")


@for_each(
    ("what", "content", "data"),
    [
        ("record", RECORD, b"no json"),
        ("record", RECORD, b"1"),
        ("record", RECORD, b""),
        ("record", RECORD, b"[" * 150 + b"]" * 150),
        ("record", RECORD, b"[" * 100_000 + b"]" * 100_000),
        ("record", RECORD, b'{"a": ' + b"1" * 5000 + b"}"),
        ("record", RECORD, '{"a": 1}'.encode("utf-16")),
        ("record", {**RECORD, "name": 7}, b"{}"),
        ("record", {**RECORD, "name": ""}, b"{}"),
        ("record", {**RECORD, "name": "\ud800"}, b"{}"),
        ("tensor", {**TENSOR, "name": "\ud800.pt"}, b"1234"),
        ("record", {**RECORD, "parent": True}, b"{}"),
        ("record", {}, b"{}"),
        ("record", {**RECORD, "more": 1}, b"{}"),
        ("tensor", {**TENSOR, "shape": [3]}, b"1234"),
        ("tensor", {**TENSOR, "shape": [1 << 62, 1 << 62]}, b"1234"),
        ("tensor", {**TENSOR, "shape": [1] * 100}, b"1234"),
        ("tensor", {**TENSOR, "dtype": "os.system"}, b"1234"),
        ("tensor", {**TENSOR, "dtype": ["float32"]}, b"1234"),
        ("tensor", {**TENSOR, "name": "a.sh"}, b"1234"),
        ("tensor", {**TENSOR, "shape": {"0": 1}}, b"1234"),
        ("link", {"name": "a.pt"}, b""),
        ("link", {"name": "a.pt", "existing": 7}, b""),
        ("stack", {**STACK, "frames": [1]}, b""),
        ("stack", {**STACK, "frames": "abc"}, b""),
        ("stack", STACK, b"data"),
        ("begin", {**BEGIN, "header": []}, b""),
        ("begin", {**BEGIN, "kind": "other"}, b""),
        ("begin", {**BEGIN, "with_stacks": 1}, b""),
        ("begin", {**BEGIN, "extra": {"a": float("inf")}}, b""),
        ("end", {"is_complete": "yes"}, b""),
        ("end", {}, b""),
        ("end", {"is_complete": True, "sender": "../a"}, b""),
        ("error", {"text": ["a"]}, b""),
        ("run", {"command": "true"}, b""),
        ("gone", {}, b""),
    ],
)
def test_what_no_form_allows_is_refused(what: str, content: dict[str, Any], data: bytes) -> None:
    assert refused(what, content, data).is_whole


def test_of_a_large_frame_whose_header_is_refused_the_data_is_not_read() -> None:
    header = json.dumps({**TENSOR, "what": "tensor", "step": -1, "rank": 0, "sequence": 1}).encode()
    head = frames.HEAD.pack(frames.MAGIC, len(header), 8 << 30, 0)
    with pytest.raises(FrameError, match='"step"') as found:
        frames.unpack(reader(head + header))
    assert not found.value.is_whole


def test_a_header_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(FrameError):
        frames.unpack(reader(framed(b"[" * 100_000)))


def test_a_length_alone_takes_no_memory() -> None:
    head = struct.pack(">4sIQI", frames.MAGIC, 10, 1 << 60, 0)
    with pytest.raises(FrameError, match="bytes of header"):
        frames.unpack(reader(head))

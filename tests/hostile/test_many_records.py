"""What a file costs to read follows from its bytes, not from the most that it may have nor from what it claims."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.command_line import call

from hostile.limits import Called
from hostile.made import TENSOR, dump, monitored, record


def compact(folder: Path, count: int, value: str = "{}", after: str = "") -> Path:
    """A dump of many records without a line break, as a tool may write it."""
    file = dump(folder / "A", {})
    records = ",".join(f'"Functional.a.{n}.forward":{value}' for n in range(count))
    file.write_text(file.read_text().replace('"data": {}', f'"data":{{{records}}}{after}'))
    return file.parents[2]


def test_a_few(tmp_path: Path) -> None:
    answer = call("summary", compact(tmp_path, 10))
    assert answer.returncode == 0
    assert "10" in answer.stdout


def test_two_hundred_and_fifty_thousand(tmp_path: Path) -> None:
    """Seven megabytes."""
    answer = Called("summary", compact(tmp_path, 250_000), cwd=tmp_path)
    answer.demand_quick(mebibytes=256)
    assert answer.status == 0, answer.text


def test_records_of_empty_lists(tmp_path: Path) -> None:
    """Two bytes of text for each object of Python."""
    folder = compact(tmp_path, 200, '{"input_args":[' + ",".join(["[]"] * 10_000) + '],"output":[]}')
    Called("summary", folder, cwd=tmp_path).demand_quick(mebibytes=256)


def test_one_record_of_megabytes(tmp_path: Path) -> None:
    folder = compact(tmp_path, 1, '{"input_args":[' + ",".join(["[]"] * 2_000_000) + '],"output":[]}')
    Called("summary", folder, cwd=tmp_path).demand_quick(mebibytes=700)


def test_names_that_stand_twice(tmp_path: Path) -> None:
    file = dump(tmp_path / "A", {})
    records = ",".join(['"a.forward":{}'] * 200_000)
    file.write_text(file.read_text().replace('"data": {}', f'"data":{{{records}}}'))
    answer = Called("summary", tmp_path / "A", cwd=tmp_path)
    answer.demand_quick(mebibytes=256)
    assert answer.status == 0, answer.text


def test_a_dump_that_is_one_level_of_names(tmp_path: Path) -> None:
    """Calls without "data", as op_generate of earlier tools writes them."""
    place = tmp_path / "A"
    place.mkdir()
    names = ",".join(f'"a.{n}.forward":{{}}' for n in range(200_000))
    (place / "dump.json").write_text(f"{{{names}}}")
    Called("summary", place, cwd=tmp_path).demand_quick(mebibytes=256)


@pytest.mark.parametrize(
    "text",
    [
        '{"data": {"a": {}, }}',
        '{"data": {"a": {} "b": {}}}',
        '{"data": {"a" {}}}',
        '{"data": {"a": {}}',
        '{"data": {"a": {}}} x',
        '{"data": {1: {}}}',
        '{"data": {"a": ' + "[" * 100_000,
        '{"data": {"a": ' + "9" * 5000 + "}}",
        '{"data": "x"}',
        '{"data": {"\\ud8": {}}}',
        '{"data": {}, "data": 1}',
        '"data"',
        "",
    ],
)
def test_texts_that_are_no_dump(tmp_path: Path, text: str) -> None:
    (tmp_path / "dump.json").write_text(text)
    answer = call("check", tmp_path, "-o", tmp_path / "out")
    assert answer.returncode == 2
    assert "dump.json" in answer.stderr
    assert len(answer.stderr) < 1000


def test_every_form_of_a_dump_holds_the_same(tmp_path: Path) -> None:
    from msprobe.store.reader import open_dump

    data = {"Functional.ü.0.forward": record(), 'Functional."\\.1.forward': record({**TENSOR, "Max": float("nan")})}
    usual = dump(tmp_path / "A", data)
    import json

    content = json.loads(usual.read_text())
    for number, (indent, ascii_only) in enumerate([(None, True), (1, True), (4, False), (None, False)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = json.dumps(content, indent=indent, ensure_ascii=ascii_only)
        (folder / "dump.json").write_text(text, encoding="utf-8")
        part = open_dump(folder).part()
        assert part.names() == list(data)
        assert repr(dict(part.records())) == repr(data)
        assert part.header["level"] == "L1"


def test_stacks_of_many_names(tmp_path: Path) -> None:
    place = dump(tmp_path / "A", {"Functional.a.0.forward": record()}).parent
    groups = ",".join(f'"{n}":[["a.{n}"],[]]' for n in range(200_000))
    (place / "stack.json").write_text(f"{{{groups}}}")
    words = "check", tmp_path / "A", "-o", tmp_path / "out"
    Called(*words, cwd=tmp_path).demand_quick(mebibytes=512)


def test_sketches_where_memory_is_limited(tmp_path: Path) -> None:
    """A file of some bytes, read where a process may have four gibibytes, and one that claims more."""
    for number, data in enumerate((b"", b"L" + struct.pack("<II", (1 << 32) - 1, 0) + b"[]", b"x" * 100)):
        sides = [monitored(tmp_path / f"{number}{side}") for side in "AB"]
        for side in sides:
            (next(side.iterdir()) / "sketch.bin").write_bytes(data)
        Called("monitor", "diff", *sides, cwd=tmp_path, gibibytes=16).demand_quick()


def test_kernel_files_whose_sizes_are_claims(tmp_path: Path) -> None:
    def varint(value: int) -> bytes:
        found = b""
        while value > 127:
            found += bytes([value & 127 | 128])
            value >>= 7
        return found + bytes([value])

    def field(number: int, data: bytes | int) -> bytes:
        if isinstance(data, int):
            return varint(number << 3) + varint(data)
        return varint(number << 3 | 2) + varint(len(data)) + data

    shapes = {"large": varint(1 << 40) * 2, "many": varint(1) * 100_000, "beyond": varint((1 << 63) + 5) * 8}
    for name, shape in shapes.items():
        tensor = field(1, 1) + field(2, 0) + field(3, field(1, shape)) + field(5, 1 << 50)
        message = field(4, tensor) * 3
        path = tmp_path / f"Add.{name}.1.2.1234567890"
        path.write_bytes(struct.pack("<Q", len(message)) + message + bytes(64))
        answer = call("parse", "-d", path, "-o", tmp_path / "out")
        assert answer.returncode in (1, 2), answer.stderr
    endless = tmp_path / "Add.endless.1.2.1234567890"
    endless.write_bytes(struct.pack("<Q", 1 << 63) + b"\xff" * 64)
    assert call("parse", "-d", endless, "-o", tmp_path / "out").returncode in (1, 2)


def test_checkpoints_of_mindspore_that_repeat_a_name(tmp_path: Path) -> None:
    """A slice of one element 100,000 times; then dimensions without end."""
    tensor = b"\x12\x05Int32" + b"\x1a\x04\0\0\0\0"
    one = b"\x0a\x01w" + b"\x12" + bytes([len(tensor)]) + tensor
    (tmp_path / "w.ckpt").write_bytes((b"\x0a" + bytes([len(one)]) + one) * 100_000)
    words = "config_check", "-c", tmp_path / "w.ckpt", tmp_path / "w.ckpt", "-o", tmp_path / "out.json"
    Called(*words, cwd=tmp_path).demand_quick(mebibytes=512)

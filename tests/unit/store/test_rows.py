"""Rows of tensors, written and read: finished steps, those that were killed, and files of strangers."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe import log
from msprobe.store import layout, row_format
from msprobe.store.reader import open_dump
from msprobe.store.rows import StoredRows, TensorRow
from msprobe.store.writer import DumpWriter

HEADER: dict[str, object] = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}


def row_of(number: int) -> bytes:
    """A row by whose sum its number is known."""
    return row_format.NATIVE.pack(
        number, 4.0 * number, *range(number, number + 8), *([2.0] * 8), number + 1, number - 1, 3, 1
    )


def rows_of(first: int, count: int) -> bytes:
    return b"".join(row_of(number) for number in range(first, first + count))


def entry(number: Any, **further: Any) -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 1.0, "row": number, **further}


def record(*numbers: Any) -> dict[str, Any]:
    return {"input_args": [entry(number) for number in numbers], "input_kwargs": {}, "output": []}


def writer(tmp_path: Path) -> DumpWriter:
    return DumpWriter(tmp_path / "step0" / "rank", HEADER)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings, each key once as the log has them."""
    lines: list[str] = []
    keys = set()

    def once(key: Any, level: str, text: str) -> None:
        if key not in keys:
            keys.add(key)
            lines.append(text)

    monkeypatch.setattr(log, "once", once)
    return lines


def test_a_finished_step_has_its_rows_in_a_file(tmp_path: Path, said: list[str]) -> None:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(0, 1), None, False, (0, rows_of(0, 2)))
    step.put_call("Torch.add.1.forward", record(1, 0), None, False)
    step.put_call("Torch.add.2.forward", record(2), None, False, (2, rows_of(2, 1)))
    step.publish(final=True)
    part = open_dump(tmp_path).part()
    assert len(part.rows) == 3
    columns = part.tensors()
    assert columns.row.tolist() == [0, 1, 1, 0, 2]
    table = part.rows.take(columns.row)
    assert table["sum"].tolist() == [0, 1, 1, 0, 2]
    assert table["signed"].shape == (5, 8)
    assert table["signed"][4].tolist() == list(range(2, 10))
    found = part.rows.of(entry(1, nan=1, inf=2))
    assert found == TensorRow(2.0, 0.0, 1.0, 4.0, (2.0,) * 8, tuple(map(float, range(1, 9))), 3, 1, 1, 2)
    assert found.norm == 2.0
    assert part.rows.row(1) == TensorRow(2.0, 0.0, 1.0, 4.0, (2.0,) * 8, tuple(map(float, range(1, 9))), 3, 1)
    assert not said


def test_rows_that_come_later_take_their_places(tmp_path: Path) -> None:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(0, 1), None, False, (0, row_format.MISSING + row_of(1)))
    step.put_rows(2, row_format.MISSING)
    step.publish(final=False)
    assert open_dump(tmp_path).part().rows.row(0) is None
    step.put_rows(0, row_of(0))
    step.publish(final=True)
    rows = open_dump(tmp_path).part().rows
    assert [row and row.sum for row in map(rows.row, range(3))] == [0.0, 1.0, None]
    assert np.isnan(rows.take([2, -1])["sum"]).all()


def test_a_step_that_was_killed_has_the_rows_of_its_records(tmp_path: Path) -> None:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(0, 1), None, False, (0, rows_of(0, 2)))
    step.publish(final=False)
    step.put_rows(2, rows_of(2, 3))
    step.put_call("Torch.add.1.forward", record(5), None, False, (5, rows_of(5, 1)))
    (journal,) = layout.journals(step.folder)
    # As a kill leaves it, in a folder of its own.
    for name in (None, layout.DUMP_FILE):
        folder = tmp_path / f"killed{name}" / "step0" / "rank"
        folder.mkdir(parents=True)
        (folder / journal.name).write_bytes(journal.read_bytes())
        if name:
            for file in (layout.DUMP_FILE, layout.ROWS_FILE):
                (folder / file).write_bytes((step.folder / file).read_bytes())
        part = open_dump(tmp_path / f"killed{name}").part()
        assert not part.complete
        assert [part.rows.row(number).sum for number in range(6)] == [0, 1, 2, 3, 4, 5]  # type: ignore[union-attr]
        assert part.rows.take(part.tensors().row)["sum"].tolist() == [0, 1, 5]
        part.close()


@pytest.mark.parametrize("cut", range(0, 6 * 128, 37))
def test_a_journal_that_is_cut_off_has_the_rows_of_the_records_that_are_whole(tmp_path: Path, cut: int) -> None:
    step = writer(tmp_path)
    for number in range(4):
        rows = (2 * number, rows_of(2 * number, 2))
        step.put_call(f"Torch.add.{number}.forward", record(2 * number, 2 * number + 1), None, False, rows)
    (journal,) = layout.journals(step.folder)
    folder = tmp_path / "killed" / "step0" / "rank"
    folder.mkdir(parents=True)
    whole = journal.read_bytes().rstrip(b"\0")
    (folder / journal.name).write_bytes(whole[: len(whole) - cut])
    part = open_dump(tmp_path / "killed").part()
    numbers = part.tensors().row
    assert part.rows.take(numbers)["sum"].tolist() == numbers.tolist()
    part.close()


def test_old_rows_go_with_the_dump(tmp_path: Path) -> None:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(0), None, False, (0, rows_of(0, 1)))
    step.publish(final=True)
    assert (step.folder / layout.ROWS_FILE).exists()
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", {"input_args": [entry(0)]}, None, False)
    step.publish(final=True)
    assert not (step.folder / layout.ROWS_FILE).exists()


def test_a_reader_goes_to_other_processes(tmp_path: Path) -> None:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(0), None, False, (0, rows_of(0, 1)))
    step.publish(final=True)
    part = pickle.loads(pickle.dumps(open_dump(tmp_path).part()))
    assert part.rows.row(0) is not None


# ---------------------------------------------------------------- strangers


def dump_with(tmp_path: Path, data: bytes | None, *numbers: Any) -> StoredRows:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(*numbers), None, False)
    step.publish(final=True)
    if data is not None:
        (step.folder / layout.ROWS_FILE).write_bytes(data)
    return open_dump(tmp_path).part().rows


def with_header(**changed: Any) -> bytes:
    told = {
        "version": 1,
        "byteorder": "little",
        "row_bytes": 128,
        "start": 512,
        "fields": [list(field) for field in row_format.FIELDS],
        **changed,
    }
    text = json.dumps(told).encode()
    return (row_format.MAGIC + row_format.LENGTH.pack(len(text)) + text).ljust(512, b"\0") + rows_of(0, 2)


STRANGE: dict[str, bytes] = {
    "nothing": b"",
    "the beginning": row_format.MAGIC[:5],
    "another magic": b"MSPROWS9" + with_header()[8:],
    "a header without end": row_format.MAGIC + b"\xff\xff\xff\xff" + b"{" * 600,
    "a header that is cut off": with_header()[:60],
    "no JSON": row_format.MAGIC + row_format.LENGTH.pack(400) + b"[" * 900,
    "a list": row_format.MAGIC + row_format.LENGTH.pack(2) + b"[]" + bytes(900),
    "another version": with_header(version=2),
    "no byte order": with_header(byteorder="middle"),
    "rows of no bytes": with_header(row_bytes=0),
    "rows of minus one byte": with_header(row_bytes=-1),
    "huge rows": with_header(row_bytes=1 << 70),
    "a huge start": with_header(start=1 << 70),
    "a start that is text": with_header(start="512"),
    "no fields": with_header(fields=[]),
    "fields of another form": with_header(fields=[["sum"]]),
    "fields beyond the row": with_header(fields=[["sum", "f8", 1, 0], ["squares", "f8", 1, 124]]),
    "a field before the row": with_header(fields=[["sum", "f8", 1, -8], ["squares", "f8", 1, 8]]),
    "a field of another type": with_header(fields=[["sum", "O", 1, 0], ["squares", "f8", 1, 8]]),
    "a field of many": with_header(fields=[["sum", "f8", 1 << 40, 0], ["squares", "f8", 1, 8]]),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_file_of_rows_has_none_and_one_line_says_so(tmp_path: Path, said: list[str], kind: str) -> None:
    rows = dump_with(tmp_path, STRANGE[kind], 0, 1)
    assert rows.row(0) is None
    assert rows.of(entry(1)) is None
    assert np.isnan(rows.take([0, 1])["sum"]).all()
    assert len(rows) == 0
    assert len([line for line in said if layout.ROWS_FILE in line]) in (1, 2)


def test_a_file_that_is_cut_off_has_the_rows_that_are_whole(tmp_path: Path, said: list[str]) -> None:
    rows = dump_with(tmp_path, with_header()[:-1], 0, 1)
    assert rows.row(0) is not None
    assert rows.row(1) is None
    assert rows.row(1) is None
    assert len(said) == 1


@pytest.mark.parametrize("number", [-1, 2, 1 << 61, 1 << 200, 1.0, True, None, "0", [0], {"a": 0}, math.nan])
def test_a_number_that_is_none_has_no_row(tmp_path: Path, number: Any) -> None:
    rows = dump_with(tmp_path, with_header(), number)
    assert rows.of(entry(number)) is None
    part = open_dump(tmp_path).part()
    assert np.isnan(part.rows.take(part.tensors().row)["sum"]).all()


def test_counts_that_are_none_count_nothing(tmp_path: Path) -> None:
    rows = dump_with(tmp_path, with_header(), 0)
    found = rows.of(entry(0, nan="many", inf=-3, zero=[1]))
    assert found is not None
    assert (found.nan, found.inf, found.zero) == (0, 0, 3)


def test_fields_of_a_later_layout_are_taken_where_they_are_known(tmp_path: Path) -> None:
    fields = [["sum", "f8", 1, 0], ["squares", "f8", 1, 8], ["cubes", "f8", 1, 16]]
    rows = dump_with(tmp_path, with_header(fields=fields), 0, 1)
    found = rows.row(1)
    assert found is not None
    assert (found.sum, found.squares) == (1.0, 4.0)
    assert all(map(math.isnan, (*found.signed, *found.blocks, found.max)))
    assert np.isnan(rows.take([1])["signed"]).all()


def test_rows_of_a_machine_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    head = with_header(byteorder="big")[:512]
    row = row_format.struct.pack(">dd8d8fffII", 7.0, 9.0, *range(8), *([2.0] * 8), 1, -1, 3, 1)
    found = dump_with(tmp_path, head + row, 0).row(0)
    assert found is not None
    assert (found.sum, found.squares, found.zero) == (7.0, 9.0, 3)


def link(path: Path, there: Path) -> None:
    path.symlink_to(there)


def pipe(path: Path, there: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, there: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("kind", [link, pipe, folder])
def test_only_a_regular_file_of_the_folder_is_opened(
    tmp_path: Path, said: list[str], kind: Callable[[Path, Path], None]
) -> None:
    there = tmp_path / "elsewhere"
    there.write_bytes(with_header())
    rows = dump_with(tmp_path, None, 0)
    kind(tmp_path / "step0" / "rank" / layout.ROWS_FILE, there)
    assert rows.row(0) is None
    assert said


def test_changed_files_of_rows_end_in_rows_or_none(tmp_path: Path, said: list[str]) -> None:
    generator = random.Random(0)
    good = with_header()
    path = tmp_path / layout.ROWS_FILE
    for _ in range(400):
        data = bytearray(good)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(440)] = generator.randrange(256)
        path.write_bytes(data[: generator.choice((len(data), generator.randrange(len(data))))])
        rows = StoredRows(path)
        for number in (0, 1, 5):
            found = rows.row(number)
            assert found is None or isinstance(found, TensorRow)
        rows.take([0, 1, -1, 1 << 40])
        rows.close()


def test_a_journal_whose_numbers_are_huge_costs_nothing(tmp_path: Path) -> None:
    step = writer(tmp_path)
    step.put_call("Torch.add.0.forward", record(0, 1 << 60), None, False, (1 << 60, rows_of(0, 1)))
    step.put_rows(0, rows_of(0, 1))
    part = open_dump(tmp_path).part()
    assert part.rows.row(1 << 60) is None
    assert part.rows.row(0) is not None

"""Dumps whose records are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.errors import InvalidInputError
from msprobe.store import durable, layout
from msprobe.store.reader import open_dump
from msprobe.store.writer import DumpWriter

HEADER = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}


def written(folder: Path, compress: bool, count: int = 3, final: bool = True, kind: layout.FileKind = "dump") -> Path:
    writer = DumpWriter(folder, dict(HEADER), compress=compress, kind=kind)
    for number in range(count):
        writer.put(f"Functional.relu.{number}.forward", {"input_args": [number], "output": ["é\n" * number]})
        if number == 1:
            writer.publish(final=False)
    writer.publish(final=final)
    if final:
        durable.drain()
    return folder


def records(path: Path) -> dict[str, Any]:
    part = open_dump(path).part()
    assert part.complete
    return dict(part.records())


@pytest.mark.parametrize("kind", ["dump", "debug"])
def test_a_packed_dump_reads_as_the_plain_one(tmp_path: Path, kind: layout.FileKind) -> None:
    plain = written(tmp_path / "plain" / "step0" / "rank0", False, kind=kind)
    packed = written(tmp_path / "packed" / "step0" / "rank0", True, kind=kind)
    assert {path.name for path in packed.iterdir()} >= {f"{kind}.json.zst"}
    assert not (packed / f"{kind}.json").exists()
    for path in (tmp_path / "packed", packed.parent, packed, packed / f"{kind}.json.zst"):
        assert records(path) == records(plain)


def test_a_packed_dump_of_which_the_end_did_not_come_is_incomplete(tmp_path: Path) -> None:
    folder = written(tmp_path / "step0" / "rank0", True, final=False)
    part = open_dump(tmp_path).part()
    assert not part.complete
    assert len(part) == 3
    assert (folder / "dump.json.zst").exists()


@pytest.mark.parametrize("first", [True, False])
def test_a_dump_of_the_other_form_does_not_stay_beside_the_new_one(tmp_path: Path, first: bool) -> None:
    folder = written(tmp_path / "step0" / "rank0", first, 5)
    written(folder, not first, 2)
    assert len(records(tmp_path)) == 2
    assert sum(layout.kind_of(path.name) is not None for path in folder.iterdir()) == 1


def test_a_packed_file_that_is_cut_off_is_said_to_be(tmp_path: Path) -> None:
    file = written(tmp_path / "step0" / "rank0", True, 200) / "dump.json.zst"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InvalidInputError, match=r"dump\.json\.zst"):
        open_dump(tmp_path).part()

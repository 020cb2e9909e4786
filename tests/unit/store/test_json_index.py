"""What is in memory of a ``dump.json`` that was read."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from msprobe.store import json_index
from msprobe.store.reader import open_dump


def _write(folder: Path, number: str) -> None:
    folder.mkdir()
    records = ",\n".join(
        f'  "Tensor.add.{index}.forward": {{"output": [{{"Max": {number}}}, {{"Max": {number}}}]}}'
        for index in range(2000)
    )
    (folder / "dump.json").write_text(f'{{\n "task": "statistics",\n "data": {{\n{records}\n }}\n}}\n')


@pytest.mark.parametrize("number", ["1.5", "NaN"])
def test_names_and_keys_of_two_dumps_are_in_memory_once(tmp_path: Path, number: str) -> None:
    found = []
    for side in ("one", "other"):
        _write(tmp_path / side, number)
        part = open_dump(tmp_path / side).part()
        found.append(list(part.records()))
        part.close()
    for (name, record), (twin, other) in zip(*found, strict=True):
        assert name is twin
        assert len({id(key) for one in (record, other) for leaf in one["output"] for key in leaf}) == 1


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system takes no advice on memory")
def test_a_file_that_was_read_stays_in_no_memory(tmp_path: Path) -> None:
    _write(tmp_path / "one", "1.5")
    part = open_dump(tmp_path / "one").part()
    assert len(list(part.records())) == 2000
    assert _kilobytes_of(tmp_path / "one/dump.json") <= 16
    assert part.record("Tensor.add.7.forward") == {"output": [{"Max": 1.5}, {"Max": 1.5}]}
    part.close()


def test_what_is_no_json_names_its_record(tmp_path: Path) -> None:
    with pytest.raises(json_index.InvalidInputError, match="record 'x'"):
        json_index.parse_loose(b'{"Max": NaN,', tmp_path / "dump.json", ", record 'x',")


def _kilobytes_of(file: Path) -> int:
    """How much of a mapped file is in the memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(file)):
            return next(int(one.split()[1]) for one in lines if one.startswith("Rss:"))
    raise AssertionError(f"{file} is not mapped")

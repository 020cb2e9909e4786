"""Each input of the corpus is read, or refused in words, within its limits; what once was wrong stays there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz.readers import CORPUS, READERS
from fuzz.run import is_honest, read_files, read_one

#: Inputs of readers that are still wrong, one in a line: READER/FILE. They must be right before a release.
OPEN = frozenset((CORPUS / "OPEN").read_text().split())
INPUTS = [path for reader in READERS.values() for path in reader.seeds()]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", READERS)
def test_every_input_is_read_or_refused_in_words(name: str) -> None:
    reader = READERS[name]
    found = {f"{name}/{path.name}": one for path, one in read_files(reader, reader.seeds()).items()}
    wrong = {path: one for path, one in found.items() if path not in OPEN}
    assert not wrong, "".join(f"{path}: {one.what} {one.where}\n{one.text}" for path, one in wrong.items())
    if found:
        pytest.xfail(", ".join(f"{path}: {one.what} {one.where}" for path, one in found.items()))


def test_every_reader_has_an_honest_input_and_every_input_a_reader() -> None:
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} == set(READERS)
    assert all(any(map(is_honest, reader.seeds())) for reader in READERS.values())
    assert sum(path.stat().st_size for path in INPUTS) < 2 << 20
    assert {f"{path.parent.name}/{path.name}" for path in INPUTS} >= OPEN


@pytest.mark.parametrize("name", READERS)
def test_changes_of_an_input_are_the_same_for_the_same_dice(name: str) -> None:
    reader = READERS[name]
    data = reader.seeds()[0].read_bytes()
    made = [
        [reader.change(dice, data, reader.words) for _ in range(5)] for dice in (random.Random(3), random.Random(3))
    ]
    assert made[0] == made[1] or name in ("tensor_pt", "checkpoint_pt", "checkpoint_npz", "pack", "graph_database")
    assert any(one != data for one in made[0])


def test_what_is_wrong_is_found_and_kept_with_its_command(tmp_path: Path) -> None:
    from dataclasses import replace

    from fuzz.run import write

    def read(data: bytes, folder: Path) -> None:
        raise KeyError("x") if data == b"key" else ValueError

    reader = replace(READERS["wire_frames"], read=read)
    found = read_one(reader, b"key", b"key")
    assert found is not None
    assert found.what == "KeyError"
    path = write(found, tmp_path / "found")
    assert path.read_bytes() == b"key"
    assert f"fuzz.run wire_frames {path}" in path.with_name(f"{path.name}.txt").read_text()

    def hang(data: bytes, folder: Path) -> None:
        while True:
            pass

    found = read_one(replace(reader, read=hang, seconds=0.05), b"", b"")
    assert found is not None
    assert found.what.startswith("more time")

"""More records in one step than 2 or 4 GiB: the journal begins so far inside its file, the rest of which is a hole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.native_and_python import use_python

from msprobe import log
from msprobe.capture import native
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.config.settings import Settings
from msprobe.store import journal, journal_reader
from msprobe.store.journal import MappedJournal, PlainJournal
from msprobe.store.json_index import read_index
from msprobe.store.reader import open_dump

GIB = 1 << 30
# Where the second record begins, at the latest: the third lies on either side of the border.
BORDERS = {"2 GiB": 2 * GIB, "4 GiB": 4 * GIB, "far behind": 9 * GIB}


@pytest.fixture(autouse=True)
def _fresh_log() -> Iterator[None]:
    log.forget_once()
    yield
    log.forget_once()


@pytest.fixture(params=["native", "python"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of both puts the records."""
    if request.param == "python":
        use_python(monkeypatch)
    elif not native.built:
        pytest.skip("the C extension was not built")
    return str(request.param)


@pytest.fixture(params=["mapped", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(journal, "_can_be_mapped", lambda descriptor: request.param == "mapped")
    return str(request.param)


def move_on(written: Any, position: int) -> None:
    """Go on at this position of the file; nothing is written to what is left out."""
    if isinstance(written, MappedJournal):
        allocated = (position // (1 << 20) + 1) << 20
        written._map.resize(allocated)
        written._allocated = allocated
    else:
        written.flush()
    written.size = position


def begin(folder: Path) -> Session:
    stacks = CallStacks(lambda file: False, lambda code: False, lambda code: False)
    session = Session(replace(Settings(), dump_path=str(folder), level="mix"), "pytorch", lambda: None, stacks)
    session.start()
    return session


def put(session: Session, number: int) -> None:
    tree = {"input_args": [number], "output": [f"result {number}"]}
    session.put(f"Torch.add.{number}.forward", tree, session.stacks.here(), "Module.it.It.forward.0")


@pytest.mark.parametrize("border", BORDERS.values(), ids=BORDERS)
def test_a_step_is_whole_whatever_the_size_of_its_journal(tmp_path: Path, path: str, form: str, border: int) -> None:
    session = begin(tmp_path)
    put(session, 0)
    assert session._writer is not None
    written = session._writer._journal
    assert isinstance(written, MappedJournal if form == "mapped" else PlainJournal)
    move_on(written, border - 700)
    for number in range(1, 8):
        put(session, number)
    assert border < written.size < border + (1 << 20), "records stand on both sides of the border"
    session.stop()
    session.next_step()
    part = open_dump(tmp_path).part(0)
    assert part.complete
    assert [name for name, _ in part.records()] == [f"Torch.add.{number}.forward" for number in range(8)]
    for number, (name, record) in enumerate(part.records()):
        assert (record["input_args"], record["output"]) == ([number], [f"result {number}"])
        assert "test_large_journal.py" in part.stack(name)[0]
        assert part.parent(name) == "Module.it.It.forward.0"


@pytest.mark.parametrize("border", BORDERS.values(), ids=BORDERS)
def test_the_journal_of_a_killed_process_reads_back_whatever_its_size(
    tmp_path: Path, path: str, border: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_can_be_mapped", lambda descriptor: True)
    session = begin(tmp_path)
    put(session, 0)
    assert session._writer is not None
    move_on(session._writer._journal, border - 700)
    for number in range(1, 8):
        put(session, number)
    monkeypatch.setattr(journal_reader.JournalReader, "first_frame", border - 700)
    part = open_dump(tmp_path).part(0)
    assert not part.complete
    assert [name for name, _ in part.records()] == [f"Torch.add.{number}.forward" for number in range(1, 8)]
    assert [record["input_args"] for _, record in part.records()] == [[number] for number in range(1, 8)]
    session.close()


def test_a_dump_of_more_than_4_gib_is_found_by_name(tmp_path: Path) -> None:
    places = read_index(_dump(tmp_path)).places
    places.add("far", 3, 9 * GIB, 9 * GIB + 5)
    assert places["far"] == (3, 9 * GIB, 9 * GIB + 5)


def _dump(folder: Path) -> Path:
    file = folder / "dump.json"
    file.write_text(json.dumps({"data": {"near": {}}}, indent=1))
    return file


def test_a_record_that_comes_in_pieces_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reads 2 GiB at most at once."""
    written = PlainJournal(os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT, 0o640), str(tmp_path / "j"), 1, b"first")
    body = bytes(range(256)) * 10
    start = written.append(body)
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, at: whole(descriptor, min(length, 100), at))
    assert written.read(start, start + len(body)) == body
    assert written.read_all([(start, start + len(body))]) == [body]
    with pytest.raises(OSError, match="shorter"):
        written.read(start, start + len(body) + 1)
    written.close()


class Endless(bytes):
    """As long as the head of a frame has no room for."""

    def __len__(self) -> int:
        return 1 << 32


@pytest.mark.parametrize("form", [MappedJournal, PlainJournal])
def test_a_record_of_4_gib_is_refused_and_costs_no_other(
    tmp_path: Path, form: type[MappedJournal] | type[PlainJournal]
) -> None:
    written = form(os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT, 0o640), str(tmp_path / "j"), 1, b"first")
    written.append(b"before")
    with pytest.raises(OverflowError, match="4294967296 bytes"):
        written.append(Endless())
    written.append(b"behind")
    written.close()
    reader = journal_reader.JournalReader(tmp_path / "j")
    assert [reader.read(*place) for place in reader] == [b"first", b"before", b"behind"]

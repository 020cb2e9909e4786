"""A child of a process that writes a dump writes nothing of its parent, and harms nothing."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from unit.store.test_journal import read, start
from unit.store.test_tensor_files import load as values_of
from unit.store.test_tensor_files import payload
from unit.store.test_writer import HEADER, load

from msprobe.capture import native
from msprobe.store import durable, layout, ownership
from msprobe.store.journal import MappedJournal, PlainJournal
from msprobe.store.reader import open_dump
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter


@pytest.fixture(autouse=True)
def _everything_is_on_the_disk_afterwards() -> Any:
    yield
    durable.drain()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "step0" / "rank0"


def test_a_writer_that_is_dropped_gives_its_folder_back_and_leaves_its_journal(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    child = os.fork()
    if child == 0:
        del writer
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(layout.journals(folder)) == 1
    assert ownership._held[str(folder)] == 1
    del writer
    assert str(folder) not in ownership._held
    part = open_dump(folder).part()
    assert part.names() == ["a"]
    assert not part.complete


def test_the_data_folder_of_the_header_follows_when_the_folder_is_taken(folder: Path) -> None:
    owns, tell = os.pipe()
    other = os.fork()
    if other == 0:
        os._exit(_hold(folder, tell))
    try:
        assert os.read(owns, 1)
        writer = DumpWriter(folder, HEADER | {"dump_data_dir": str(folder / "dump_tensor_data")})
        writer.put("a", 1)
        writer.publish(final=True)
        own = folder.parent / f"proc{os.getpid()}"
        assert writer.folder == own
        assert load(own / "dump.json")["dump_data_dir"] == str(own / "dump_tensor_data")
        assert not (folder / "dump.json").exists()
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)
        os.close(owns)
        os.close(tell)


def _hold(folder: Path, tell: int) -> int:
    """In a child: own the folder, tell so, and wait to be killed."""
    writer = DumpWriter(folder, HEADER)
    writer.put("of the other process", 1)
    os.write(tell, b"1")
    threading.Event().wait(60)
    return 1


def test_a_forked_child_writes_nothing_and_harms_nothing(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("before", 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            writer.put("of the child", 1)
            writer.put_stack("of the child", 0)
            writer.error("of the child")
            writer.publish(final=False)
            writer.publish(final=True)
            durable.drain()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert [path.name for path in folder.glob("*.json")] == []
    writer.put("after", 2)
    writer.publish(final=True)
    assert load(folder / "dump.json")["data"] == {"before": 1, "after": 2}
    assert not (folder / "dump_error_info.log").exists()


def test_a_fork_in_the_middle_of_a_record_does_not_block_the_child(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with writer._lock:
            held.set()
            go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    child = os.fork()
    if child == 0:
        writer.put("b", 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    thread.join()


@pytest.fixture(params=["mapped", "plain"])
def form(request: pytest.FixtureRequest) -> type[MappedJournal] | type[PlainJournal]:
    return MappedJournal if request.param == "mapped" else PlainJournal


def test_a_child_that_drops_a_journal_leaves_it_to_its_parent(tmp_path: Path, form: type[MappedJournal]) -> None:
    written = start(tmp_path / "j", form)
    written.append(b"before")
    size = (tmp_path / "j").stat().st_size
    child = os.fork()
    if child == 0:
        del written
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "j").stat().st_size == size
    written.append(b"after")
    written.close()
    assert read(tmp_path / "j")[0] == [b"before", b"after"]


@pytest.fixture(params=["one by one", "at once"])
def written_so(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each promise holds with the compiled module's way to write files and without it."""
    if request.param == "at once":
        if native.write_files is None:
            pytest.skip("the C extension was not built")
        defaults = TensorFileWriter.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "write_files", native.write_files)


@pytest.mark.usefixtures("written_so")
def test_a_child_writes_nothing_and_does_not_wait(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path)
    writer.save("a.pt", payload(1))
    child = os.fork()
    if child == 0:
        writer.save("child.pt", payload(1))
        writer.link("link.pt", "a.pt")
        writer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.save("b.pt", payload(2))
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


@pytest.mark.usefixtures("written_so")
def test_a_child_may_begin_a_dump_of_its_own(tmp_path: Path) -> None:
    TensorFileWriter(tmp_path / "parent").save("a.pt", payload(1))
    child = os.fork()
    if child == 0:
        writer = TensorFileWriter(tmp_path / "child")
        writer.save("a.pt", payload(1))
        writer.close()
        os._exit(0 if values_of(tmp_path / "child" / "a.pt") == [1] * 4 else 1)
    assert os.waitpid(child, 0)[1] == 0

from __future__ import annotations

import errno
import os
import threading
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.coded_texts import mentions

from msprobe import log
from msprobe.capture import native
from msprobe.messages import said
from msprobe.store import tensor_files
from msprobe.store.tensor_files import TensorFileWriter


@dataclass(frozen=True)
class Payload:
    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview


def payload(value: float, count: int = 4) -> Payload:
    return Payload("float32", (count,), memoryview(np.full(count, value, np.float32)))


def load(path: Path) -> list[float]:
    found: list[float] = torch.load(path, weights_only=True).tolist()
    return found


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


@pytest.fixture(autouse=True, params=["one by one", "at once"])
def _written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each promise holds with the compiled module's way to write files and without it."""
    if request.param == "at once":
        if native.write_files is None:
            pytest.skip("the C extension was not built")
        defaults = TensorFileWriter.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "write_files", native.write_files)


def test_what_was_saved_is_there_after_flush(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path / "a" / "b", threads=2)
    assert not (tmp_path / "a").exists(), "the folder comes with the first tensor"
    for number in range(50):
        writer.save(f"Torch.add.{number}.forward.input.0.pt", payload(number))
    writer.flush()
    assert len(list((tmp_path / "a" / "b").iterdir())) == 50
    assert load(tmp_path / "a" / "b" / "Torch.add.7.forward.input.0.pt") == [7] * 4
    writer.close()
    writer.save("again.pt", payload(1))
    writer.close()
    assert load(tmp_path / "a" / "b" / "again.pt") == [1] * 4
    assert not writer.failed


def test_a_second_save_of_a_name_replaces_the_first(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path)
    for value in range(20):
        writer.save("x.pt", payload(value))
    writer.close()
    assert load(tmp_path / "x.pt") == [19] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        writer = TensorFileWriter(tmp_path / "tensors")
        writer.save("x.pt", payload(1))
        writer.close()
    finally:
        os.umask(before)
    assert (tmp_path / "tensors").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "tensors" / "x.pt").stat().st_mode & 0o777 == 0o640


def test_a_link_is_the_same_tensor_under_a_second_name(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path)
    writer.save("a.pt", payload(1))
    writer.link("b.pt", "a.pt")
    writer.flush()
    writer.link("c.pt", "a.pt")
    writer.link("c.pt", "b.pt")
    writer.link("a.pt", "a.pt")
    writer.close()
    assert {load(tmp_path / name)[0] for name in ("a.pt", "b.pt", "c.pt")} == {1.0}
    assert (tmp_path / "a.pt").stat().st_nlink == 3
    writer.save("a.pt", payload(2))
    writer.close()
    assert load(tmp_path / "b.pt") == [1] * 4, "a new tensor under the old name changes no other"


def test_where_there_are_no_links_the_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("msprobe.store.tensor_files.os.link", refuse)
    write_files = TensorFileWriter.__init__.__kwdefaults__["write_files"]

    def write_no_links(*given: Any) -> tuple[int, int]:
        links = [len(entry) == 2 for entry in given[-1]]
        if True not in links:
            done: tuple[int, int] = write_files(*given)
            return done
        count = links.index(True)
        return (*write_files(*given[:-1], given[-1][:count])[:1], errno.EPERM)

    writer = TensorFileWriter(tmp_path, write_files=write_files and write_no_links)
    writer.save("a.pt", payload(1))
    writer.link("b.pt", "a.pt")
    writer.flush()
    writer.link("c.pt", "a.pt")
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt", "c.pt"]
    assert load(tmp_path / "b.pt") == load(tmp_path / "c.pt") == [1] * 4
    assert (tmp_path / "b.pt").stat().st_mode & 0o777 == 0o640
    assert not writer.failed


def test_save_waits_when_too_much_is_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    gate = threading.Event()
    write_file = TensorFileWriter._write_file

    def slow(self: TensorFileWriter, *arguments: object) -> None:
        nonlocal most
        gate.wait(10)
        most = max(most, self._bytes)
        write_file(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TensorFileWriter, "_write_file", slow)
    writer = TensorFileWriter(tmp_path, max_bytes_in_flight=10_000, write_files=None)
    saved = 0

    def train() -> None:
        nonlocal saved
        for number in range(20):
            writer.save(f"{number}.pt", payload(number, count=1000))
            saved += 1

    thread = threading.Thread(target=train)
    thread.start()
    time.sleep(0.2)
    assert saved == 2, "two of 4000 bytes fit, the third waits"
    gate.set()
    thread.join()
    writer.close()
    assert len(list(tmp_path.iterdir())) == 20
    assert most <= 10_000


def test_a_room_waits_when_too_much_is_on_its_way(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path, max_bytes_in_flight=10_000)
    first, second = writer.room(4000), writer.room(4000)
    assert first is not None
    assert second is not None
    third = []
    thread = threading.Thread(target=lambda: third.append(writer.room(4000)))
    thread.start()
    time.sleep(0.1)
    assert not third
    writer.give_back(first)
    thread.join(10)
    for number, room in enumerate((second, third[0])):
        room.data[:] = payload(number, 1000).data.cast("B")
        writer.save(f"{number}.pt", Payload("float32", (1000,), room.data), room=room)
    writer.close()
    assert [load(tmp_path / f"{number}.pt")[0] for number in range(2)] == [0, 1]
    assert writer._bytes == 0


def test_a_checksum_that_is_known_is_the_one_in_the_file(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path)
    data = payload(3)
    writer.save("right.pt", data, zlib.crc32(data.data))
    writer.save("wrong.pt", data, 1)
    writer.close()
    assert load(tmp_path / "right.pt") == [3] * 4
    with zipfile.ZipFile(tmp_path / "right.pt") as archive:
        assert archive.testzip() is None
    with zipfile.ZipFile(tmp_path / "wrong.pt") as archive:
        assert archive.testzip() == "archive/data/0"


def test_names_given_while_files_are_written_are_not_lost(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path, threads=2)
    expected = {}
    for number in range(400):
        writer.save(f"{number}.pt", payload(number, 100 * (number % 40)))
        for other in range(number % 4):
            writer.link(f"{number}.{other}.pt", f"{max(0, number - 3 * other)}.pt")
            expected[f"{number}.{other}.pt"] = max(0, number - 3 * other)
        if number % 50 == 0:
            time.sleep(0.005)
    writer.close()
    assert len(list(tmp_path.iterdir())) == 400 + len(expected)
    for name, number in expected.items():
        assert (tmp_path / name).stat().st_ino == (tmp_path / f"{number}.pt").stat().st_ino
    assert not writer.failed


def test_a_few_files_wait_until_somebody_asks_for_them(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path)
    for number in range(5):
        writer.save(f"{number}.pt", payload(number))
    writer.flush()
    assert len(list(tmp_path.iterdir())) == 5


def test_a_writer_that_failed_gives_no_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    writer = TensorFileWriter(tmp_path / "file" / "below")
    room = writer.room(16)
    assert room is not None
    writer.save("a.pt", Payload("float32", (4,), room.data), room=room)
    writer.flush()
    assert writer.failed
    assert writer.room(16) is None
    assert writer._bytes == 0
    assert capsys.readouterr().out.count("ERROR") == 1


def test_a_tensor_larger_than_the_limit_is_written_when_it_is_alone(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path, max_bytes_in_flight=100)
    for number in range(3):
        writer.save(f"{number}.pt", payload(number, count=1000))
    writer.close()
    assert [load(tmp_path / f"{number}.pt")[0] for number in range(3)] == [0, 1, 2]


def test_a_tensor_that_cannot_be_written_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TensorFileWriter(tmp_path)
    writer.save("odd.pt", Payload("quint8", (4,), memoryview(bytes(4))))
    writer.link("odd2.pt", "odd.pt")
    writer.save("even.pt", payload(1))
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["even.pt"]
    assert not writer.failed
    assert mentions(
        capsys.readouterr().out, "tensor-not-written", name="odd.pt", problem=said("pt-type-wrong", "quint8")
    )


def test_an_error_of_any_kind_ends_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no memory")

    writer = TensorFileWriter(tmp_path)
    monkeypatch.setattr(tensor_files.pt_format, "pieces", broken)
    writer.save("a.pt", payload(1))
    writer.flush()
    assert writer.failed
    monkeypatch.undo()
    other = TensorFileWriter(tmp_path)
    other.save("b.pt", payload(1))
    other.close()
    assert [path.name for path in tmp_path.iterdir()] == ["b.pt"]

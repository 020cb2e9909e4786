"""stack.json and construct.json that say the same in several steps."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from msprobe.paths import FILE_MODE
from msprobe.store import unchanged
from msprobe.store.writer import DumpWriter


@pytest.fixture(autouse=True)
def _nothing_written_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_last", {})


def write(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "stack.json"
    unchanged.write(str(path), iter([content[:2], content[2:]]))
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == FILE_MODE
    return path


def test_the_same_content_is_one_file(tmp_path: Path) -> None:
    paths = [write(tmp_path / str(step), b"content") for step in range(3)]
    assert len({path.stat().st_ino for path in paths}) == 1
    assert os.listdir(tmp_path / "2") == ["stack.json"]


def test_other_content_is_another_file(tmp_path: Path) -> None:
    first, second = write(tmp_path / "0", b"one"), write(tmp_path / "1", b"two")
    assert first.read_bytes() == b"one"
    third = write(tmp_path / "2", b"two")
    assert third.stat().st_ino == second.stat().st_ino


def test_a_file_that_was_touched_is_not_named_again(tmp_path: Path) -> None:
    first = write(tmp_path / "0", b"content")
    first.write_bytes(b"changed")
    write(tmp_path / "1", b"content")
    assert first.read_bytes() == b"changed"


def test_a_file_that_is_gone_is_written_anew(tmp_path: Path) -> None:
    write(tmp_path / "0", b"content").unlink()
    write(tmp_path / "1", b"content")


def test_writing_again_leaves_the_other_names_as_they_are(tmp_path: Path) -> None:
    first, second = write(tmp_path / "0", b"content"), write(tmp_path / "1", b"content")
    write(tmp_path / "1", b"more content")
    assert first.read_bytes() == b"content"
    assert second.stat().st_ino != first.stat().st_ino
    write(tmp_path / "1", b"more content")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS])
def test_without_hard_links_each_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    refused = 0

    def refuse(*paths: object) -> None:
        nonlocal refused
        refused += 1
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    first, second = write(tmp_path / "0", b"content"), write(tmp_path / "1", b"content")
    assert refused == 1
    assert first.stat().st_ino != second.stat().st_ino
    assert os.listdir(tmp_path / "1") == ["stack.json"]


def test_on_another_disk_it_is_another_file(tmp_path: Path) -> None:
    own = tmp_path.stat().st_dev
    others = [place for place in ("/dev/shm", "/tmp") if os.path.isdir(place) and os.stat(place).st_dev != own]
    if not others:
        pytest.skip("needs a second file system")
    with tempfile.TemporaryDirectory(dir=others[0]) as other:
        write(tmp_path / "0", b"content")
        second = write(Path(other) / "1", b"content")
        third = write(Path(other) / "2", b"content")
        assert third.stat().st_ino == second.stat().st_ino


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_whatever_the_umask_all_names_have_the_mode(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        for step in range(2):
            write(tmp_path / str(step), b"content")
    finally:
        os.umask(before)


def test_a_file_with_another_mode_is_not_named_again(tmp_path: Path) -> None:
    write(tmp_path / "0", b"content").chmod(0o444)
    write(tmp_path / "1", b"content")


def test_a_step_recorded_once_more_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    def record(step: int, line: int) -> list[bytes]:
        writer = DumpWriter(tmp_path / f"step{step}" / "rank", {"task": "statistics"})
        writer.define_stack(0, [f"File train.py, line {line}, in step, \n loss.backward()"])
        writer.put("Tensor.add.0.forward", {})
        writer.put_stack("Tensor.add.0.forward", 0)
        writer.put_parent("Tensor.add.0.forward", f"Module.{line}" if line else None)
        writer.publish(final=False)
        writer.publish(final=True)
        return contents(step)

    def files(step: int) -> list[Path]:
        return [tmp_path / f"step{step}" / "rank" / name for name in ("stack.json", "construct.json")]

    def contents(step: int) -> list[bytes]:
        return [path.read_bytes() for path in files(step)]

    before = [record(step, line=1) for step in range(3)]
    assert [path.stat().st_nlink for path in files(0)] == [3, 3], "else this test shows nothing"
    again = record(1, line=2)
    assert again != before[1]
    assert [contents(step) for step in range(3)] == [before[0], again, before[2]]
    assert [record(step, line=1) for step in range(3)] == before
    assert {path.stat().st_mode & 0o777 for step in range(3) for path in files(step)} == {FILE_MODE}


def test_what_is_too_large_to_compare_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_MOST_BYTES", 4)
    first, second = write(tmp_path / "0", b"0123456789"), write(tmp_path / "1", b"0123456789")
    assert first.stat().st_ino != second.stat().st_ino

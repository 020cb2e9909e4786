"""stack.json and construct.json that say the same in several steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from msprobe.paths import FILE_MODE
from msprobe.store import unchanged


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


def test_without_hard_links_each_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    first, second = write(tmp_path / "0", b"content"), write(tmp_path / "1", b"content")
    assert first.stat().st_ino != second.stat().st_ino


def test_what_is_too_large_to_compare_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_MOST_BYTES", 4)
    first, second = write(tmp_path / "0", b"0123456789"), write(tmp_path / "1", b"0123456789")
    assert first.stat().st_ino != second.stat().st_ino

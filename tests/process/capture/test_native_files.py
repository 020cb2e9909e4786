"""Files that the C extension writes, several at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msprobe.capture import native

pytestmark = pytest.mark.skipif(native.write_files is None, reason="the C extension was not built")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def write(folder: int, files: list[tuple[Any, ...]], mode: int = 0o640) -> tuple[int, int]:
    assert native.write_files is not None
    return native.write_files(folder, mode, ".t-", files)


def listed(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_files_and_further_names(folder: int, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        done = write(
            folder,
            [
                (b"a", b"head", memoryview(b"data"), b"tail"),
                (b"b", b"a"),
                (b"empty", b"", b"", b""),
                ("ä ü".encode(), b"", bytearray(3), b""),
            ],
        )
    finally:
        os.umask(before)
    assert done == (4, 0)
    assert listed(tmp_path) == ["a", "b", "empty", "ä ü"]
    assert (tmp_path / "b").read_bytes() == b"headdatatail"
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "ä ü").read_bytes() == bytes(3)


def test_large_files(folder: int, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 40
    assert write(folder, [(b"x", b"1", data, b"2")]) == (1, 0)
    assert (tmp_path / "x").read_bytes() == b"1" + data + b"2"


def test_a_file_that_is_there_is_replaced_and_others_that_share_it_are_not(folder: int, tmp_path: Path) -> None:
    assert write(folder, [(b"a", b"", b"old", b""), (b"b", b"a"), (b"a", b"", b"new", b"")]) == (3, 0)
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"new", b"old")


def test_the_first_error_ends_it_and_leaves_nothing_half(folder: int, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    files = [(b"a", b"", b"1", b""), (b"taken", b"", b"2", b""), (b"c", b"", b"3", b"")]
    assert write(folder, files) == (1, errno.EISDIR)
    assert listed(tmp_path) == ["a", "taken"]
    assert write(folder, [(b"b", b"", b"", b""), (b"a", b"b")]) == (1, errno.EEXIST)
    assert write(folder, [(b"d", b"nothing")]) == (0, errno.ENOENT)
    assert write(folder, [(b"n" * 256, b"", b"", b"")]) == (0, errno.ENAMETOOLONG)
    assert write(-1, [(b"a", b"", b"", b"")]) == (0, errno.EBADF)
    assert listed(tmp_path) == ["a", "b", "taken"]


def test_a_full_disk_is_reported(folder: int, tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import os, resource, signal, sys\n"
        "from msprobe.capture import native\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "folder = os.open(sys.argv[1], os.O_RDONLY)\n"
        "files = [(b'a', b'', bytes(90_000), b''), (b'b', b'', bytes(10**6), b'')]\n"
        "print(*native.write_files(folder, 0o640, '.t-', files))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["1", str(errno.EFBIG)]
    assert listed(tmp_path) == ["a"], "the part that fitted is taken away again"


@pytest.mark.parametrize(
    "files",
    [
        [()],
        [(b"a",)],
        [("a", b"", b"", b"")],
        [(b"a", b"", b"")],
        [(b"a", "b")],
        [[b"a", b"b"]],
        [(b"a", 1, 2, 3)],
        ((b"a", b"b"),),
    ],
)
def test_what_is_given_is_checked_before_anything_is_written(folder: int, tmp_path: Path, files: Any) -> None:
    first: Any = (b"first", b"", b"", b"")
    with pytest.raises(TypeError):
        write(folder, [first, *files] if isinstance(files, list) else files)
    assert listed(tmp_path) == []


def test_buffers_are_let_go_of(folder: int) -> None:
    data = bytearray(10)
    assert write(folder, [(b"a", b"", data, b"")]) == (1, 0)
    with pytest.raises(TypeError):
        write(folder, [(b"a", b"", data, b""), ()])
    data.append(1)  # would raise BufferError while somebody reads it


def test_without_a_prefix_files_are_written_under_their_own_names_and_no_link_is_followed(
    folder: int, tmp_path: Path
) -> None:
    assert native.write_files is not None
    (tmp_path / "old").write_bytes(b"longer than before")
    (tmp_path / "outside").write_bytes(b"stays")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    assert native.write_files(folder, 0o640, "", [(b"old", b"1", b"2", b"3"), (b"new", b"", b"x", b"")]) == (2, 0)
    assert native.write_files(folder, 0o640, "", [(b"link", b"", b"x", b"")]) == (0, errno.ELOOP)
    assert (tmp_path / "old").read_bytes() == b"123"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "outside").read_bytes() == b"stays"
    assert listed(tmp_path) == ["link", "new", "old", "outside"]

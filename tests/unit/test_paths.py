from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.coded_texts import raising
from support.row_by_row import for_each

from msprobe import paths
from msprobe.errors import PathError
from msprobe.messages import said

ODD_NAMES = ["with blank", "a+b@c,d:e~f", "数据 ü", "-dash", "quote'\"", "new\nline"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=lambda value: f"umask{value:03o}")
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_folders_have_mode_0750_whatever_the_umask(tmp_path: Path) -> None:
    made = paths.make_folder(tmp_path / "a" / "b" / "c")
    assert made == tmp_path / "a" / "b" / "c"
    assert [mode(folder) for folder in (made, made.parent, made.parent.parent)] == [0o750] * 3


@pytest.mark.usefixtures("_umask")
def test_files_have_mode_0640_whatever_the_umask(tmp_path: Path) -> None:
    paths.write_atomically(tmp_path / "whole.json", b"{}")
    with paths.create_file(tmp_path / "journal") as file:
        file.write(b"x")
    assert mode(tmp_path / "whole.json") == 0o640
    assert mode(tmp_path / "journal") == 0o640


def test_existing_folders_keep_their_mode(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    paths.make_folder(tmp_path / "mine" / "new")
    paths.make_folder(tmp_path / "mine")
    assert mode(tmp_path / "mine") == 0o700


def test_many_threads_may_make_the_same_folder(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    failed: list[BaseException] = []

    def make() -> None:
        barrier.wait()
        try:
            for number in range(20):
                paths.make_folder(tmp_path / str(number) / "step0" / "rank0")
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    for target in (tmp_path / "taken", tmp_path / "taken" / "step0"):
        with pytest.raises(PathError, match="taken"):
            paths.make_folder(target)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_the_system_allows_works(tmp_path: Path, name: str) -> None:
    folder = paths.make_folder(paths.check_output_folder(tmp_path / name))
    paths.write_atomically(folder / f"{name}.json", b"[]")
    assert paths.check_readable_file(folder / f"{name}.json", ".json", 100) == folder / f"{name}.json"


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"abc", b"abc"),
        (b"", b""),
        (bytearray(b"abc"), b"abc"),
        ([b"a", b"", b"bc"], b"abc"),
        ((bytes([65 + i]) for i in range(3)), b"ABC"),
        ([], b""),
    ],
)
@pytest.mark.parametrize("fsync", [True, False])
def test_content_is_written_whole(tmp_path: Path, data: bytes, content: bytes, fsync: bool) -> None:
    # The generator is used up by the first of the two runs.
    pieces = [b"A", b"B", b"C"] if not isinstance(data, (bytes, bytearray, list)) else data
    assert paths.write_atomically(tmp_path / "f", pieces, fsync=fsync) == len(content)
    assert (tmp_path / "f").read_bytes() == content
    assert os.listdir(tmp_path) == ["f"]


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    paths.write_atomically(tmp_path / ("n" * 255), b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"


def _breaks_off(problem: BaseException) -> Iterator[bytes]:
    yield b"half"
    raise problem


@pytest.mark.parametrize("problem", [ValueError("mine"), KeyboardInterrupt()])
def test_an_error_of_the_iterable_passes_and_the_old_file_stays(tmp_path: Path, problem: BaseException) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(type(problem)):
        paths.write_atomically(tmp_path / "f", _breaks_off(problem))
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_nothing_beside(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(PathError, match="no space left") as caught:
        paths.write_atomically(tmp_path / "f", b"new")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_the_name_appears_only_when_the_content_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append("fsync"), sync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("replace"), replace(a, b))[1])
    paths.write_atomically(tmp_path / "f", _observed(tmp_path, seen))
    assert seen == ["absent", "absent", "fsync", "replace", "fsync"]


def _observed(folder: Path, seen: list[str]) -> Iterator[bytes]:
    for _ in range(2):
        seen.append("present" if (folder / "f").exists() else "absent")
        yield b"x" * (2 << 20)


def test_create_file_empties_or_appends(tmp_path: Path) -> None:
    for append, content in ((False, b"1"), (True, b"12"), (False, b"3")):
        with paths.create_file(tmp_path / "j", append=append, buffering=0) as file:
            file.write(content[-1:])
        assert (tmp_path / "j").read_bytes() == content


def test_create_file_names_the_file_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(PathError, match=r"nowhere.*no such file"):
        paths.create_file(tmp_path / "nowhere" / "j")
    with pytest.raises(PathError, match=r"nowhere.*no such file"):
        paths.write_atomically(tmp_path / "nowhere" / "j", b"")


# Reading


def test_a_good_file_is_accepted_as_text_or_path(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    assert paths.check_readable_file(str(file), ".json", 3) == file
    assert paths.check_readable_file(file, (".yaml", ".json")) == file
    assert paths.check_readable_file(file) == file


def test_each_bad_file_is_answered_with_its_own_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "big.json").write_bytes(b"12345")
    (tmp_path / "config.txt").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "big.json")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone.json")
    os.mkfifo(tmp_path / "pipe.json")
    for name, sentence in {
        "absent.json": "does not exist",
        "folder.json": "is a folder",
        "big.json": "has 5 bytes; the limit is 5 bytes",
        "config.txt": r"must end in \.json",
        "link.json": r"symbolic link.*big\.json",
        "dangling.json": "does not exist",
        "pipe.json": "not a regular file",
        "big.json/x.json": "not a directory",
    }.items():
        with pytest.raises(PathError, match=sentence):
            paths.check_readable_file(tmp_path / name, ".json", 5)


def test_a_link_is_followed_on_request(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "dump.json")
    assert paths.check_readable_file(tmp_path / "link.json", ".json", follow_symlink=True)


def test_a_link_in_the_folders_above_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert paths.check_readable_file(tmp_path / "link" / "c.json", ".json")


@pytest.fixture
def _no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user without permission sees (the tests may run as root, who may do everything)."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)


@pytest.mark.usefixtures("_no_permission")
def test_a_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(PathError, match="permission denied"):
        paths.check_readable_file(tmp_path / "c.json", ".json")


@for_each("check", [paths.check_readable_file, paths.check_output_folder])
@for_each(
    ("path", "sentence"),
    [
        ("", "is empty"),
        (3, r"must be a string, found 3 \(int\)"),
        (None, r"must be a string, found None"),
        (b"x", r"must be a string, found b'x' \(bytes\)"),
        ("a\0b", "NUL"),
        ("x" * 256, "256 bytes; the limit is 255"),
        ("ü" * 128, "256 bytes; the limit is 255"),
        ("/".join(["x" * 200] * 21), "4220 bytes; the limit is 4096"),
    ],
)
def test_what_is_no_path_is_refused_in_one_line(check: Callable[[object], object], path: object, sentence: str) -> None:
    with pytest.raises(PathError, match=sentence) as caught:
        check(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


# Output folders


def test_output_folder_is_returned_absolute_and_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.check_output_folder("./out/../dump") == tmp_path / "dump"
    assert os.listdir(tmp_path) == []


def test_output_folder_may_exist_or_be_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for good in (tmp_path, tmp_path / "link", tmp_path / "link" / "new"):
        assert paths.check_output_folder(good) == good


def test_output_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name, sentence in {
        "file": "is a file",
        "file/below": 'file" is a file',
        "dangling": "symbolic link to nothing",
        "dangling/below": "symbolic link to nothing",
    }.items():
        with pytest.raises(PathError, match=sentence):
            paths.check_output_folder(tmp_path / name)


@pytest.mark.usefixtures("_no_permission")
def test_output_folder_without_permission_is_refused(tmp_path: Path) -> None:
    with raising(PathError, "folder-not-permitted"):
        paths.check_output_folder(tmp_path / "closed" / "dump")


def test_output_folder_in_a_deep_working_directory_counts_its_whole_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/" + "/".join(["d" * 200] * 20))
    with pytest.raises(PathError, match="more than 4096 bytes"):
        paths.check_output_folder("/".join(["x" * 100] * 2))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no such file system here")
@pytest.mark.parametrize("folder", ["/proc/dump", "/proc/self/x/y"])
def test_a_folder_of_the_system_is_refused_before_the_work(folder: str) -> None:
    with pytest.raises(PathError, match="holds no files"):
        paths.check_output_folder(folder)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("step0/rank/dump.json", "step0/rank0/dump.json"),
        ("stp0/rank0/dump.json", "step0/rank0/dump.json"),
        ("step0/rank0/dumps.json", "step0/rank0/dump.json"),
        ("other/rank0/dump.json", None),
        ("step0/rank0/stack.json", None),
    ],
)
def test_a_file_that_does_not_exist_is_reported_beside_one_that_is_like_it(
    tmp_path: Path, asked: str, near: str | None
) -> None:
    (tmp_path / "step0" / "rank0").mkdir(parents=True)
    (tmp_path / "step0" / "rank0" / "dump.json").touch()
    with pytest.raises(PathError) as caught:
        paths.check_readable_file(tmp_path / asked)
    hint = f'did you mean "{tmp_path / near}"?' if near else "give the path of an existing file."
    assert str(caught.value).endswith(said("file-missing", f'"{tmp_path / asked}"', hint))


def test_a_folder_in_a_folder_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "out" / "within").symlink_to(tmp_path / "out")
    assert paths.make_folder_in(tmp_path / "out", "a", "b") == tmp_path / "out" / "a" / "b"
    assert paths.make_folder_in(tmp_path / "out", "within", "c").is_dir()
    for names in (("link",), ("link", "x"), ("..", "other"), ("a\0b",)):
        with raising(PathError, "target-leads-out-of-folder"):
            paths.make_folder_in(tmp_path / "out", *names)
    assert not list((tmp_path / "other").iterdir())


def test_a_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(PathError, match="cannot write file"):
        paths.create_file(tmp_path / "link")
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize(
    ("missing", "there", "meant"),
    [
        ("cfg.json", ["log.json", "a.json"], None),
        ("config.json", ["compare.json", "losses.json"], None),
        ("config.json", ["confg.json", "losses.json"], "confg.json"),
        ("dump.json", ["dump.jsn"], "dump.jsn"),
    ],
)
def test_only_a_file_with_a_name_like_it_is_meant(
    tmp_path: Path, missing: str, there: list[str], meant: str | None
) -> None:
    for name in there:
        (tmp_path / name).write_text("{}")
    found = paths.like(tmp_path / missing)
    assert (found and found.name) == meant

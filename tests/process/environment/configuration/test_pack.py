from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.environment.configuration import pack as packs
from msprobe.environment.configuration.pack import Pack, PackPlace, PackWriter, as_json
from msprobe.environment.configuration.pack_lock import locked
from msprobe.errors import InvalidInputError, MsprobeError, PathError

_WRITE = """
import sys, time
from msprobe.environment.configuration.pack import PackWriter, as_json, weights_entry
writer, rank = PackWriter(sys.argv[1]), int(sys.argv[2])
for step in range(5):
    writer.add({weights_entry(step, rank): as_json({"w": step})})
if rank == 0:
    time.sleep(float(sys.argv[3]))
    writer.add({"env": b"{}", "pip": b"torch=2.13.0"})
"""


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def made(path: Path, entries: dict[str, str | bytes], **settings: Any) -> Path:
    with zipfile.ZipFile(path, "w", **settings) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def test_what_is_written_is_read_with_mode_0640_and_no_name_twice(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.zip"
    writer = PackWriter(path)
    writer.add({"env": as_json({"A": "1"}), "pip": b"torch=2.13.0\nnumpy=2.0"})
    writer.add({packs.weights_entry(0, 1): as_json({"w": {"max": float("nan")}}), "pip": b"torch=2.14.0"})
    writer.add({packs.weights_entry(0, 0): as_json({}), packs.STATIC: as_json({"lr": 0.1})})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(names(path)) == ["env", packs.STATIC, "pip", packs.weights_entry(0, 0), packs.weights_entry(0, 1)]
    assert [one.name for one in path.parent.iterdir()] == ["a.zip"]
    with Pack(path) as pack:
        assert pack.environment() == {"A": "1"}
        assert pack.packages() == {"torch": "2.14.0"}
        assert pack.hyperparameters() == {"hyperparameters_static.json": {"lr": 0.1}}
        assert list(pack.places("weights")) == [PackPlace(0, 0), PackPlace(0, 1)]
        assert pack.has("weights")
        assert not pack.has("dataset")
        pack.extract(tmp_path / "out")
    assert json.loads((tmp_path / "out/env").read_text()) == {"A": "1"}
    assert stat.S_IMODE((tmp_path / "out/env").stat().st_mode) == 0o640


def test_a_second_run_begins_anew_and_ranks_of_one_run_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    PackWriter(path).add({"env": b"{}", packs.random_entry(7): b"{}"})
    PackWriter(path).add({"pip": b""})  # the same process, another run
    assert names(path) == ["pip"]
    made(path, {"env": "{}", "pip": "", "random/rank9.json": "{}"})  # by 8.1.1
    ranks = [subprocess.Popen([sys.executable, "-c", _WRITE, str(path), str(rank), "0.3"]) for rank in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    expected = {"env", "pip", *(packs.weights_entry(step, rank) for step in range(5) for rank in range(3))}
    found = names(path)
    assert len(found) == len(expected)
    assert set(found) == expected
    assert [one.name for one in tmp_path.iterdir()] == ["a.zip"]


def test_a_writer_that_is_killed_leaves_a_whole_pack(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    endless = _WRITE.replace("range(5)", "range(10**9)")
    process = subprocess.Popen([sys.executable, "-c", endless, str(path), "1", "0"])
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    process.kill()
    process.wait()
    written = names(path)
    assert written
    PackWriter(path).add({"env": b"{}"})
    assert names(path) == [*written, "env"]


def test_a_lock_that_is_not_given_back_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msprobe.environment.configuration.pack_lock._MOST_SECONDS", 0.05)
    path = str(tmp_path / "a.zip")
    with locked(path), raising(PathError, "pack-locked"):
        PackWriter(path).add({"env": b"{}"})
    PackWriter(path).add({"env": b"{}"})


@pytest.mark.parametrize("content", [b"my data", b"PK\5\6" + bytes(18)])
def test_a_file_that_is_no_pack_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with raising(InvalidInputError, "pack-left-as-it-is"):
        PackWriter(path).add({"env": b"{}"})
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("path", ["out.tar", 3, None, "zip"])
def test_a_pack_must_end_with_zip(path: object) -> None:
    with raising(InvalidInputError, "pack-path-wrong", suffix=".zip"):
        PackWriter(path)  # type: ignore[arg-type]


def _link(path: Path) -> None:
    entry = zipfile.ZipInfo("env")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, "/etc/passwd")


def _patched(path: Path, old: bytes, new: bytes) -> None:
    made(path, {"env": "{}", "pip": "x=1"})
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def _encrypted(path: Path) -> None:
    made(path, {"env": "{}"})
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(bytes(data))


def _overlapping(path: Path) -> None:
    """Many entries of one piece of data, 50 MiB each when unpacked."""
    made(path, {"env": bytes(50 << 20)}, compression=zipfile.ZIP_DEFLATED)
    data = path.read_bytes()
    start = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    entry = data[start:end]
    count = 0
    directory = b""
    for rank in range(100):
        name = f"random/rank{rank}.json".encode()
        head = bytearray(entry[:46])
        head[28:30] = len(name).to_bytes(2, "little")
        directory += bytes(head) + name
        count += 1
    tail = bytearray(data[end:])
    tail[8:12] = count.to_bytes(2, "little") * 2
    tail[12:16] = len(directory).to_bytes(4, "little")
    path.write_bytes(data[:start] + directory + bytes(tail))


def _nameless(path: Path) -> None:
    """The directory has an entry whose name has no letter."""
    made(path, {"env": "{}"})
    data = bytearray(path.read_bytes())
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    data[start + 28] = 0
    data[end + 12] -= 3
    del data[start + 46 : end]
    path.write_bytes(bytes(data))


def _lying_count(path: Path) -> None:
    """The end of the archive tells of a directory of 300 MiB."""
    made(path, {"env": "{}"})
    data = bytearray(path.read_bytes())
    end = data.index(b"PK\5\6")
    data[end + 12 : end + 16] = (300 << 20).to_bytes(4, "little")
    path.write_bytes(bytes(data))


BROKEN: dict[str, tuple[Any, str]] = {
    "parent": (lambda path: made(path, {"env": "{}", "../evil": "x"}), "leads out of the pack"),
    "absolute": (lambda path: made(path, {"/etc/evil": "x", "env": "{}"}), "leads out of the pack"),
    "backslashes": (lambda path: made(path, {"..\\evil": "x", "env": "{}"}), "leads out of the pack"),
    "deep parent": (lambda path: made(path, {"weights/../../evil": "x", "env": "{}"}), "leads out of the pack"),
    "drive": (lambda path: made(path, {"C:/evil": "x", "env": "{}"}), "leads out of the pack"),
    "parent folder": (lambda path: made(path, {"../evil/": "", "env": "{}"}), "leads out of the pack"),
    "link": (_link, "symbolic link"),
    "encrypted": (_encrypted, "encrypted"),
    "lzma": (lambda path: made(path, {"env": "{}"}, compression=zipfile.ZIP_LZMA), "compressed in a way"),
    "bomb": (
        lambda path: made(path, {"env": bytes(65 << 20)}, compression=zipfile.ZIP_DEFLATED),
        "unpacks to 68157440 bytes",
    ),
    "overlapping bomb": (_overlapping, "lies over"),
    "endless directory": (_lying_count, "bytes; it may have 200000"),
    "not a zip": (lambda path: path.write_bytes(b"hello"), "is not a zip file"),
    "empty": (lambda path: path.write_bytes(b""), "is not a zip file"),
    "cut": (lambda path: path.write_bytes(made(path, {"env": "{}"}).read_bytes()[:-30]), "is not a zip file"),
    "another zip": (lambda path: made(path, {"photo.jpg": "x"}), "no pack of config_check"),
    "no name": (_nameless, "no pack of config_check"),
    "other names": (lambda path: made(path, {"weights/step١/rank0/weight.json": "{}"}), "no pack of config_check"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "missing": (lambda path: None, "does not exist"),
    "pipe": (lambda path: os.mkfifo(path), "not a regular file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_archive_of_a_stranger_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    make, expected = BROKEN[name]
    path = tmp_path / "a.zip"
    make(path)
    with pytest.raises(MsprobeError) as told:
        Pack(path)
    assert expected in told.value.message
    assert str(path) in told.value.message
    assert "\n" not in told.value.message


ENTRIES: dict[str, tuple[str | bytes, str]] = {
    "broken": ("{", "no readable JSON"),
    "list": ("[1]", "must be a JSON object, found a list"),
    "deep": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
    "long number": ('{"a":' + "9" * 5000 + "}", "digits"),
    "bytes": (b"\xff\xfe", "not UTF-8"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_broken_entry_is_reported_by_name(name: str, tmp_path: Path) -> None:
    data, expected = ENTRIES[name]
    path = made(tmp_path / "a.zip", {"env": data})
    with Pack(path) as pack, pytest.raises(InvalidInputError) as told:
        pack.environment()
    assert expected in told.value.message
    assert "entry env" in told.value.message


def test_a_damaged_or_missing_entry_is_reported_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    _patched(path, b"x=1", b"x=2")
    with Pack(path) as pack:
        with raising(InvalidInputError, "archive-entry-damaged"):
            pack.packages()
        with raising(InvalidInputError, "pack-entry-missing"):
            pack.json("random/rank0.json")
    made(path, {"env": "{}", "pip": "x=1"})
    data = bytearray(path.read_bytes())
    data[data.index(b"env")] = ord("f")  # the local name, which is not that of the directory
    path.write_bytes(bytes(data))
    with Pack(path) as pack, raising(InvalidInputError, "archive-entry-damaged"):
        pack.environment()


def test_entries_that_lie_of_their_size_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.zip", {"env": "{}" + " " * 1000, "pip": "x=1" * 400})
    monkeypatch.setattr(packs, "MOST_BYTES_IN_ALL", 2300)
    with Pack(path) as pack:
        pack.environment()
        pack.packages()
        with raising(InvalidInputError, "pack-entry-unpacks-too-large"):
            pack.packages()


def test_a_pack_whose_bytes_were_changed_is_read_or_refused(tmp_path: Path) -> None:
    draws = random.Random(0)
    whole = made(tmp_path / "a.zip", {"env": '{"A": "1"}', packs.weights_entry(0, 0): '{"w": {"max": 1}}'}).read_bytes()
    refused = 0
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(draws.randint(1, 5)):
            data[draws.randrange(len(data))] = draws.choice((0, 1, 127, 255, draws.randrange(256)))
        (tmp_path / "b.zip").write_bytes(data[: len(data) - draws.choice((0, 0, 0, draws.randrange(60)))])
        try:
            with Pack(tmp_path / "b.zip") as pack:
                for name in ("env", packs.weights_entry(0, 0)):
                    pack.json(name)
        except MsprobeError:
            refused += 1
    assert 250 < refused < 500


def test_the_last_of_two_entries_of_one_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("env", '{"A": "1"}')
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("env", '{"A": "2"}')
    with Pack(path) as pack:
        assert pack.environment() == {"A": "2"}

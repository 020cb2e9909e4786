"""Dumps in object storage: here a file system of fsspec that lies in memory."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising
from unit.diagnose.overflow_ranks import c13

from msprobe.cli import main
from msprobe.diagnose import compare_runs
from msprobe.errors import InvalidInputError, NotAvailableError, PathError
from msprobe.store import object_storage
from msprobe.store.collecting import collect

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def storage() -> Iterator[Any]:
    found = fsspec.filesystem("memory")
    yield found
    found.rm("/", recursive=True)


@pytest.fixture
def dump(tmp_path: Path, storage: Any) -> Path:
    """A dump of four ranks, which is in ``memory://bucket/run`` as well."""
    c13().write(tmp_path / "whole")
    for file in (tmp_path / "whole").rglob("*"):
        if file.is_file():
            storage.pipe(f"/bucket/run/{file.relative_to(tmp_path / 'whole')}", file.read_bytes())
    storage.pipe("/bucket/run/step0/rank0/dump_tensor_data/a.input.0.pt", b"values")
    return tmp_path / "whole"


def test_a_dump_in_storage_is_one_of_this_machine_once_it_is_collected(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "memory://bucket/run", "-o", str(tmp_path / "here")]) == 0
    assert "ranks 0-3 of 1 steps" in capsys.readouterr().out
    assert compare_runs(tmp_path / "here", dump).status == "agree"
    copy = tmp_path / "here" / "step0" / "rank0" / "dump_tensor_data" / "a.input.0.pt"
    assert copy.read_bytes() == b"values"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o750


def test_ranks_of_storage_and_of_this_machine_are_one_dump(dump: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "step0" / "rank4"
    mine.parent.mkdir(parents=True)
    (dump / "step0" / "rank3").rename(mine)
    assert collect(["memory://bucket/run", tmp_path / "mine"], tmp_path / "all").ranks == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "name",
    ["../evil.json", "step0/rank0/../../../evil", "step0/rank0/dump_tensor_data/..", "step0/other/dump.json",
     "step0/rank0/dump_tensor_data/a/b.pt", "step0/rank0/run.sh", "rank0/step0/dump.json", "step0/rank0/a\nb/dump.json",
     "step0/rank0/dump_tensor_data/" + "x" * 300, "step0/rank0/.bashrc"],
)  # fmt: skip
def test_what_no_dump_has_is_left_out(dump: Path, storage: Any, tmp_path: Path, name: str) -> None:
    storage.store["/bucket/run/" + name] = storage.store["/bucket/run/step0/rank0/dump.json"]
    before = set(tmp_path.rglob("*"))
    done = object_storage.copy("memory://bucket/run", tmp_path / "in" / "here")
    assert done.left_out == 1
    made = {path for path in tmp_path.rglob("*") if path not in before}
    assert all((tmp_path / "in") in (path, *path.parents) for path in made)
    assert not any(path.name == name.rpartition("/")[2] for path in made if path.name != "dump.json")


def test_what_does_not_fit_on_the_disk_is_not_begun(dump: Path, storage: Any, tmp_path: Path) -> None:
    real = type(storage).find
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(storage),
            "find",
            lambda self, path, **more: {
                name: {**about, "size": 1 << 55} for name, about in real(self, path, **more).items()
            },
        )
        with raising(PathError, "url-larger-than-disk"):
            collect(["memory://bucket/run"], tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_more_than_the_listing_says_is_not_taken(dump: Path, storage: Any, tmp_path: Path) -> None:
    real = type(storage).find
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(storage),
            "find",
            lambda self, path, **more: {name: {**about, "size": 3} for name, about in real(self, path, **more).items()},
        )
        with pytest.raises(PathError, match="changed"):
            collect(["memory://bucket/run"], tmp_path / "here")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("url", "kind"),
    [("memory://bucket/other", InvalidInputError), ("nothing-of-the-kind://x", PathError),
     ("zip::memory://bucket/run", InvalidInputError)],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(dump: Path, tmp_path: Path, url: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        object_storage.copy(url, tmp_path / "here")


def test_without_fsspec_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotAvailableError, match="fsspec"):
        object_storage.copy("s3://bucket/run", tmp_path / "here")


@pytest.mark.parametrize(
    "words",
    [["compare", "s3://bucket/run", "."], ["check", "gs://bucket/run"], ["compare", "-tp", "s3://b/r", "-gp", "x"],
     ["graph_visualize", "-tp", "s3://b/r", "-o", "x"], ["view", "s3://b/r"]],
)  # fmt: skip
def test_each_other_command_says_how_to_get_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2 or main(words) == 1
    assert "msprobe collect" in capsys.readouterr().err


def test_a_url_counts_as_read_in_json(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "memory://bucket/run", "-o", str(tmp_path / "here"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == [0, 1, 2, 3]

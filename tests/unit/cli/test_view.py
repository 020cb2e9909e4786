from __future__ import annotations

import builtins
import importlib.util
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, raising
from support.row_by_row import for_each
from unit.view.pages import pair

from msprobe import cli
from msprobe.errors import NotAvailableError
from msprobe.view import serving


def said(capsys: pytest.CaptureFixture[str], *words: str | Path, status: int = 2) -> str:
    assert cli.main(["view", *map(str, words)]) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def test_all_wrong_options_are_reported_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = said(capsys, "--port", "99999", "--matches", "/nowhere", "--html", tmp_path, status=2)
    for told in ("give what to show", "'99999' is no port", "--matches: '/nowhere'", "is a folder"):
        assert told in words, told


def test_a_file_that_cannot_be_written_is_reported_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "does not exist; make it first" in said(capsys, tmp_path / "no", "--html", tmp_path / "none" / "out.html")


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("", "the path of a file is empty"),
        ("{folder}", "is a folder"),
        ("{folder}/fifo", "is not a regular file"),
        ("{folder}/link", "is a symbolic link to nothing"),
        ("{folder}/text/out.html", "is no folder; make it first"),
        ("/dev/null", "is not a regular file"),
        ("/proc/out.html", "holds no files"),
        ("x" * 300, "the limit is 255"),
    ],
)
def test_what_is_no_file_is_not_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, out: str, told: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "text").write_text("")
    words = said(capsys, tmp_path / "no", "--html", out.format(folder=tmp_path))
    assert "--html: " in words
    assert told in words


@pytest.mark.parametrize("name", ["a.txt", "model.pkl", "found.json"])
def test_a_file_of_another_kind_is_answered_with_all_that_can_be_opened(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04}")
    words = said(capsys, tmp_path / name)
    for told in ("dump.json", "verdict.json", "check.json", ".vis", ".vis.db"):
        assert told in words, told


def test_a_folder_of_something_else_is_answered_with_all_that_it_could_hold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = said(capsys, tmp_path)
    for told in ("dump.json", "verdict.json", "check.json", ".vis", ".vis.db"):
        assert told in words, told


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ([], 2, "give what to show: a dump (its folder, or a dump.json), two dumps"),
        (["a", "b", "c"], 2, "give one path, or two dumps (candidate and reference); found 3"),
        (["a", "--host", ""], 2, "--host: the address to listen on is empty"),
        ([""], 2, "is empty; give a path"),
        (["x" * 300], 2, "the limit is 255"),
        (["{candidate}", "--noise", "{reference}"], 2, "--noise: only for a comparison; give two dumps"),
        (["{candidate}", "{reference}", "--noise", "{reference}"], 2, "is compared itself; give a second healthy run"),
        (["{candidate}", "{reference}", "--noise", "nothing"], 2, '"nothing" does not exist'),
    ],
)
def test_bad_input_is_answered_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], status: int, told: str
) -> None:
    runs = dict(zip(("candidate", "reference"), pair(tmp_path), strict=True))
    assert told in said(capsys, *(word.format(**runs) for word in words), "--no-browser", status=status)


def test_one_file_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert cli.main(["view", *map(str, pair(tmp_path)), "--html", str(out)]) == 0
    assert mentions(capsys.readouterr().out, "page-written", file=out)
    assert out.stat().st_mode & 0o777 == 0o640
    assert b"msprobe-data" in out.read_bytes()


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs = pair(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = said(capsys, runs[0], "--port", str(port), "--no-browser")
    assert mentions(words, "port-not-available", host="127.0.0.1", port=port)


def test_a_host_that_is_none_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = said(capsys, pair(tmp_path)[0], "--host", "no.such.host.invalid", "--no-browser")
    assert mentions(words, "port-not-available", host="no.such.host.invalid")


def test_a_missing_package_is_named_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "uvicorn" else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    words = said(capsys, tmp_path / "nothing")
    install = "pip install 'msprobe-debugger[view]'"
    assert mentions(words, "page-packages-missing", missing="uvicorn", install=install)
    with raising(NotAvailableError, "page-packages-missing", missing="uvicorn", install=install):
        serving.check_available()


def test_one_file_needs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] in ("uvicorn", "starlette"):
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert cli.main(["view", str(pair(tmp_path)[0]), "--html", str(tmp_path / "page.html")]) == 0


@for_each(
    ("host", "local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.8.8.8", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_only_this_machine_is_local(host: str, local: bool) -> None:
    assert serving.is_local(host) is local
    assert bool(serving.names_of(host)) is not local

"""Streams that are closed, full or read by nobody: a command ends with its status, and without a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hostile.made import dump, record

FULL = Path("/dev/full")
LINES = (
    ("summary", "{dump}"),
    ("--json", "summary", "{dump}"),
    ("check", "{dump}"),
    ("explain", "D204"),
    ("completion", "bash"),
    ("--version",),
    ("--help",),
    ("summary", "--help"),
    ("monitor",),
    ("monitor", "--help"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dump")
    dump(folder, {"Functional.relu.0.forward": record()})
    return folder


def ended(
    folder: Path, line: tuple[str, ...], shell: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A command line, with what a shell makes of its streams (``>&-``)."""
    words = [sys.executable, "-m", "msprobe", *(word.format(dump=folder) for word in line)]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *words], capture_output=True, timeout=60, check=False, cwd=cwd
    )


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_what_cannot_be_printed_ends_in_one_sentence(folder: Path, line: tuple[str, ...]) -> None:
    answer = ended(folder, line, f">{FULL}")
    assert answer.returncode == 2
    assert answer.stderr.count(b"\n") == 1
    assert b"[U309]" in answer.stderr


@pytest.mark.parametrize("line", LINES, ids=" ".join)
@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
def test_a_process_without_streams_does_its_work(folder: Path, line: tuple[str, ...], streams: str) -> None:
    answer = ended(folder, line, streams)
    assert (answer.returncode, answer.stderr) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", [("summary", "nowhere"), ("summary",), ("no-command",)], ids=" ".join)
@pytest.mark.parametrize("stream", ["2>&-", f"2>{FULL}"])
def test_the_status_counts_where_nobody_reads_the_error(folder: Path, line: tuple[str, ...], stream: str) -> None:
    assert ended(folder, line, stream).returncode == 2


def test_nothing_that_is_printed_gets_into_a_file_of_the_command(folder: Path, tmp_path: Path) -> None:
    line = ("check", "{dump}", "-o", str(tmp_path / "out"))
    assert ended(folder, line, "<&- >&- 2>&-").returncode == 0
    assert json.loads((tmp_path / "out" / "check.json").read_text())["findings"] == []


def test_a_working_directory_that_is_gone_is_named_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    inside = ended(folder, ("check", "{dump}", "-o", "out"), "", gone)
    assert inside.returncode == 0
    words = [sys.executable, "-m", "msprobe", "check", str(folder), "-o", "out"]
    answer = subprocess.run(
        ["sh", "-c", f'rm -r "{gone}"; exec "$@"', "sh", *words], capture_output=True, timeout=60, check=False, cwd=gone
    )
    assert answer.returncode == 2
    assert answer.stderr.count(b"\n") == 1
    assert b"[F126]" in answer.stderr

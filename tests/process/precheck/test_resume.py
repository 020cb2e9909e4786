"""Checks that are continued, and options of how long they wait."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from support.command_line import call
from support.row_by_row import for_each

from msprobe.cli.parser import seconds
from msprobe.precheck.check import CheckRequest, run_check
from msprobe.precheck.job import Task
from msprobe.precheck.writer import CheckFiles

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4], "Max": 2.0, "Min": -2.0}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    data = {f"Torch.sin.{n}.forward": {"input_args": [TENSOR], "output": [TENSOR]} for n in range(3)}
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "framework": "pytorch", "dump_data_dir": None, "data": data}))
    return path


def checked(dump: Path, resume: str = "", **task: Any) -> CheckFiles:
    """The files of a check; its candidate is the first one there."""
    choices = {"candidate": "cpu", **task}
    request = CheckRequest(
        str(dump), str(dump.parent), Task("", **choices), (choices["candidate"],), resume=resume, timeout=60
    )
    return run_check(request).files


def cut(files: CheckFiles) -> str:
    """The result file without its last call."""
    files.result.write_bytes(b"".join(files.result.read_bytes().splitlines(keepends=True)[:-1]))
    return str(files.result)


CHOICES: dict[str, dict[str, Any]] = {
    "different seed 7 (before: 1234).": {"seed": 7},
    "different standard 8.1.1 (before: strict).": {"standard": "8.1.1"},
    "different candidate cpu+threads=1 (before: cpu).": {"candidate": "cpu+threads=1"},
}


@pytest.mark.usefixtures("forked_workers")
def test_a_check_that_goes_on_with_other_choices_says_so_once(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = checked(dump)
    checked(dump, cut(files))
    assert "-csv_path" not in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in dump.parent.iterdir() if path.is_file()}
    for said, choice in CHOICES.items():
        for name, content in before.items():
            (dump.parent / name).write_bytes(content)
        checked(dump, cut(files), **choice)
        told = capsys.readouterr().out
        assert told.count("-csv_path") == 1, said
        assert said in told


@for_each("text", ["nan", "inf", "-1", "0", "1e300", "soon"])
def test_a_time_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"seconds above 0, at most 1e\\+06, found {text}"):
        seconds(text)
    assert seconds("0.5") == 0.5


@pytest.mark.parametrize("command", ["run_ut", "op_check", "run_overflow_check"])
def test_a_wrong_time_limit_is_one_sentence_and_status_2(dump: Path, command: str) -> None:
    which = ["-o", dump.parent] if command == "op_check" else ["-api_info", dump]
    refused = call(command, *which, "--timeout", "nan")
    assert refused.returncode == 2
    assert "--timeout" in refused.stderr
    assert "nan" in refused.stderr
    assert "Traceback" not in refused.stderr

"""No control character, and no mark that turns the direction of text, comes to the console out of a file or a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostile.limits import Answer, Called
from hostile.made import TENSOR, dump, monitored, record

EVIL = "\x1b]0;owned\x07\x1b[31m\x9b\u202e\u2028"


def test_message_about_a_type(tmp_path: Path) -> None:
    file = dump(tmp_path / "A", {"Functional.gelu.0.forward": record({**TENSOR, "dtype": EVIL})})
    words = "op_generate", "--dump", file, "--api", "Functional.gelu.0", "-o", tmp_path / "out"
    Called(*words, cwd=tmp_path).demand_printable()


def test_names_of_a_monitored_run(tmp_path: Path) -> None:
    sides = [monitored(tmp_path / side, f"layer{EVIL}.weight", change) for side, change in (("A", 0.0), ("B", 1.0))]
    answer = Called("monitor", "diff", *sides, cwd=tmp_path)
    assert "layer" in answer.text, answer.text[-300:]
    answer.demand_printable()


def test_summary_of_a_dump(tmp_path: Path) -> None:
    dump(tmp_path / "A", {f"Functional.{EVIL}.0.forward": record({**TENSOR, "Max": float("nan"), "dtype": EVIL})})
    Called("summary", tmp_path / "A", cwd=tmp_path).demand_printable()


@pytest.mark.parametrize("command", ["check", "summary", "compare", "view", "reproduce", "config_check", "nan_analyze"])
def test_a_path_in_a_message(tmp_path: Path, command: str) -> None:
    answer = Called(command, f"{EVIL}", "-o", tmp_path / "out", cwd=tmp_path)
    assert answer.status != 0
    answer.demand_printable()


def test_a_traceback_that_was_asked_for(tmp_path: Path) -> None:
    answer = Answer("--debug", "check", tmp_path / f"x{EVIL}", cwd=tmp_path)
    assert answer.status != 0
    answer.demand_printable()


def test_names_of_options_and_commands(tmp_path: Path) -> None:
    for words in ((f"check{EVIL}",), ("check", f"--x{EVIL}"), ("-f", EVIL, "check"), ("monitor", EVIL)):
        answer = Called(*words, cwd=tmp_path)
        assert answer.status == 2
        answer.demand_printable()


def test_names_in_settings(tmp_path: Path) -> None:
    file = dump(tmp_path / "A", {"Functional.relu.0.forward": record()})
    (tmp_path / "config.json").write_text(json.dumps({EVIL: 1, "white_list": [EVIL]}, ensure_ascii=False), "utf-8")
    words = "run_ut", "-api_info", file, "-o", tmp_path / "out", "-config", tmp_path / "config.json"
    Called(*words, cwd=tmp_path).demand_printable()
    (tmp_path / "a.yaml").write_text(json.dumps({"lr": EVIL, EVIL: "[1"}), "utf-8")
    Called("config_check", "-d", tmp_path / "a.yaml", "-o", tmp_path / "a.zip", cwd=tmp_path).demand_printable()


def test_names_of_two_dumps(tmp_path: Path) -> None:
    for side, most in (("A", 1.0), ("B", 2.0)):
        data = {f"Functional.{EVIL}.0.forward": record({**TENSOR, "Max": most})}
        place = dump(tmp_path / side, data)
        (place.parent / "stack.json").write_text(json.dumps({f"Functional.{EVIL}.0.forward": [EVIL]}), "utf-8")
    Called("compare", tmp_path / "A", tmp_path / "B", cwd=tmp_path).demand_printable()
    Called("check", tmp_path / "A", cwd=tmp_path).demand_printable()

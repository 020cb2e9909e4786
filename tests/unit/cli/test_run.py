from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from support.coded_texts import mentions
from support.row_by_row import for_each

from msprobe.cli import main, run


@for_each(
    ("words", "own", "script"),
    [
        ("--config c.json -- train.py --lr 3", "--config c.json", "train.py --lr 3"),
        ("--config c.json train.py --config x -- y", "--config c.json", "train.py --config x -- y"),
        ("--config=c.json --level L0 train.py", "--config=c.json --level L0", "train.py"),
        ("-- -m package.train --epochs 3", "", "-m package.train --epochs 3"),
        (
            "--dump-path d --dump_path e --task tensor s.py",
            "--dump-path d --dump_path e --task tensor",
            "s.py",
        ),
        ("--first-step 100 train.py", "--first-step 100", "train.py"),
        ("-- train.py -h", "", "train.py -h"),
        ("--config c.json", "--config c.json", ""),
        ("--config", "--config", ""),
    ],
)
def test_the_script_keeps_all_its_own_words(words: str, own: str, script: str) -> None:
    assert run.split(words.split()) == (own.split(), script.split())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls of `run_script`, which is replaced: the recorder has its own tests."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def run_script(*args: Any, **keywords: Any) -> int:
        seen.append((args, keywords))
        return 7

    module = types.ModuleType("msprobe.launcher.runscript")
    module.run_script = run_script  # type: ignore[attr-defined]
    for parent in ("msprobe.capture", "msprobe.capture.torch"):
        if parent not in sys.modules:
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, "msprobe.launcher.runscript", module)
    return seen


def test_the_script_is_run_with_the_configuration_and_its_status_returned(calls: list[Any]) -> None:
    assert main(["run", "--config", "c.json", "--", "train.py", "--lr", "3"]) == 7
    assert calls == [(("c.json", ["train.py", "--lr", "3"]), {})]


def test_options_override_the_configuration(calls: list[Any]) -> None:
    options = ["--config", "c", "--task", "tensor", "--level", "mix", "--dump-path", "d", "--first-step", "100"]
    words = ["-f", "pytorch", "run", *options, "--step-on", "call:train_step", "t.py"]
    assert main(words) == 7
    given = {"task": "tensor", "level": "mix", "dump_path": "d", "first_step": 100, "step_on": "call:train_step"}
    assert calls == [(("c", ["t.py"]), given)]


@pytest.mark.parametrize(
    "words", [["--level", "L9"], ["--first-step", "-1"], ["--first-step", "two"], ["--step-on", "sunday"]]
)
def test_an_option_that_is_wrong_ends_with_2_as_the_help_says(
    words: list[str], calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["run", *words, "t.py"])
    assert ending.value.code == 2
    assert calls == []
    with pytest.raises(SystemExit):
        main(["run", "-h"])
    meaning = "2 wrong usage or bad input, or there is nothing to run"
    assert meaning in " ".join(capsys.readouterr().out.split())


def test_without_a_configuration_the_packaged_one_is_used(calls: list[Any]) -> None:
    assert main(["run", "train.py"]) == 7
    assert calls == [((None, ["train.py"]), {})]


def test_no_script_is_an_error_that_shows_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", "c.json"]) == 2
    assert mentions(capsys.readouterr().err, "run-without-script")


def test_mindspore_scripts_are_declined(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-f", "mindspore", "run", "train.py"]) == 2
    assert mentions(capsys.readouterr().err, "run-for-mindspore")
    assert calls == []


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Refuse:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.startswith("msprobe.capture"):
                raise ModuleNotFoundError("No module named 'torch'", name="torch")

    for name in [name for name in sys.modules if name.startswith("msprobe.capture")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refuse(), *sys.meta_path])
    assert main(["run", "train.py"]) == 2
    assert "pip install 'msprobe-debugger[torch]'" in capsys.readouterr().err

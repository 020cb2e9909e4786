"""The demo without its trainings: its folder, its copy, and when a browser opens."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
from support.command_line import call

from msprobe.children import starting
from msprobe.demo import showing

VERDICT = {"findings": [{"kind": "argument"}]}


class Commands:
    """Stands in for the commands that the demo runs: the comparison leaves a verdict, or one of them fails."""

    def __init__(self, failing: str = "", raising: BaseException | None = None, verdict: object = VERDICT) -> None:
        self.failing, self.raising, self.verdict = failing, raising, verdict
        self.called: list[str] = []

    def __call__(self, words: tuple[str, ...], folder: Path) -> tuple[int, str]:
        self.called.append(words[0])
        if words[0] == "run":
            (folder / words[4]).mkdir()
            (folder / words[4] / "dump.json").write_text("{}")
        else:
            (folder / "comparison").mkdir()
            (folder / "comparison" / "verdict.json").write_text(json.dumps(self.verdict))
        if self.raising is not None:
            raise self.raising
        return (3 if words[0] == self.failing else int(words[0] == "compare")), "printed\n"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    found = Commands()
    monkeypatch.setattr(starting, "run_command", found)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return found


def test_one_line_of_the_copy_differs_and_the_output_names_it(tmp_path: Path, commands: Commands) -> None:
    done = call("demo", "-o", tmp_path / "new" / "demo")
    assert done.returncode == 0, done.stderr
    assert commands.called == ["run", "run", "compare"]
    texts = [(tmp_path / "new" / "demo" / name).read_text() for name in ("train.py", "train_changed.py")]
    differing = [i for i, (a, b) in enumerate(zip(*map(str.splitlines, texts), strict=True), 1) if a != b]
    assert len(differing) == 1
    assert f"line {differing[0]}" in done.stdout
    assert all(ast.parse(text) for text in texts)
    assert not any("import msprobe" in text or "from msprobe" in text for text in texts)
    assert sum(line.startswith("  msprobe ") for line in done.stdout.splitlines()[-3:]) == 3


@pytest.mark.parametrize("failing", ["run", "compare"])
@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_stays_where_a_command_fails(tmp_path: Path, commands: Commands, failing: str, is_there: bool) -> None:
    commands.failing = failing
    if is_there:
        (tmp_path / "demo").mkdir()
    done = call("demo", "-o", tmp_path / "demo")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.rglob("*")) == ([tmp_path / "demo"] if is_there else [])


def test_a_verdict_that_names_something_else_is_an_error(tmp_path: Path, commands: Commands) -> None:
    commands.verdict = {"findings": [{"kind": "batch"}]}
    assert call("demo", "-o", tmp_path / "demo").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_where_the_user_interrupts(tmp_path: Path, commands: Commands) -> None:
    commands.raising = KeyboardInterrupt()
    assert call("demo", "-o", tmp_path / "demo").returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_and_a_file_are_refused_and_stay_as_they_are(tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt"):
        assert call("demo", "-o", place).returncode == 2
    assert commands.called == []
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("variables", "words", "opens"),
    [
        ({"DISPLAY": ":0"}, (), True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, (), True),
        ({"DISPLAY": ":0"}, ("--no-open",), False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, (), False),
        ({}, (), False),
    ],
)
def test_the_page_opens_where_a_window_would_be_seen(
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    words: tuple[str, ...],
    opens: bool,
) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    opened: list[str] = []
    monkeypatch.setattr(showing.webbrowser, "open", opened.append)
    assert call("demo", "-o", tmp_path / "demo", *words).returncode == 0
    assert opened == ([(tmp_path / "demo" / "comparison" / "verdict.html").as_uri()] if opens else [])


def test_without_torch_a_sentence_says_what_to_install(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "find_spec", lambda name: None)
    done = call("demo", "-o", tmp_path / "demo")
    assert done.returncode == 2
    assert "pip install 'msprobe-debugger[torch]'" in done.stderr
    assert list(tmp_path.iterdir()) == []

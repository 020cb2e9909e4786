"""Which commands and processes of a recorded program are further ranks of it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import process, spawn
from pathlib import Path
from typing import Any

import pytest

from msprobe.children import starting
from msprobe.errors import PathError
from msprobe.launcher.child_processes import ChildProcesses, recorded_command

WORDS = ["--level", "mix"]
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
LEAD = [*starting.command("msprobe.cli", "run")[1:], *WORDS, "--"]


@pytest.fixture(autouse=True)
def _no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK, "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (["train.py", "-m", "x"], 1),
        (["-u", "train.py"], 2),
        (["-m", "package.train", "x"], 1),
        (["-u", "-X", "dev", "-W", "ignore", "-Wd", "train.py"], 7),
        (["-u", "-m", "package.train"], 2),
    ],
)
def test_a_rank_that_is_the_script_again_is_recorded(given: list[str], place: int) -> None:
    command = [sys.executable, *given]
    expected = [*command[:place], *LEAD, *command[place:]]
    assert recorded_command(command, {**os.environ, **RANK}, WORDS) == expected
    assert recorded_command(tuple(command), {**os.environ, "ACCELERATE_MIXED_PRECISION": "no"}, WORDS) == expected


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        [],
        [sys.executable],
        [sys.executable, "-m"],
        [sys.executable, "-c", "print()"],
        [sys.executable, "-uc", "print()"],
        [sys.executable, "-"],
        ["/bin/echo", "train.py"],
        [sys.executable, "-m", "msprobe", "run", "train.py"],
        [sys.executable, "/usr/bin/msprobe", "run", "train.py"],
        [sys.executable, *LEAD, "train.py"],
        [b"python", "train.py"],
    ],
)
def test_other_commands_stay_as_they_are(command: Any) -> None:
    assert recorded_command(command, {**os.environ, **RANK}, WORDS) is None


def test_what_a_rank_starts_for_itself_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of data, say: it has the environment of its rank."""
    for name, value in RANK.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "serve.py"]
    assert recorded_command(command, None, WORDS) is None
    assert recorded_command(command, dict(os.environ), WORDS) is None
    assert recorded_command(command, {**os.environ, "LOCAL_RANK": "0"}, WORDS) is not None


def never(words: Sequence[str]) -> None:
    """Follow no process."""


def test_commands_run_with_their_own_arguments_and_everything_is_put_back(tmp_path: Path) -> None:
    package = tmp_path / "msprobe"
    package.mkdir()
    (package / "__main__.py").write_text("print('of a stranger')")
    places = [
        (subprocess.Popen, "__init__"),
        (process.BaseProcess, "_bootstrap"),
        (process.BaseProcess, "start"),
        (spawn, "get_preparation_data"),
    ]
    before = [vars(holder)[name] for holder, name in places]
    children = ChildProcesses(WORDS, never)
    children.attach()
    try:
        plain = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, check=True)
        assert not children.started
        told = {**os.environ, **RANK}
        rank = subprocess.run(
            args=[sys.executable, "-S", "t.py", "a"], env=told, cwd=tmp_path, capture_output=True, text=True
        )
        assert children.started
    finally:
        children.detach()
    assert plain.stdout == "1\n"
    assert rank.args == [sys.executable, "-S", *LEAD, "t.py", "a"]
    assert "of a stranger" not in rank.stdout, "a package of the working directory is not run in its place"
    assert [vars(holder)[name] for holder, name in places] == before


def broken(words: Sequence[str]) -> None:
    """Fail to follow."""
    raise KeyError("broken")


@pytest.mark.parametrize("follow", [never, broken])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_are_no_ranks_run_as_they_would(method: str, follow: Any) -> None:
    children = ChildProcesses(WORDS, follow)
    children.attach()
    try:
        context = multiprocessing.get_context(method)
        child = context.Process(target=sys.exit, args=(3,))  # type: ignore[attr-defined]
        child.start()
        child.join()
    finally:
        children.detach()
    assert child.exitcode == 3


def test_a_command_that_is_a_python_script_is_found_like_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``msprobe run -- torchrun ...``."""
    from msprobe.launcher.runscript import _target

    for name, first in (("launch", f"#!{sys.executable}"), ("tool", "#!/bin/sh")):
        (tmp_path / name).write_text(first + "\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    target, words = _target(["launch", "train.py"])
    assert (target.path, words) == (str(tmp_path / "launch"), [str(tmp_path / "launch"), "train.py"])
    for name in ("tool", "none", "./launch"):
        with pytest.raises(PathError, match="does not exist"):
            _target([name])

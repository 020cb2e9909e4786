"""How processes of msprobe are started, and where they find modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msprobe.children import starting
from msprobe.children.places import leave_working_directory, module_places

PLANTED = ("signal.py", "select.py", "struct.py", "pickle.py", "traceback.py", "__future__.py", "typing.py")


def test_a_child_runs_nothing_of_its_working_directory_where_python_has_no_safe_path(tmp_path: Path) -> None:
    """As before Python 3.11, which has no variable for it."""
    for name in (*PLANTED, "msprobe.py"):
        (tmp_path / name).write_text("raise SystemExit(77)\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        starting.command("msprobe.children.job_process"), cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0


def test_only_modules_of_msprobe_are_started(tmp_path: Path) -> None:
    words = starting.command("http.server")
    done = subprocess.run(words, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert "first.py" in done.stderr


def test_the_working_directory_is_no_place_of_modules_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(tmp_path / "other"), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    assert str(tmp_path) not in module_places()
    assert "" not in module_places()
    assert module_places()[0] == str(tmp_path / "other")
    for named in (str(tmp_path), ".", f"{tmp_path}{os.pathsep}"):
        monkeypatch.setenv("PYTHONPATH", named)
        assert str(tmp_path) in module_places()


def test_an_empty_entry_is_taken_off_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = ["/bin_of_python", str(tmp_path), "/elsewhere", "/lib/python"]
    for given, left in ((":/elsewhere", ["/bin_of_python", "/elsewhere", "/lib/python"]), ("/elsewhere", before)):
        monkeypatch.setenv("PYTHONPATH", given)
        monkeypatch.setattr(sys, "path", list(before))
        leave_working_directory()
        assert sys.path == left


def test_the_environment_of_a_child_is_safe_and_has_no_empty_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/kernels")
    monkeypatch.setattr(sys, "path", ["", "/kernels", *sys.path])
    environment = starting.child_environment()
    assert environment["PYTHONSAFEPATH"] == "1"
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == "/kernels"
    assert "" not in environment["PYTHONPATH"].split(os.pathsep)
    assert "PYTHONPATH" not in starting.child_environment(has_own_modules=False)


def test_own_commands_are_known() -> None:
    for words in (["-m", "msprobe", "run"], ["/usr/bin/msprobe"], starting.command("msprobe.cli", "run")[1:]):
        assert starting.is_own_command(words)
    for words in (["train.py"], ["-m", "train"]):
        assert not starting.is_own_command(words)

"""The command line as a process: what it costs, prints and answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_an_error_is_one_line_and_a_traceback_only_with_debug(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    plain = python("-m", "msprobe", "summary", absent)
    assert plain.returncode == 2
    assert plain.stderr.startswith("msprobe: ")
    assert "absent" in plain.stderr
    assert plain.stderr.count("\n") == 1
    for words in (["--debug", "summary", absent], ["summary", absent, "--debug"]):
        debug = python("-m", "msprobe", *words)
        assert debug.returncode == 1
        assert "Traceback" in debug.stderr
        assert "PathError: [msprobe] " in debug.stderr


def _cpu_seconds(program: str, rounds: int = 5) -> float:
    """Least CPU time of the statements in a fresh interpreter, the interpreter's own start not counted."""
    measure = f"import time\nt = time.process_time()\n{program}\nprint('\\n', time.process_time() - t)"
    return min(float(python("-c", measure).stdout.split()[-1]) for _ in range(rounds))


def test_import_takes_less_than_50_ms_of_cpu() -> None:
    assert _cpu_seconds("import msprobe") < 0.050


def test_help_takes_less_than_150_ms_of_cpu_interpreter_included() -> None:
    times = []
    for _ in range(5):
        before = os.times()
        assert python("-m", "msprobe", "-h").returncode == 0
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.150


def test_a_reader_that_leaves_early_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, types\nfrom msprobe.cli import commands, main\n"
        "module = types.ModuleType('msprobe.cli.endless')\n"
        "module.configure = lambda parser: None\n"
        "def execute(args):\n  while True: print('x' * 1000)\n"
        "module.execute = execute\nsys.modules['msprobe.cli.endless'] = module\n"
        "commands.COMMANDS['endless'] = commands.Command('endless', 'endless', 'look', 'print', 'nothing')\n"
        "sys.exit(main(['endless']))\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.readline()
    writer.stdout.close()
    assert writer.wait(60) == 1
    assert writer.stderr.read() == b""
    writer.stderr.close()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_shell_ends_with_its_pipe(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "msprobe", "-f", "pytorch", "parse"], input=b"pt -n nope.npy\n", timeout=60, check=False,
        capture_output=True,
    )  # fmt: skip
    assert ended.returncode == 2
    assert b"nope.npy" in ended.stdout

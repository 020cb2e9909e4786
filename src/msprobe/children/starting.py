"""How a process is started: the one place of msprobe that does so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msprobe.children.places import PATHS, module_places

#: The package that a child runs: the one that runs here.
_PACKAGE = Path(__file__).resolve().parents[1]
_FIRST = str(_PACKAGE / "children" / "first.py")
# Python 3.11 and later; processes that a child starts inherit it, as those of a compiler.
_SAFE = "PYTHONSAFEPATH"

Process = subprocess.Popen[bytes]
TimeoutExpired = subprocess.TimeoutExpired
PIPE = subprocess.PIPE


def command(module: str, *words: str, python: str = "") -> list[str]:
    """The words that start a module of msprobe, which has a function ``main``.

    ``python``: that of a different environment, to which only msprobe itself is brought along.
    """
    return [python or sys.executable, _FIRST, module, *words]


def is_own_command(words: Sequence[str | os.PathLike[str]]) -> bool:
    """True for words behind a Python that start msprobe itself."""
    given = [os.fspath(word) for word in words[:2]]
    return given[:1] == [_FIRST] or given == ["-m", "msprobe"] or os.path.basename(given[0]) == "msprobe"


def start_module(module: str, *words: str, python: str = "", variables: Mapping[str, str] | None = None) -> Process:
    """Start a module of msprobe; its input and output are pipes. ``variables`` are added to its environment.

    Raises OSError where the Python cannot be run.
    """
    environment = {**child_environment(has_own_modules=not python), **(variables or {})}
    return subprocess.Popen(command(module, *words, python=python), stdin=PIPE, stdout=PIPE, env=environment)


def run_script(path: Path, words: Sequence[str]) -> int:
    """Run a script that msprobe has written, and wait; its exit status. It takes its own folder away for itself."""
    done = subprocess.run([sys.executable, str(path), *words], check=False, env=child_environment())
    return done.returncode


def run_command(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a command line of msprobe in a folder, and wait; its exit status, and what it printed on both streams."""
    done = subprocess.run(
        command("msprobe.cli", *words),
        check=False,
        cwd=folder,
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def child_environment(has_own_modules: bool = True) -> dict[str, str]:
    """The environment of a child: it finds modules where this process does, but not in the working directory.

    A working directory that the user named in ``PYTHONPATH`` stays; an empty entry there names none.
    ``has_own_modules``: False for the Python of a different environment, where our modules do not fit.
    """
    environment = {**os.environ, _SAFE: "1"}
    environment.pop(PATHS, None)
    places = module_places() if has_own_modules else []
    return {**environment, PATHS: os.pathsep.join(places)} if places else environment


def close(process: Process) -> None:
    """Close the pipes of a process; one that reads its input ends then."""
    pipes: tuple[IO[bytes] | None, ...] = (process.stdin, process.stdout)
    for pipe in pipes:
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue

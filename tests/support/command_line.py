"""The command ``msprobe`` in tests: called in the process of the test, or as a process of its own, as users have it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msprobe import log
from msprobe.cli import main

Completed = subprocess.CompletedProcess[str]


def call(*words: object, cwd: Path | None = None) -> Completed:
    """What ``msprobe WORDS...`` prints and answers, without a process of its own, which takes most of a second."""
    log.forget_once()
    out, err = io.StringIO(), io.StringIO()
    given = [str(word) for word in words]
    place = contextlib.nullcontext() if cwd is None else _working_folder(cwd)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), place:
        try:
            status = main(given)
        except SystemExit as ending:  # wrong usage
            status = int(str(ending.code))
    return Completed(given, status, out.getvalue(), err.getvalue())


def process(*words: object, cwd: Path | None = None) -> Completed:
    """``python -m msprobe WORDS...``."""
    command = [sys.executable, "-m", "msprobe", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


@contextlib.contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)

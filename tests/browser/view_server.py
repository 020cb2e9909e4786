"""`msprobe view` as a user starts it, for tests in a browser."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def viewing(*paths: Path, matches: Path | None = None) -> Iterator[str]:
    """The address that it prints, while it runs. ``matches``: the folder for pairs made by hand."""
    flags = [
        "--no-browser",
        *(["--jobs", "1"] if len(paths) > 1 else []),
        *(["--matches", str(matches)] if matches else []),
    ]
    command = [sys.executable, "-m", "msprobe", "view", *map(str, paths), *flags]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            lines = (re.search(r"http://127\.0\.0\.1:\S+", line) for line in server.stdout)
            yield next(filter(None, lines)).group()
        finally:
            server.terminate()

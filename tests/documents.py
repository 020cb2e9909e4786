"""Commands in documents, run as they stand there, and what they print.

A fence ```` ```console ```` holds commands (``$ ...``) and their output. A comment in the line before it says more:
``<!-- status=1 lines=12 -->``. ``status`` is the exit status of the last command (0 otherwise), ``lines`` and ``last``
how many of the first or last lines of outputs are shown (``...`` stands for the rest). A comment
``<!-- commands run in FOLDER -->`` names the folder of the repository that is copied for all commands of a page.
``python tests/documents.py PAGE ...`` writes the output of this machine into the pages.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forked

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(
    r"^(?:<!-- (?P<words>(?:\w+=\d+ ?)+) ?-->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FOLDER = re.compile(r"<!-- commands run in (\S+) -->")
_LOG = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\)|\*{20,}|Setting OMP_NUM_THREADS|\[W\d|\[Gloo\]")
# Digits behind the point, and counts of elements, are those of one processor's kernels; times are of the day.
_NUMBER = re.compile(
    r"-?\d[\d,]*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+|[\d,]+ times|\d+ of \d+ elements|\d{14,}"
    r"|\d+(?= s\b)|\d+(?= environment variables)|\d+(?= versions)"
)


@dataclass(frozen=True)
class Block:
    """A fence: its ``kind``, ``options`` of the comment before it, ``text``, and where that stands in the page."""

    kind: str
    options: dict[str, str]
    text: str
    span: tuple[int, int]

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a console, each with the output that is shown behind it."""
        pieces = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE)[1:]
        return list(zip(pieces[::2], pieces[1::2], strict=True))


def blocks_of(text: str) -> list[Block]:
    """All fences of a page."""
    found = []
    for match in _FENCE.finditer(text):
        options = dict(word.partition("=")[::2] for word in (match["words"] or "").split())
        found.append(Block(match["kind"], options, match["text"], match.span("text")))
    return found


def folder_of(text: str) -> Path | None:
    """The folder that the commands of a page are run in a copy of."""
    found = _FOLDER.search(text)
    return ROOT / found[1] if found else None


@contextlib.contextmanager
def copied(page: Path) -> Iterator[Path]:
    """A copy of the folder of a page, whose path always has the same length: lines of outputs break by it."""
    source = folder_of(page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as place:
        folder = Path(place)
        if source is not None:
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("output", "__pycache__"))
        yield folder


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run a command line in a folder; its exit status and what it printed, without lines of logs."""
    words = shlex.split(command, comments=True)
    variables = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "BROWSER": "true"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    environment = {**os.environ, **variables}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    if words[0] in ("msprobe", "python"):
        own = ["-m", "msprobe", *words[1:]] if words[0] == "msprobe" else words[1:]
        done = forked.run(*own, cwd=folder, env=environment, timeout=250)
    else:
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    lines = f"{done.stdout}{done.stderr}".replace(f"{folder}/", "").splitlines()
    return done.returncode, "\n".join(line.rstrip() for line in lines if not _LOG.search(line)).strip("\n")


def normal(text: str) -> str:
    """A text without what differs between machines: breaks of lines, digits of results."""
    return _NUMBER.sub("#", " ".join(text.split()))


def as_shown(printed: str, block: Block) -> str:
    """What a page shows of an output: all of it, or its first lines."""
    lines = printed.splitlines()
    last = int(block.options.get("last", 0))
    if 0 < last < len(lines):
        return "\n".join(["...", *lines[-last:]])
    most = int(block.options.get("lines", len(lines)))
    return "\n".join([*lines[:most], *(["..."] if len(lines) > most else [])])


def differences(page: Path, folder: Path) -> Iterator[str]:
    """Run all commands of a page in ``folder``, in order; what differs from what it says."""
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.kind != "console":
            continue
        for number, (command, shown) in enumerate(block.commands, 1):
            status, printed = run(command, folder)
            wanted = int(block.options.get("status", 0)) if number == len(block.commands) else 0
            if status != wanted:
                yield f"{command}: status {status}, {wanted} is expected; {printed[-2000:]}"
            if normal(as_shown(printed, block)) != normal(shown):
                yield f"{command}: printed\n{as_shown(printed, block)}\nthe page shows\n{shown}"


def write(page: Path) -> None:
    """Put what the commands print here into the page."""
    text = page.read_text(encoding="utf-8")
    with copied(page) as folder:
        pieces, end = [], 0
        for block in blocks_of(text):
            if block.kind != "console":
                continue
            body = ""
            for command, _ in block.commands:
                printed = as_shown(run(command, folder)[1], block)
                body += f"$ {command}\n{printed}\n" if printed else f"$ {command}\n"
            pieces += [text[end : block.span[0]], body]
            end = block.span[1]
        page.write_text("".join([*pieces, text[end:]]), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))

"""Blocks of documents, run as they stand there in one folder, in order, and what they print.

A fence ```` ```console ```` holds commands (``$ ...``) and their output; a line ``...`` in it stands for any lines.
One of ```` ```bash ```` holds commands alone, one a line: they must work, with 0 or 1 for an answer. One of
```` ```python ```` is a program; an expression whose comment is a literal must have that value. A comment in the line
before a fence, which readers do not see, says more:

``<!-- status=1 lines=12 -->``: ``status`` is the exit status of the last command of a console (0 otherwise); ``lines``
and ``last`` are how many of the first or last lines of outputs are written into the page.
``<!-- the file NAME -->``: the text of the fence is that file, for the blocks behind it.
``<!-- not run: REASON -->``: it is not run; reasons are those of :data:`REASONS`.
``<!-- shown: WHAT -->``: a fence without a kind, which nothing is run for; what it may be is in :data:`SHOWN`.
``<!-- commands run in FOLDER -->``: the folder of the repository that is copied for all blocks of a page; what other
pages find there is in :mod:`document_inputs`.

``python tests/documents.py PAGE ...`` writes the output of this machine into the pages of such a folder.
"""

from __future__ import annotations

import ast
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

from support import command_line, forked
from support.option_walker import standing_in

ROOT = Path(__file__).resolve().parents[1]
#: Why a block is not run.
REASONS = {
    "needs a device": "an accelerator",
    "needs the network": "packages are installed from an index",
    "needs MindSpore": "has an environment of its own; its tests are in make test-mindspore",
    "generates with a model that is not here": "tests/unit/rollout/test_plain_models.py runs such a loop",
    "needs an engine": "vLLM has an environment of its own; its tests are in make test-rollout",
    "needs packages of others": "trainers of other packages; their tests are in make test-trainers",
    "needs many processes": "ranks of a launcher; tests/integration starts two",
    "needs two programs": "a training and its judge, side by side; tests/integration/test_online_check.py",
    "needs a C++ compiler": "torch.compile with inductor; tests/unit/precheck has another backend",
    "needs the shell": "it is typed line by line; tests/unit/cli/test_parse.py",
}
#: What a fence without a kind may be.
SHOWN = {
    "a drawing": "of how things go together",
    "a folder": "its files, and what they are",
    "a file in short": "its members, with `...` for what is left out",
    "the answer of an engine": "a real one: make test-rollout has its tests",
}
_FENCE = re.compile(r"^(?:<!-- (?P<words>[^\n]*) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FOLDER = re.compile(r"<!-- commands run in (\S+) -->")
_LOG = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\)|\*{20,}|Setting OMP_NUM_THREADS|\[W\d|\[Gloo\]")
# Digits behind the point, and counts of elements, are those of one processor's kernels; times are of the day.
_NUMBER = re.compile(
    r"-?\d[\d,]*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+|[\d,]+ times|\d+ of \d+ elements|\d{14,}"
    r"|\d+(?= s\b)|\d+(?= environment variables)|\d+(?= versions)"
)


@dataclass(frozen=True)
class Block:
    """A fence: its ``kind`` (empty for none), ``options`` of the comment before it, ``text``, and where that stands."""

    kind: str
    options: dict[str, str]
    text: str
    span: tuple[int, int]

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a console, each with the output that is shown behind it; those of a bash, with nothing."""
        if self.kind == "bash":
            lines = self.text.replace("\\\n", " ").splitlines()
            return [(line, "") for line in lines if line.strip() and not line.lstrip().startswith("#")]
        pieces = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE)[1:]
        return list(zip(pieces[::2], pieces[1::2], strict=True))

    @property
    def is_run(self) -> bool:
        """Is it a program or commands, and not left out?"""
        return self.kind in ("console", "bash", "python") and "not run" not in self.options


def blocks_of(text: str) -> list[Block]:
    """All fences of a page."""
    found = []
    for match in _FENCE.finditer(text):
        words = match["words"] or ""
        is_reason = words.startswith(("not run: ", "shown: "))
        name, _, value = words.partition(": ") if is_reason else words.rpartition(" ")
        if name in ("not run", "shown", "the file"):
            options = {name: value}
        else:
            options = dict(word.split("=") for word in words.split() if "=" in word)
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


#: Commands that run a program of the user, and so in a process of their own.
_WITH_PROGRAMS = ("run", "lockstep", "confirm", "demo", "doctor", "op_generate", "reproduce")


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run a command line in a folder; its exit status and what it printed, without lines of logs."""
    words = shlex.split(command, comments=True)
    variables = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "BROWSER": "true"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    environment = {**os.environ, **variables}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    assert words[0] not in ("pip", "pipx", "uvx"), "a page installs nothing while it is tested"
    if words[0] == "msprobe" and not set(_WITH_PROGRAMS) & set(words):
        with standing_in("browser"):
            done = command_line.call(*words[1:], cwd=folder)
    elif words[0] in ("msprobe", "python"):
        own = ["-m", "msprobe", *words[1:]] if words[0] == "msprobe" else words[1:]
        done = forked.run(*own, cwd=folder, env=environment, timeout=250)
    else:
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, printed_by(done, folder)


def printed_by(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    """What a command in a folder printed, without its path and without lines of logs."""
    lines = f"{done.stdout}{done.stderr}".replace(f"{folder}/", "").splitlines()
    return "\n".join(line.rstrip() for line in lines if not _LOG.search(line)).strip("\n")


def run_python(text: str, folder: Path, around: tuple[str, str]) -> str:
    """Run a program in a folder, between what the page takes for granted; why it failed, or nothing."""
    script = folder / "block.py"
    script.write_text("\n".join([around[0], _with_values(text), around[1]]), encoding="utf-8")
    done = forked.run(str(script), cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120)
    return "" if done.returncode == 0 else done.stderr[-2000:]


def _with_values(text: str) -> str:
    """A program that ends where an expression has another value than the literal of its comment."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        value = lines[node.lineno - 1].partition("  # ")[2]
        if isinstance(node, ast.Expr) and node.lineno == node.end_lineno and value:
            with contextlib.suppress(ValueError, SyntaxError):
                wanted = ast.literal_eval(value)
                code = ast.unparse(node.value)
                lines[node.lineno - 1] = f"assert ({code}) == {wanted!r}, ({code})"
    return "\n".join(lines)


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


def agree(printed: str, shown: str) -> bool:
    """Is what was printed what a page shows? A line ``...`` of the page stands for any lines."""
    pieces = [normal(piece) for piece in re.split(r"^ *\.\.\.$", shown, flags=re.MULTILINE)]
    left = normal(printed)
    if len(pieces) == 1:
        return left == pieces[0]
    if not (left.startswith(pieces[0]) and left.endswith(pieces[-1])):
        return False
    for piece in pieces:
        place = left.find(piece)
        if place < 0:
            return False
        left = left[place + len(piece) :]
    return True


def differences(
    page: Path, folder: Path, around: tuple[str, str] = ("", ""), made_in: Path | None = None
) -> Iterator[str]:
    """Run all blocks of a page in ``folder``, in order; what differs from what it says. ``around``: what stands before
    and behind each program. ``made_in``: a folder whose path is not shown, either.
    """
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if "the file" in block.options:
            (folder / block.options["the file"]).write_text(block.text, encoding="utf-8")
        elif block.is_run and block.kind == "python":
            if problem := run_python(block.text, folder, around):
                yield f"{block.text}\n{problem}"
        elif block.is_run:
            yield from _of_commands(block, folder, made_in)


def _of_commands(block: Block, folder: Path, made_in: Path | None) -> Iterator[str]:
    for number, (command, shown) in enumerate(block.commands, 1):
        status, printed = run(command, folder)
        printed = printed.replace(f"{made_in}/", "")
        wanted = [int(block.options.get("status", 0)) if number == len(block.commands) else 0]
        if block.kind == "bash":
            wanted = [0, 1]
        if status not in wanted or "Traceback (most" in printed:
            yield f"{command}: status {status}, {wanted} is expected; {printed[-2000:]}"
        elif block.kind == "console" and not agree(printed, shown):
            yield f"{command}: printed\n{printed}\nthe page shows\n{shown}"


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

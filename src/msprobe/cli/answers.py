"""What a command found, as data: with ``--json`` it stands on stdout, and nothing else does; with ``--quiet`` nothing.

A command gives its result with :func:`whole` (a tree of its own, as ``verdict.json``), or single facts with
:func:`note` and the files that it wrote with :func:`wrote`; what it prints is kept beside these. Without ``--json`` all
three do nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from msprobe.foreign.console import discard, harmless, say
from msprobe.messages import coded, messages_in

VERSION = 1


class CommandAnswer:
    """The result of one command. ``tree``: the text of its own result, in JSON; ``error``: why there is none."""

    def __init__(self) -> None:
        self.tree: str | None = None
        self.error: str | None = None
        self.facts: dict[str, Any] = {}
        self.files: list[str] = []
        self.printed = io.StringIO()

    def text(self, command: str, status: int) -> str:
        """One JSON object."""
        answer: dict[str, Any] = {"version": VERSION, "command": command, "exit_status": status, **self.facts}
        if self.error is not None:
            coded_error = next(iter(coded([self.error])), {})
            facts = {key: value for key, value in coded_error.items() if key != "text"}
            every = coded(messages_in(self.error))
            if len(every) > 1:  # several mistakes, all said at once
                facts["errors"] = every
            return json.dumps({**answer, "error": str(self.error), **facts}, indent=1, default=str)
        if self.tree is not None:
            return self.tree.rstrip("\n")
        lines = [harmless(line) for line in self.printed.getvalue().splitlines() if line]
        return json.dumps({**answer, "files": self.files, "text": lines}, indent=1, ensure_ascii=True, default=str)


_current: CommandAnswer | None = None


def whole(tree: str | bytes) -> None:
    """This JSON text is the result."""
    if _current is not None:
        _current.tree = tree if isinstance(tree, str) else tree.decode()


def note(**facts: Any) -> None:
    """Facts of the result: numbers, texts, lists and mappings of them."""
    if _current is not None:
        _current.facts.update(facts)


def wrote(paths: Iterable[object]) -> None:
    """Files or folders that were written."""
    if _current is not None:
        _current.files += [str(path) for path in paths]


def failed(message: str) -> None:
    """The command could not do its work, for this reason."""
    if _current is not None:
        _current.error = message


@contextlib.contextmanager
def collected(command: str, is_asked: bool, quiet: bool, runs_program: bool) -> Iterator[list[int]]:
    """Keep what a command prints from stdout, where ``--json`` or ``--quiet`` ask for that, and print its result in the
    end, with the status that the caller puts into the list; without one, nothing.

    ``runs_program``: a program of the user runs in this process; what it prints goes to stderr beside ``--json``, and
    where it goes without us beside ``--quiet``.
    """
    status: list[int] = []
    if not is_asked:
        silent = contextlib.nullcontext() if runs_program else _silent()
        with _few_words(silent) if quiet else contextlib.nullcontext():
            yield status
        return
    global _current
    before, _current = _current, CommandAnswer()
    answer = _current
    try:
        with _to_stderr() if runs_program else contextlib.redirect_stdout(answer.printed), _log_to_stderr():
            yield status
    finally:
        _current = before
    if status:
        try:
            say(answer.text(command, status[0]), flush=True)
        except BrokenPipeError:
            discard(sys.stdout)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing goes to stdout."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


@contextlib.contextmanager
def _few_words(stdout: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Of the log, warnings and errors alone go to stderr; ``stdout``: what becomes of that."""
    asked = os.environ.get("MSPROBE_LOG_LEVEL", "2")
    with stdout, _log_to_stderr(), _variable("MSPROBE_LOG_LEVEL", asked if asked in ("2", "3", "4") else "2"):
        yield


def _log_to_stderr() -> contextlib.AbstractContextManager[None]:
    return _variable("MSPROBE_LOG_STREAM", "stderr")


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """A variable of this process and those that it starts."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _to_stderr() -> Iterator[None]:
    """What this process and its children print goes to stderr."""
    sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # a process without stdout
            yield
            return
        os.dup2(2, 1)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 1)
            os.close(kept)

"""What msprobe says while it works: one line each, on stdout, where mindstudio-probe writes its own.

The form is ``YYYY-mm-dd HH:MM:SS (pid) [rank R] [LEVEL] text``; the rank part is there once a rank is known.
The environment variable ``MSPROBE_LOG_LEVEL`` selects the least level that is shown: 0 debug, 1 info (also
for any other value), 2 warning, 3 error, 4 nothing. It is read at every call, so a running program may change
it.

Nothing here raises, and nothing is left in the buffer of stdout: a training whose stdout was closed goes on
and ends as it would without msprobe.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Hashable
from typing import Literal, TextIO

from msprobe.messages.languages import translated

Level = Literal["debug", "info", "warning", "error"]

_ORDER: dict[str, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_LEAST: dict[str, int] = {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}

# C0, DEL, C1, separators of lines, marks of direction: a message is one line and cannot drive the terminal.
_CLEAN: dict[int, str] = dict.fromkeys(
    [
        *(*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F),
        *(*range(0x2028, 0x202F), *range(0x2066, 0x2070), 0xFEFF),
    ],
    "_",
)

_rank: int | None = None
_said: dict[Hashable, object] = {}


def set_rank(rank: int | None) -> None:
    """Name the rank of this process in all further lines; None takes the rank part away."""
    global _rank
    _rank = rank


def enabled(level: Level) -> bool:
    """True if a line of this level would be shown now."""
    return _ORDER[level] >= _LEAST.get(os.environ.get("MSPROBE_LOG_LEVEL", "1"), 1)


def debug(text: object) -> None:
    """Say something that only those who look for a fault want to read."""
    _say("debug", text)


def info(text: object) -> None:
    """Say what happens."""
    _say("info", text)


def warning(text: object) -> None:
    """Say what the user should look at; the work goes on."""
    _say("warning", text)


def error(text: object) -> None:
    """Say what failed; the user's program goes on."""
    _say("error", text)


def once(key: Hashable, level: Level, text: object) -> None:
    """Say ``text`` the first time this ``key`` comes by, and be silent about it from then on. A function without
    arguments is called for the text, then only: for places that a program comes by often.
    """
    if not enabled(level):
        return
    # setdefault is atomic: no lock that a fork could leave locked in the child.
    mark = object()
    if _said.setdefault(key, mark) is mark:
        _say(level, text)


def is_first(key: Hashable) -> bool:
    """True the first time this ``key`` comes by: for those who say it elsewhere than in the log."""
    mark = object()
    return _said.setdefault(key, mark) is mark


def forget_once() -> None:
    """Let every ``once`` key speak again (a new recording session begins)."""
    _said.clear()


def _text(text: object) -> str:
    """The text in the language that is asked for."""
    if callable(text):
        text = text()
    return translated(text) if isinstance(text, str) else str(text)


def _say(level: Level, text: object) -> None:
    try:
        if not enabled(level):
            return
        rank = "" if _rank is None else f"[rank {_rank}] "
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"{stamp} ({os.getpid()}) {rank}[{level.upper()}] {_text(text).translate(_CLEAN)}\n"
        stream = sys.stderr if os.environ.get("MSPROBE_LOG_STREAM") == "stderr" else sys.stdout
        if stream is not None:
            _write(stream, line)
    except Exception:
        # A closed pipe, a full disk behind stdout, a text whose str() fails: never the training's problem.
        return


def _write(stream: TextIO, line: str) -> None:
    if stream is sys.__stdout__ or stream is sys.__stderr__:
        # Past the buffer of the stream: a line that cannot be written must not wait there and make the
        # interpreter fail when it flushes at exit. One write call also keeps the lines of several ranks
        # apart.
        stream.flush()
        data = line.encode(stream.encoding or "utf-8", "backslashreplace")
        descriptor = stream.fileno()
        while data:
            data = data[os.write(descriptor, data) :]
        return
    try:
        stream.write(line)
    except UnicodeEncodeError:
        stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))
    stream.flush()

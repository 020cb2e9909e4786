"""The one way to the terminal: text that may come from a file is shown, and never acts.

Escape sequences, other control characters and marks that turn the direction of writing become ``_``. Line breaks and
tabs of a text stay where several lines are meant.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from types import TracebackType
from typing import TextIO

from msprobe.errors import PathError, reason_of
from msprobe.messages import said

#: Controls but tab and line break; separators of lines and paragraphs; marks of direction; letters that are not seen.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class OutputError(PathError):
    """What was printed cannot be written, as on a full disk: send it elsewhere."""


def harmless(text: str) -> str:
    """The text, of as many lines as it has, without what drives a terminal."""
    return _ACTS.sub("_", text) if _ACTS.search(text) else text


def say(*values: object, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print as ``print`` does, and nothing of it acts. What the stream's encoding lacks is written as an escape.

    Raises OutputError where stdout takes nothing, BrokenPipeError where nobody reads it. Where stderr takes
    nothing, the words are lost.
    """
    stream = sys.stdout if file is None else file
    if stream is None:  # a process without it
        return
    text = f"{harmless(' '.join(map(str, values)))}{end}"
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        if flush:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        _end_stream(stream, problem)


def flush_output() -> None:
    """Write what stdout still holds. Raises OutputError where it takes nothing, BrokenPipeError where nobody reads."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        _end_stream(sys.stdout, problem)


def discard(stream: TextIO) -> None:
    """Let what this stream still holds, and all that follows, go nowhere: Python would complain of it at its end."""
    with contextlib.suppress(OSError, ValueError):  # one without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_missing_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr some that go nowhere: else the next file that it
    opens has their number, and whoever prints past Python writes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                descriptor = os.open(os.devnull, os.O_RDWR)
                if descriptor != number:
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _end_stream(stream: TextIO, problem: OSError) -> None:
    discard(stream)
    if stream is not sys.stderr:  # what is wrong with that, nobody could read
        raise OutputError(said("output-not-printed", reason_of(problem))) from problem


def clean_errors() -> None:
    """Let nothing act of what Python itself says in this process: the traceback at its end, and warnings."""
    plain = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return harmless(plain(message, category, filename, lineno, line))

    warnings.formatwarning = formatted
    sys.excepthook = show_traceback


def show_traceback(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """A hook for ``sys.excepthook``: the traceback as Python shows it, and nothing of it acts."""
    say("".join(traceback.format_exception(kind, problem, trace)), end="", file=sys.stderr)

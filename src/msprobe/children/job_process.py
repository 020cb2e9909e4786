"""A process that does jobs: it reads them from its input, one after the other, and answers each on its output.

Both are pickles behind their length (8 bytes), written by msprobe itself. A job is ``(function, value)``, an answer
``(True, result)`` or ``(False, error)``. The process ends with its input, or when nothing was asked for five minutes.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import traceback
from typing import IO, Any

LENGTH = struct.Struct("<Q")
_IDLE_SECONDS = 300.0


def main() -> int:
    """Answer until the input ends."""
    # Ctrl-C reaches all processes of a terminal, and it is the parent who ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What jobs print or read has nothing to do with either.
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    while True:
        if not select.select([asked], [], [], _IDLE_SECONDS)[0]:
            return 0
        text = read_frame(asked)
        if text is None:
            return 0
        try:
            write_frame(answers, _answer(text))
        except BrokenPipeError:  # nobody listens any more
            return 0


def read_frame(file: IO[bytes]) -> bytes | None:
    """The bytes of one frame; None where the other side has closed."""
    head = file.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    text = file.read(length)
    return text if len(text) == length else None


def write_frame(file: IO[bytes], text: bytes) -> None:
    """Write one frame. Raises BrokenPipeError where nobody reads."""
    file.write(LENGTH.pack(len(text)))
    file.write(text)
    file.flush()


def _answer(text: bytes) -> bytes:
    try:
        function, value = pickle.loads(text)
        return pickle.dumps((True, function(value)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return _as_pickle(error)


def _as_pickle(error: Exception) -> bytes:
    trace = traceback.format_exc()
    error.__cause__ = None
    try:
        pickled = pickle.dumps((False, error, trace))
        pickle.loads(pickled)
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), trace))
    return pickled


def result_of(text: bytes) -> Any:
    """What a job came to. Raises the error of a job, whose cause has the traceback of its process."""
    is_done, value, *further = pickle.loads(text)
    if is_done:
        return value
    value.__cause__ = RuntimeError(f"job process:\n{further[0]}")
    raise value

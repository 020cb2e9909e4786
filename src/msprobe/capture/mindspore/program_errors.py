"""Errors of the program that show while the recorder reads.

MindSpore reports late that an operator failed: whoever reads a value next gets the error. Where that is the recorder,
recording has not failed, and the log does not say so. What a call was given wrongly (shapes, types) is reported again
by each tensor that came of it, so the program meets it all the same. What a kernel finds out is reported once: the
program is given that error when recording stops.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

import mindspore

from msprobe.guard import hand_to_program

_MINDSPORE = os.path.dirname(os.path.abspath(mindspore.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# The functions of this package that only read what the program has made.
_READING = frozenset(("_read", "_asked", "host_array", "dtype_name", "describe", "_order", "wait_for_all"))


class _Missed:
    """Errors that were reported to the recorder and will not be reported again."""

    first: BaseException | None = None


def is_of_program(error: BaseException) -> bool:
    """True if MindSpore raised it when a value of the program was read."""
    own: str | None = None
    last = ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        last = code.co_filename
        if last.startswith(_OURS):
            own = code.co_name
        trace = trace.tb_next
    return own in _READING and last.startswith(_MINDSPORE)


def note_missed(error: BaseException) -> None:
    """The program will not be notified of this error again."""
    if _Missed.first is None:
        _Missed.first = error


def raise_missed() -> None:
    """Notify the program of an error that it has not met, unless it is busy with another."""
    error, _Missed.first = _Missed.first, None
    if error is not None and sys.exc_info()[0] is None:
        hand_to_program(error)
        raise error


def forget_missed() -> None:
    """Nothing was missed."""
    _Missed.first = None

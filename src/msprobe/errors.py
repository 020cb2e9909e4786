"""The errors a user meets: one class for each thing the user has to do differently.

A message says what is wrong, where (file and field), what was found and what to do. The text of every error
begins with ``[msprobe]``, so that it can be distinguished from the training's own output.
"""

from __future__ import annotations

from typing import ClassVar

from msprobe.messages.wording import Wording, text_of

PREFIX = "[msprobe] "


class MsprobeError(Exception):
    """Base of all errors that msprobe raises on purpose.

    ``message`` is the bare sentence, ``str(error)`` is the sentence behind ``[msprobe]``, ``code`` is a
    number that is fixed for each class.
    """

    code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{PREFIX}{self.message}"


class InvalidInputError(MsprobeError):
    """A value is not allowed (argument, configuration field, call order): correct the value."""

    code: ClassVar[int] = 2


class PathError(MsprobeError):
    """A file or folder cannot be used: choose another path, or repair its permissions."""

    code: ClassVar[int] = 3


class ScopeError(InvalidInputError):
    """``scope`` does not describe an interval of records: correct its length or its names."""

    code: ClassVar[int] = 4


class NotAvailableError(MsprobeError):
    """The request is sound, but not possible in this version or on this device: use another one."""

    code: ClassVar[int] = 5


def reason_of(problem: OSError) -> str:
    """Why the system refuses, as the end of a sentence: ``no such file or directory``."""
    reason = problem.strerror or str(problem)
    return reason if isinstance(reason, Wording) else reason.lower()


def in_one_line(problem: BaseException, most: int = 300) -> str:
    """An error of a library in at most so many letters of one line, without a full stop."""
    said = text_of(problem)
    if isinstance(said, Wording):
        return said
    text = " ".join(said.split())[:most].rstrip(".")
    return "".join(letter if letter.isprintable() else "_" for letter in text) or type(problem).__name__

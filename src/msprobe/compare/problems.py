"""What can be wrong with the input of a comparison: one class for each thing the user has to do differently.

The codes are those that callers of mindstudio-probe 8.1.1 know from ``CompareException.code``.
"""

from __future__ import annotations

from typing import ClassVar

from msprobe.errors import InvalidInputError


class ComparisonError(InvalidInputError):
    """Two dumps cannot be compared; the subclasses say why."""

    code: ClassVar[int] = 0


class InvalidPathError(ComparisonError):
    """A path is missing, has the wrong name, or does not fit its partner: give another one."""

    code: ClassVar[int] = 1


class DamagedDataError(ComparisonError):
    """``data`` of a dump is not what it must be: the file was changed or is of something else."""

    code: ClassVar[int] = 10


class InvalidArgumentError(ComparisonError):
    """An argument or field has a value that is not allowed: correct it."""

    code: ClassVar[int] = 11


class FileAndFolderError(ComparisonError):
    """One side is a file and the other a folder: give two files or two folders."""

    code: ClassVar[int] = 17


class TaskMismatchError(ComparisonError):
    """The two dumps were not made for the same task, or not for one that can be compared."""

    code: ClassVar[int] = 20


class WrongTypeError(ComparisonError, TypeError):
    """A value has the wrong type: give the right one."""

    code: ClassVar[int] = 22


class TooDeepError(ComparisonError):
    """Values in a dump are nested too deeply."""

    code: ClassVar[int] = 24


class StackMissingError(ComparisonError):
    """A file that was asked for is not there."""

    code: ClassVar[int] = 3

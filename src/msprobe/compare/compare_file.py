"""compare.json -> a typed request; all mistakes at once, each with its line and field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from msprobe.compare.problems import InvalidArgumentError, InvalidPathError
from msprobe.config.declared import Declared, demand, is_list, is_object, is_whole, read_declared
from msprobe.config.jsonc import Document, parse
from msprobe.config.mistakes import ConfigSource, raise_mistakes
from msprobe.errors import PathError, reason_of
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import read_bounded
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file

_MOST_BYTES = 1 << 26
GIVE = "give the path of a dump.json or of a step folder"

FolderPath = Annotated[
    str,
    demand(
        (lambda value: value not in (None, ""), lambda _: said("is-empty-give-dump")),
        (lambda value: isinstance(value, str), "a path"),
        kind="path",
    ),
]
OtherPath = Annotated[
    str | None,
    AfterValidator(lambda path: path or None),
    demand((lambda value: value is None or isinstance(value, str), "a path"), kind="path"),
]
_Switch = Annotated[bool, demand((lambda value: isinstance(value, bool), "true or false"))]
_Number = Annotated[int, demand((lambda value: is_whole(value) and value >= 0, "a whole number from 0 on"))]
_Numbers = Annotated[tuple[_Number, ...] | None, demand((is_list, "a list of whole numbers from 0 on"))]
_Name = Annotated[str, demand((lambda value: isinstance(value, str), "a text"))]
_Names = Annotated[dict[str, _Name] | None, demand((is_object, "an object of texts"))]


class CompareFile(Declared):
    """The fields of a compare.json. ``rank_id`` is None where the field is absent, which chooses another tool."""

    npu_path: FolderPath = Field(description=GIVE)
    bench_path: FolderPath = Field(description=GIVE)
    stack_path: OtherPath = None
    is_print_compare_log: _Switch = True
    rank_id: _Numbers = None
    step_id: _Numbers = None
    common: _Switch = False
    map_dict: _Names = None


_FILE = Annotated[CompareFile, demand((is_object, "an object with npu_path and bench_path"))]


def load_compare_file(path: StrPath) -> CompareFile:
    """Read compare.json; ``//``, ``#`` and ``/* */`` comments are allowed.

    Raises PathError if it cannot be read, JsonSyntaxError if it is not JSON, otherwise one error with all mistakes:
    InvalidPathError if paths are among them, or InvalidArgumentError.
    """
    return read_compare_file(parsed(path), os.fspath(path))


def parsed(path: StrPath) -> Document:
    """The text of a compare.json. Raises PathError and JsonSyntaxError."""
    file = check_readable_file(path, ".json", _MOST_BYTES, follow_symlink=True)
    try:
        data = read_bounded(file, Budget(file, SETTINGS))
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem
    return parse(data, os.fspath(Path(path)))


def read_compare_file(document: Document, name: str) -> CompareFile:
    """The fields of a parsed compare.json. Raises as :func:`load_compare_file`."""
    read = read_declared(_FILE, ConfigSource(name, document, {}, columns=True), "the file", unknown="ignored")
    if read.mistakes:
        wrong_path = any(mistake.kind == "path" for mistake in read.mistakes)
        raise_mistakes(read.mistakes, name, InvalidPathError if wrong_path else InvalidArgumentError)
    compare_file: CompareFile = read.value
    return compare_file

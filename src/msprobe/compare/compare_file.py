"""compare.json -> a typed request; all mistakes at once, each with its line and field."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.compare.problems import ComparisonError, InvalidArgumentError, InvalidPathError
from msprobe.config.jsonc import Document, FieldPath, parse
from msprobe.errors import PathError
from msprobe.paths import StrPath, check_readable_file

_KNOWN = ("npu_path", "bench_path", "stack_path", "is_print_compare_log", "rank_id", "step_id", "common", "map_dict")
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class CompareFile:
    """The fields of a compare.json. ``rank_id`` is None where the field is absent, which chooses another tool."""

    npu_path: str
    bench_path: str
    stack_path: str | None = None
    is_print_compare_log: bool = True
    rank_id: tuple[int, ...] | None = None
    step_id: tuple[int, ...] | None = None
    common: bool = False
    map_dict: dict[str, str] | None = None


def load_compare_file(path: StrPath) -> CompareFile:
    """Read compare.json; ``//``, ``#`` and ``/* */`` comments are allowed.

    Raises PathError if it cannot be read, JsonSyntaxError if it is not JSON, InvalidPathError or
    InvalidArgumentError, after the first mistake, with all of them.
    """
    file = check_readable_file(path, ".json", _MOST_BYTES, follow_symlink=True)
    try:
        data = file.read_bytes()
    except OSError as problem:
        raise PathError(f'file "{path}" cannot be read: {(problem.strerror or str(problem)).lower()}.') from problem
    return read_compare_file(parse(data, os.fspath(Path(path))), os.fspath(path))


def read_compare_file(document: Document, name: str) -> CompareFile:
    """The fields of a parsed compare.json. Raises as :func:`load_compare_file`."""
    content = document.value
    if not isinstance(content, dict):
        raise InvalidArgumentError(
            f"{name}: the file must hold an object with npu_path and bench_path, found {_kind(content)}."
        )
    reader = _Reader(document, name, content)
    found = CompareFile(
        npu_path=reader.path("npu_path", required=True) or "",
        bench_path=reader.path("bench_path", required=True) or "",
        stack_path=reader.path("stack_path", required=False),
        is_print_compare_log=reader.flag("is_print_compare_log", True),
        rank_id=reader.numbers("rank_id"),
        step_id=reader.numbers("step_id"),
        common=reader.flag("common", False),
        map_dict=reader.names("map_dict"),
    )
    if reader.mistakes:
        raise reader.errors[0]("\n".join(reader.mistakes))
    for field in content:
        if field not in _KNOWN:
            log.warning(f'{name}: field "{field}" is not known and does nothing; known are {", ".join(_KNOWN)}.')
    return found


class _Reader:
    def __init__(self, document: Document, name: str, content: dict[str, Any]) -> None:
        self._document = document
        self._name = name
        self._content = content
        self.mistakes: list[str] = []
        self.errors: list[type[ComparisonError]] = []

    def path(self, field: str, required: bool) -> str | None:
        value = self._content.get(field)
        if value is None and field not in self._content and not required:
            return None
        if value is None or value == "":
            if required:
                missing = "is missing" if field not in self._content else "is empty"
                self._mistake(field, f"{missing}; give the path of a dump.json or of a step folder", InvalidPathError)
            return None
        if not isinstance(value, str):
            self._mistake(field, f"must be a path, found {_kind(value)}", InvalidPathError)
            return None
        return value

    def flag(self, field: str, default: bool) -> bool:
        value = self._content.get(field, default)
        if not isinstance(value, bool):
            self._mistake(field, f"must be true or false, found {_kind(value)}", InvalidArgumentError)
            return default
        return value

    def numbers(self, field: str) -> tuple[int, ...] | None:
        if field not in self._content:
            return None
        value = self._content[field]
        if not isinstance(value, list) or any(type(item) is not int or item < 0 for item in value):
            self._mistake(
                field, f"must be a list of whole numbers from 0 on, found {_kind(value)}", InvalidArgumentError
            )
            return ()
        return tuple(value)

    def names(self, field: str) -> dict[str, str] | None:
        if field not in self._content:
            return None
        value = self._content[field]
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self._mistake(field, f"must be an object of texts, found {_kind(value)}", InvalidArgumentError)
            return {}
        return dict(value)

    def _mistake(self, field: str, what: str, error: type[ComparisonError]) -> None:
        path: FieldPath = (field,)
        place = self._document.position(path) if field in self._content else None
        where = f"{self._name}:{place.line}:{place.column}" if place else self._name
        self.mistakes.append(f'{where}: field "{field}" {what}.')
        self.errors.append(error)


def _kind(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value) if not isinstance(value, str) else f'the text "{value[:40]}"'

"""JSON with comments, as people write configuration files, and where each field stands in the text.

Beyond JSON as ``json.loads`` takes it: ``//``, ``#`` and ``/* */`` comments, a comma before a closing bracket, a
byte order mark. Errors carry line and column, both counted from 1 in characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from msprobe.errors import InvalidInputError
from msprobe.messages import said

# The way to a value: keys of objects and indices of lists, from the outside in. () is the whole document.
FieldPath = tuple[str | int, ...]

MAX_DEPTH = 100

_BLANK = re.compile(r"(?:[ \t\n\r]+|(?://|#)[^\n\r]*|/\*.*?\*/)*", re.DOTALL)
# Up to the closing quote, or up to what cannot be in a text.
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*(?P<closed>"?)')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[-+]?[\w.$]+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_CONSTANTS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_OTHER_LANGUAGES = {"True": "true", "False": "false", "None": "null", "nan": "NaN", "inf": "Infinity"}


@dataclass(frozen=True, order=True)
class Position:
    """A place in a text: line and column, both from 1, columns in characters."""

    line: int
    column: int


@dataclass(frozen=True)
class DuplicateKey:
    """A key that one object has twice: the value at ``last`` counts, the one at ``first`` is dropped."""

    path: FieldPath
    first: Position
    last: Position


@dataclass(frozen=True)
class Document:
    """A parsed text.

    ``positions`` says where a field begins: for a member of an object the place of its key, for an element
    of a list the place of its value, for the document itself (``()``) the place of its value.
    """

    value: Any
    positions: dict[FieldPath, Position]
    duplicates: tuple[DuplicateKey, ...]

    def position(self, path: FieldPath) -> Position | None:
        """Where the field stands, or the nearest field around it; None if only the document is around."""
        for length in range(len(path), 0, -1):
            known = self.positions.get(path[:length])
            if known is not None:
                return known
        return None


class JsonSyntaxError(InvalidInputError, RuntimeError):
    """The text is not JSON. ``line`` and ``column`` count from 1. Older scripts catch it as RuntimeError."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def parse(data: str | bytes, name: str = "JSON") -> Document:
    """Parse a text, or the bytes of a file in UTF-8, UTF-16 or UTF-32.

    ``name`` stands before the line in messages. Raises JsonSyntaxError.
    """
    text = _decode(data, name) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    return _Parser(text, name).document()


def forget_fields(places: dict[FieldPath, Any], path: FieldPath, value: Any) -> None:
    """Take the place of a field, and of all fields in its value, out of ``places``. It costs what the value has."""
    places.pop(path, None)
    if isinstance(value, dict):
        for key, inner in value.items():
            forget_fields(places, (*path, key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            forget_fields(places, (*path, number), inner)


def _decode(data: bytes, name: str) -> str:
    encoding = json.detect_encoding(data)
    try:
        # A byte order mark goes; surrogates stay forbidden, as in any text file.
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        before = data[: problem.start].decode(encoding, "replace")
        position = _position(before, len(before))
        raise JsonSyntaxError(
            said("json-text-not-utf8", name, position.line, position.column, encoding.upper(), data[problem.start]),
            position.line,
            position.column,
        ) from problem


def _position(text: str, offset: int) -> Position:
    line, start = 1, 0
    for end in _LINE_END.finditer(text, 0, offset):
        line, start = line + 1, end.end()
    return Position(line, offset - start + 1)


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.at = 0
        self.offsets: dict[FieldPath, int] = {}
        self.duplicates: list[tuple[FieldPath, int, int]] = []

    def document(self) -> Document:
        self.skip_blank()
        start = self.at
        value = self.value((), 0)
        self.skip_blank()
        if self.at < len(self.text):
            self.fail("the end of the file")
        self.offsets[()] = start
        positions = self.positions()
        duplicates = (DuplicateKey(path, positions[first], positions[two]) for path, first, two in self.duplicates)
        fields = {path: positions[offset] for path, offset in self.offsets.items()}
        return Document(value, fields, tuple(duplicates))

    def positions(self) -> dict[int, Position]:
        """The line and column of every offset that is needed, in one walk over the text."""
        needed = {*self.offsets.values()}
        needed.update(offset for _, first, last in self.duplicates for offset in (first, last))
        ends: Iterator[re.Match[str]] = _LINE_END.finditer(self.text)
        end = next(ends, None)
        line, start = 1, 0
        positions: dict[int, Position] = {}
        for offset in sorted(needed):
            while end is not None and end.end() <= offset:
                line, start = line + 1, end.end()
                end = next(ends, None)
            positions[offset] = Position(line, offset - start + 1)
        return positions

    def value(self, path: FieldPath, depth: int) -> Any:
        first = self.text[self.at : self.at + 1]
        if depth > MAX_DEPTH:
            self.fail(said("json-depth", MAX_DEPTH))
        if first == "{":
            return self.object(path, depth)
        if first == "[":
            return self.list(path, depth)
        if first == '"':
            return self.string()
        return self.scalar()

    def object(self, path: FieldPath, depth: int) -> dict[str, Any]:
        opening = self.at
        self.at += 1
        result: dict[str, Any] = {}
        while not self.closed("}", opening):
            key_at = self.at
            if self.text[key_at] != '"':
                self.fail(said("json-field-name"))
            key = self.string()
            inner = (*path, key)
            self.skip_blank()
            if self.text[self.at : self.at + 1] != ":":
                self.fail(said("json-colon", key))
            self.at += 1
            self.skip_blank()
            if key in result:
                self.duplicates.append((inner, self.offsets[inner], key_at))
                forget_fields(self.offsets, inner, result[key])
            result[key] = self.value(inner, depth + 1)
            self.offsets[inner] = key_at
            self.comma("}", opening)
        return result

    def list(self, path: FieldPath, depth: int) -> list[Any]:
        opening = self.at
        self.at += 1
        result: list[Any] = []
        while not self.closed("]", opening):
            inner = (*path, len(result))
            self.offsets[inner] = self.at
            result.append(self.value(inner, depth + 1))
            self.comma("]", opening)
        return result

    def closed(self, bracket: str, opening: int) -> bool:
        """Skip blanks; take the closing bracket if it is there. The end of the text is an error."""
        self.skip_blank()
        if self.at >= len(self.text):
            where = _position(self.text, opening)
            self.fail(said("json-closing-bracket", bracket, where.line, where.column))
        if self.text[self.at] != bracket:
            return False
        self.at += 1
        return True

    def comma(self, bracket: str, opening: int) -> None:
        """Take the comma after an item; without one, only the closing bracket may follow."""
        self.skip_blank()
        following = self.text[self.at : self.at + 1]
        if following == ",":
            self.at += 1
        elif following and following != bracket:
            where = _position(self.text, opening)
            self.fail(said("json-comma-or-bracket", bracket, where.line, where.column))

    def string(self) -> str:
        match = _STRING.match(self.text, self.at)
        assert match is not None  # callers have seen the opening quote
        if not match["closed"]:
            self.fail_in_string(match.end())
        self.at = match.end()
        decoded: str = json.loads(match[0])
        return decoded

    def fail_in_string(self, stopped: int) -> NoReturn:
        character = self.text[stopped : stopped + 1]
        if not character:
            self.fail(said("json-closing-quote"), character_found=said("json-endless-text"))
        self.at = stopped
        if character == "\\":
            self.fail(said("json-escapes"), character_found=said("json-bad-escape"))
        self.fail(said("json-closing-quote-in-line"))

    def scalar(self) -> Any:
        text, start = self.text, self.at
        word = _WORD.match(text, start)
        number = _NUMBER.match(text, start)
        if number is not None and (word is None or number.end() >= word.end()):
            self.at = number.end()
            if number["fraction"] or number["exponent"]:
                return float(number[0])
            try:
                return int(number[0])
            except ValueError:
                self.at = start
                self.fail(said("json-fewer-digits"), character_found=said("json-number-of-digits", len(number[0])))
        if word is None:
            self.fail(said("json-value"))
        if word[0] not in _CONSTANTS:
            instead = _OTHER_LANGUAGES.get(word[0])
            self.fail(instead or said("json-value-quoted"), character_found=word[0])
        self.at = word.end()
        return _CONSTANTS[word[0]]

    def skip_blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        assert match is not None  # the pattern matches the empty text too
        self.at = match.end()
        if self.text.startswith("/*", self.at):
            self.fail(said("json-comment-end"), character_found=said("json-endless-comment"))

    def fail(self, expected: str, character_found: str | None = None) -> NoReturn:
        if character_found is None:
            character = self.text[self.at : self.at + 1]
            if not character:
                character_found = "the end of the file"
            elif character in "\n\r":
                character_found = said("json-end-of-line")
            elif character.isprintable():
                character_found = "'\"'" if character == '"' else f'"{character}"'
            else:
                character_found = said("json-character", ord(character))
        where = _position(self.text, self.at)
        raise JsonSyntaxError(
            said("json-broken", self.name, where.line, where.column, character_found, expected),
            where.line,
            where.column,
        )

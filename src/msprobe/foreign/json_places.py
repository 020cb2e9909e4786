"""Where the members of a JSON object stand in its text: each value is parsed once to find its end, and let go.

For files that are large because they have many members, whatever their blanks are: memory is that of the text and of
the places, and not of the values.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from json import decoder
from typing import Any, NamedTuple

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import Budget, Limits
from msprobe.foreign.json_text import kind_of
from msprobe.messages import said

_BLANK = re.compile(r"[ \t\n\r]*")
_LOOK_BYTES = 1 << 20
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_scan_text: Callable[[str, int], tuple[str, int]] = decoder.scanstring  # type: ignore[attr-defined]


class JsonMember(NamedTuple):
    """A member of an object: its name, and where its value begins and ends in the bytes."""

    name: str
    start: int
    end: int


class JsonPlaces:
    """A JSON text whose places are asked for. ``source`` names it in messages.

    Raises InvalidInputError and BudgetError, here and from :meth:`members`, for what is no JSON or costs too much.
    """

    def __init__(self, data: Any, source: object, budget: Budget) -> None:
        budget.spend_bytes(len(data))
        # One letter for each byte, so that places are the same: all but the inside of texts is ASCII.
        self._text: str = codecs.latin_1_decode(data)[0]
        self._data = data
        self._source = source
        budget.spend_items(self._text.count(",") + self._text.count("{") + self._text.count("["))
        if not self._text.isascii():
            self._check_letters()

    def whole(self) -> Iterator[JsonMember]:
        """The members of the object that is the whole text."""
        text = self._text
        at = self._blank(0)
        if text[at : at + 1] != "{":
            try:
                value, end = _scan(text, at)
            except (StopIteration, ValueError, RecursionError) as problem:
                raise self._broken(problem) from problem
            raise InvalidInputError(said("json-is-no-object", self._source, kind_of(value)))
        end = yield from self._members(at)
        if (end := self._blank(end)) != len(text):
            raise self._broken(json.JSONDecodeError("Extra data", text, end))

    def members(self, start: int) -> Iterator[JsonMember]:
        """The members of the object that begins at a place."""
        yield from self._members(start)

    def _members(self, start: int) -> Any:
        text, at = self._text, self._blank(start + 1)
        if text[at : at + 1] == "}":
            return at + 1
        while True:
            try:
                if text[at : at + 1] != '"':
                    raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
                name, end = _scan_text(text, at + 1)
                # Letters beyond ASCII are bytes here; with an escape in it, the name is taken from the bytes as well.
                if not name.isascii() or "\\" in text[at:end]:
                    name = json.loads(bytes(self._data[at:end]).decode("utf-8", "surrogatepass"))
                at = self._blank(end)
                if text[at : at + 1] != ":":
                    raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
                at = self._blank(at + 1)
                _, end = _scan(text, at)
            except (StopIteration, ValueError, RecursionError) as problem:
                raise self._broken(problem) from problem
            yield JsonMember(name, at, end)
            at = self._blank(end)
            following = text[at : at + 1]
            if following == "}":
                return at + 1
            if following != ",":
                raise self._broken(json.JSONDecodeError("Expecting ',' delimiter", text, at))
            at = self._blank(at + 1)

    def _check_letters(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        size = len(self._data)
        for start in range(0, size, _LOOK_BYTES):
            piece = self._data[start : start + _LOOK_BYTES]
            pending = len(decode.getstate()[0])
            try:
                decode.decode(piece, start + _LOOK_BYTES >= size)
            except UnicodeDecodeError as problem:
                place = start - pending + problem.start
                raise InvalidInputError(said("json-is-no-utf8", self._source, place)) from problem

    def _blank(self, at: int) -> int:
        match = _BLANK.match(self._text, at)
        return at if match is None else match.end()

    def _broken(self, problem: BaseException) -> InvalidInputError:
        if isinstance(problem, StopIteration):
            problem = json.JSONDecodeError("Expecting value", self._text, problem.value)
        if isinstance(problem, json.JSONDecodeError):
            words = problem.msg.lower().removesuffix(" at")
            reason = said("json-at-line", words, problem.lineno, problem.colno)
        elif isinstance(problem, RecursionError):
            reason = said("nested-too-deeply")
        elif isinstance(problem, UnicodeDecodeError):
            reason = said("json-name-no-utf8")
        else:  # the one error that is left of those that the scanner knows
            reason = said("json-digits", Limits.digits)
        return InvalidInputError(said("json-unreadable", self._source, reason))

"""Mistakes of a configuration: collected one by one, reported all at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from msprobe import log
from msprobe.config.jsonc import Document, FieldPath
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError, PathError, ScopeError
from msprobe.foreign.nearest import near_words
from msprobe.messages import Wording, joined, said

MistakeKind = Literal["value", "range", "scope", "path", "unavailable"]

_ERRORS: dict[MistakeKind, type[MsprobeError]] = {
    "value": InvalidInputError,
    "range": InvalidInputError,
    "scope": ScopeError,
    "path": PathError,
    "unavailable": NotAvailableError,
}
_LONGEST_VALUE = 80
#: Mistakes, and fields that stand twice, that are reported one by one.
MOST_SHOWN = 100


@dataclass(frozen=True)
class Mistake:
    """One thing to correct: where it is, what was found there, what is allowed."""

    where: str
    text: str
    kind: MistakeKind = "value"
    order: tuple[int, int] = field(default=(0, 0), compare=False)
    is_argument: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return Wording("{}: {}", self.where, self.text)


@dataclass(frozen=True)
class ConfigSource:
    """Where values come from: a file, and the arguments that stand in for some of its fields."""

    name: str
    document: Document
    # The place in the file that an argument takes -> the name of the argument.
    arguments: Mapping[FieldPath, str]
    # Places are reported with their column, too.
    columns: bool = False

    def where(self, path: FieldPath) -> str:
        """The beginning of a message about this field: ``config.json:12: field "statistics.list[0]"``."""
        for length in range(1, len(path) + 1):
            argument = self.arguments.get(path[:length])
            if argument is not None:
                return said("argument-named", dotted((argument, *path[length:])))
        return said("field-named", f"{self.name}{self.line(path)}", dotted(path))

    def line(self, path: FieldPath) -> str:
        """``:12`` or ``:12:3`` for a field in that line; nothing for one that the file does not have."""
        position = self.document.position(path)
        if position is None:
            return ""
        return f":{position.line}:{position.column}" if self.columns else f":{position.line}"

    def mistake(self, path: FieldPath, text: str, kind: MistakeKind = "value") -> Mistake:
        """A mistake in this field."""
        is_argument = any(path[:length] in self.arguments for length in range(1, len(path) + 1))
        position = None if is_argument else self.document.position(path)
        order = (0, 0) if position is None else (position.line, position.column)
        return Mistake(self.where(path), text, kind, order, is_argument)


def raise_mistakes(mistakes: Iterable[Mistake], name: str, error: type[MsprobeError] | None = None) -> NoReturn:
    """Raise one error with one line for each mistake, in the order of the file ``name``, arguments first.

    Without ``error``: ScopeError, PathError or NotAvailableError if all mistakes are of that kind, otherwise
    InvalidInputError.
    """
    lines = sorted(dict.fromkeys(mistakes), key=lambda mistake: mistake.order)
    kinds = {mistake.kind for mistake in lines}
    error = error or (_ERRORS[kinds.pop()] if len(kinds) == 1 else InvalidInputError)
    if len(lines) == 1:
        raise error(said("config-mistake", ended(str(lines[0]))))
    shown_lines: list[str] = [Wording("\n  {}", str(line)) for line in lines[:MOST_SHOWN]]
    if len(lines) > MOST_SHOWN:
        shown_lines.append(Wording("\n  {}", said("and-more-mistakes", len(lines) - MOST_SHOWN)))
    text = joined("", shown_lines)
    in_arguments = sum(line.is_argument for line in lines)
    if in_arguments == len(lines):
        raise error(said("arguments-have-mistakes", len(lines), text))
    place = said("file-and-arguments", name) if in_arguments else name
    raise error(said("config-has-mistakes", place, len(lines), text))


def raise_in_one_line(mistakes: Iterable[Mistake], error: type[MsprobeError]) -> NoReturn:
    """Raise one error with all mistakes in one line, in the order of the file."""
    lines = sorted(dict.fromkeys(mistakes), key=lambda mistake: mistake.order)
    more = [said("and-more-mistakes", len(lines) - MOST_SHOWN)] if len(lines) > MOST_SHOWN else []
    raise error(said("config-mistake", ended(joined("; ", [*map(str, lines[:MOST_SHOWN]), *more]))))


def ended(sentence: str) -> str:
    """The sentence with its full stop."""
    return sentence if sentence.endswith(("?", ".")) else Wording("{}.", sentence)


def warn_of_duplicates(source: ConfigSource) -> None:
    """One warning for each name that an object has twice."""
    duplicates = source.document.duplicates
    for twice in duplicates[:MOST_SHOWN]:
        first, last = twice.first.line, twice.last.line
        log.warning(said("field-also-in-line", source.name, last, dotted(twice.path), first))
    if len(duplicates) > MOST_SHOWN:
        log.warning(said("more-fields-also", source.name, len(duplicates) - MOST_SHOWN))


def shown(value: Any) -> str:
    """A value as the file writes it, on one line, not endless."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, TypeError, RecursionError):
        text = repr(value)
    if not text.isprintable():
        text = ascii(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be; None if none is close."""
    if not isinstance(word, str):
        return None
    by_lower = {name.lower(): name for name in known}
    near = near_words(word.strip().lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The end of a message: the nearest known word, or nothing."""
    name = nearest(word, known)
    return "" if name is None or name == word else said("did-you-mean", name)


def dotted(path: FieldPath) -> str:
    """The path as messages write it: ``statistics.list[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text if text.isprintable() else ascii(text)[1:-1]

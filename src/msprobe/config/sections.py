"""One object of the file against its model: the values that are legal, and the mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from msprobe.config.fields import Fields, allowed, known_names
from msprobe.config.jsonc import FieldPath
from msprobe.config.mistakes import MOST_SHOWN, ConfigSource, Mistake, did_you_mean, nearest, shown
from msprobe.messages import said, text_of

FieldsT = TypeVar("FieldsT", bound=Fields)

_QUOTED = re.compile(r'"([^"]+)"')
# Where the empty text means the default, as absence does.
_EMPTY_IS_DEFAULT = ("task", "level", "file_format")
# Names that very old files still have.
_FORGOTTEN = ("seed", "is_deterministic")


@dataclass(frozen=True)
class Section(Generic[FieldsT]):
    """The fields of one object; those in ``broken`` were not legal and have their default."""

    fields: FieldsT
    broken: frozenset[str]
    mistakes: tuple[Mistake, ...]


def read_section(model: type[FieldsT], raw: object, path: FieldPath, source: ConfigSource) -> Section[FieldsT]:
    """Check one object. ``null`` in place of the object, or of a field, is the same as absence."""
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        mistake = source.mistake(path, said("found-allowed", shown(raw), "an object {...}", ""))
        return Section(model(), frozenset(known_names(model)), (mistake,))
    given = {
        name: value
        for name, value in raw.items()
        if value is not None and not (value == "" and name in _EMPTY_IS_DEFAULT)
    }
    try:
        return Section(model.model_validate(given), frozenset(), ())
    except ValidationError as problem:
        details = problem.errors(include_url=False)
    broken = frozenset(str(detail["loc"][0]) for detail in details)
    mistakes = tuple(_mistake(model, detail, given, path, source) for detail in details)
    legal = {name: value for name, value in given.items() if name not in broken}
    return Section(model.model_validate(legal), broken, mistakes)


def unknown_field_warnings(
    raw: object,
    path: FieldPath,
    known: Iterable[str],
    elsewhere: Mapping[str, Iterable[str]],
    source: ConfigSource,
) -> list[str]:
    """One line for each name that nothing reads.

    ``elsewhere``: the names of other places of the file ("at the top level", 'in section "tensor"'), for
    those who put a field into the wrong one.
    """
    if not isinstance(raw, Mapping):
        return []
    names = tuple(known)
    lines: list[str] = []
    more = 0
    for name in raw:
        # Names that begin with "_" or "$" are remarks and schema references, by custom.
        if name in names or name.startswith(("_", "$")) or (not path and name in _FORGOTTEN):
            continue
        if len(lines) >= MOST_SHOWN:
            more += 1
            continue
        place = next((place for place, inner in elsewhere.items() if name in inner), None)
        hint = did_you_mean(name, names)
        if place is not None:
            hint = said("belongs-to-place", place)
        elif not hint:
            place, word = next(
                ((place, word) for place, inner in elsewhere.items() if (word := nearest(name, inner))),
                ("", ""),
            )
            hint = said("mean-name-at-place", word, place) if word else ""
        lines.append(said("unknown-field", source.where((*path, name)), hint))
    return [*lines, said("more-unknown-fields", source.name, more)] if more else lines


def _mistake(
    model: type[Fields], detail: ErrorDetails, raw: Mapping[str, Any], path: FieldPath, source: ConfigSource
) -> Mistake:
    inner, value = _follow(detail["loc"], raw)
    name = str(inner[0])
    reason = text_of(detail["ctx"]["error"]) if detail["type"] == "value_error" else ""
    permitted = allowed(model, name)
    hint = did_you_mean(value, _QUOTED.findall(permitted)) if detail["type"] == "literal_error" else ""
    if reason:
        text = said("found-because", shown(value), reason, permitted, hint)
    else:
        text = said("found-allowed", shown(value), permitted, hint)
    return source.mistake((*path, *inner), text)


def _follow(loc: tuple[int | str, ...], raw: Any) -> tuple[FieldPath, Any]:
    """The part of pydantic's location that is in the file: names of types and missing fields may follow."""
    path: list[int | str] = []
    value = raw
    for step in loc:
        in_object = isinstance(value, Mapping) and step in value
        in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if not (in_object or in_list):
            break
        value = value[step]
        path.append(step)
    return tuple(path), value

"""Settings files as declarations: types say what is allowed, and each type brings the words for what is not.

    class Mesh(Declared):
        axis: Name
        sizes: Annotated[list[Size], demand((is_list, "a list of sizes"))]

    read = read_declared(Mesh, source, "the file")

:func:`read_declared` says all mistakes of a file, each with its line and field, as those of ``config.json`` are
reported. Needs pydantic, so whoever reads a file imports this when it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from msprobe import log
from msprobe.config.jsonc import FieldPath
from msprobe.config.mistakes import ConfigSource, Mistake, MistakeKind, did_you_mean, ended, shown
from msprobe.messages import said

Test = Callable[[Any], object]
What = str | Callable[[Any], str]

_WORDED: Literal["worded"] = "worded"
_MOST_ADAPTERS = 64
# What pydantic calls a field of an object, and of a data class, that is not declared.
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class Declared(BaseModel):
    """Base of the objects in such files. The description of a field says what to give where it is missing.

    A data class of the standard library serves as well, whose ``__pydantic_config__`` is that of this class.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Read:
    """What was read: ``value`` is made of all that is legal, None if too little is; ``mistakes`` says the rest."""

    value: Any
    mistakes: tuple[Mistake, ...]


@dataclass(frozen=True)
class Demand(BeforeValidator):
    """A check in front of a type; ``kind`` is what sort of mistake a wrong value is, or one that is missing."""

    kind: MistakeKind = "value"


def demand(*rules: tuple[Test, What], kind: MistakeKind = "value") -> Demand:
    """What a value must be, before its type is looked at: the first test that fails gives the message.

    A rule says what the value must be (``a list of sizes``), or is a function that makes the message of the value. Of
    several demands in one ``Annotated`` the last is asked first.
    """

    def check(value: Any) -> Any:
        for test, what in rules:
            if not test(value):
                raise wrong(what(value) if callable(what) else said("must-be", what, as_found(value)), kind)
        return value

    return Demand(check, kind=kind)


def asks(name: str, *values: object) -> Callable[[Any], str]:
    """What a rule of :func:`demand` says: the message of this name, of these values and of the value that was found."""
    return lambda value: said(name, *values, as_found(value))


def wrong(text: str, kind: MistakeKind = "value") -> PydanticCustomError:
    """The mistake that a validator of a declaration raises; ``text`` follows the place in the message."""
    return PydanticCustomError(_WORDED, "{text}", {"text": text, "kind": kind})


def is_str(value: Any) -> bool:
    """True for a text."""
    return isinstance(value, str)


def is_text(value: Any) -> bool:
    """True for a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_list(value: Any) -> bool:
    """True for a list."""
    return isinstance(value, list)


def is_object(value: Any) -> bool:
    """True for an object."""
    return isinstance(value, Mapping)


def is_filled_object(value: Any) -> bool:
    """True for an object that has members."""
    return isinstance(value, Mapping) and bool(value)


def is_whole(value: Any) -> bool:
    """True for a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_switch(value: Any) -> bool:
    """True for true and false."""
    return isinstance(value, bool)


def is_texts(value: Any) -> bool:
    """True for a list of texts."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def whole(least: int, most: int | None = None, kind: MistakeKind = "value", *, or_none: bool = False) -> Demand:
    """A whole number within limits; null, too, with ``or_none``."""

    def test(value: Any) -> bool:
        return (or_none and value is None) or (is_whole(value) and least <= value <= (value if most is None else most))

    def message(value: Any) -> str:
        if most:
            return said("must-be-whole-from-to", least, most, as_found(value))
        return said("must-be-whole-from", least, as_found(value))

    return demand((test, message), kind=kind)


def one_of(*words: str, kind: MistakeKind = "value") -> Demand:
    """One of these texts; the nearest is named where it is none."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        near = did_you_mean(value, words)
        if len(words) > 2:
            raise wrong(said("must-be-one-of", ", ".join(words), shown(value), near), kind)
        listed = said("one-or-other", *map(shown, words)) if len(words) == 2 else shown(words[0])
        raise wrong(said("must-be-either", listed, shown(value), near), kind)

    return Demand(check, kind=kind)


Switch = Annotated[bool, demand((is_switch, "true or false"))]
Texts = Annotated[tuple[str, ...], demand((is_texts, "a list of texts"))]


def read_declared(
    form: Any,
    source: ConfigSource,
    whole: str,
    path: FieldPath = (),
    *,
    unknown: Literal["ignored", "outer ignored", "refused"] = "refused",
    context: Any = None,
) -> Read:
    """Read the value at ``path`` of a source as a type; fields that are not known are mistakes, or only warned of; with
    ``outer ignored`` those within other fields are mistakes.

    ``whole`` names the file in a message about all of it (``the data mapping``). ``context`` is given to validators.
    """
    raw = source.document.value
    for part in path:
        raw = raw[part]
    try:
        return Read(_adapter(form).validate_python(raw, context=context), ())
    except ValidationError as problem:
        details = problem.errors(include_url=False)
    mistakes: list[Mistake] = []
    broken: set[FieldPath] = set()
    for detail in details:
        inner = _place(detail["loc"], raw)
        broken.add(inner)
        text = _text(form, detail, inner)
        is_ignored = unknown == "ignored" or (unknown == "outer ignored" and len(inner) == 1)
        if detail["type"] in _UNKNOWN and is_ignored:
            log.warning(ended(said("setting-left-out", source.where((*path, *inner)), text)))
        elif not path and not inner:
            mistakes.append(Mistake(source.name, said("whole-file", whole, text)))
        else:
            mistakes.append(source.mistake((*path, *inner), text, _kind(form, detail, inner)))
    if () in broken:
        return Read(None, tuple(mistakes))
    try:
        return Read(_adapter(form).validate_python(_without(raw, broken), context=context), tuple(mistakes))
    except ValidationError:
        return Read(None, tuple(mistakes))


@lru_cache(_MOST_ADAPTERS)
def _adapter(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def _text(form: Any, detail: ErrorDetails, path: FieldPath) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == _WORDED:
        return cast(str, context["text"])
    if kind == "missing":
        hint = _fields(form, path[:-1])[str(path[-1])].description
        return said("field-missing", hint) if hint else said("is-missing")
    if kind in _UNKNOWN:
        known = tuple(_fields(form, path[:-1]))
        return said("field-not-known", did_you_mean(path[-1], known) or said("known-are", ", ".join(known)))
    if kind == "invalid_key":
        return said("name-must-be-text", shown(detail["input"]))
    return said("value-unreadable", shown(detail["input"]))


def _kind(form: Any, detail: ErrorDetails, path: FieldPath) -> MistakeKind:
    if detail["type"] == "missing":
        demands = _fields(form, path[:-1])[str(path[-1])].metadata
        return next((asked.kind for asked in demands if isinstance(asked, Demand)), "value")
    return cast(MistakeKind, detail.get("ctx", {}).get("kind", "value"))


def _fields(form: Any, path: FieldPath) -> dict[str, FieldInfo]:
    """The fields of the model or the data class that is at a place of a type."""
    for step in path:
        member = next((kind for kind in _kinds(form) if get_origin(kind) in (dict, list, tuple)), None)
        form = (
            _fields(form, ())[str(step)].annotation if member is None else get_args(member)[get_origin(member) is dict]
        )
    kind = next(kind for kind in _kinds(form) if hasattr(kind, "model_fields") or is_dataclass(kind))
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        declared = {name: FieldInfo.from_annotation(hint) for name, hint in hints.items()}
    else:
        declared = kind.model_fields
    return {info.alias or name: info for name, info in declared.items()}


def _kinds(form: Any) -> Iterator[Any]:
    """A type, and those that it is made of: ``Annotated[Model, ...]`` and ``Model | None`` are of the model, too."""
    yield form
    if get_origin(form) is Annotated:
        yield from _kinds(get_args(form)[0])
    elif get_origin(form) in (Union, UnionType):
        for argument in get_args(form):
            yield from _kinds(argument)


def _place(loc: tuple[int | str, ...], raw: Any) -> FieldPath:
    """Pydantic's location as a path in the file: it also names types, and says ``[key]`` of the name of a member."""
    path: list[int | str] = []
    value = raw
    for number, step in enumerate(loc):
        in_object = isinstance(value, Mapping) and step in value
        in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if in_object or in_list:
            value = value[step]
            path.append(step if in_list else str(step))
        elif isinstance(value, Mapping) and number == len(loc) - 1 and step != "[key]":
            path.append(str(step))
    return tuple(path)


def _without(raw: Any, broken: set[FieldPath], path: FieldPath = ()) -> Any:
    """The value without what is broken. A list with a broken element goes, so that places stay what they are."""
    if isinstance(raw, Mapping):
        kept = {key: item for key, item in raw.items() if not _is_broken(item, broken, (*path, key))}
        return {key: _without(item, broken, (*path, key)) for key, item in kept.items()}
    return raw


def _is_broken(item: Any, broken: set[FieldPath], path: FieldPath) -> bool:
    if path in broken:
        return True
    return isinstance(item, list) and any(other[: len(path)] == path for other in broken)


def as_found(value: Any) -> str:
    """A value as the file writes it; ``nothing`` for what is empty."""
    return "nothing" if value is None or value in ("", []) else shown(value)


def sort_of(value: Any) -> str:
    """What sort of value it is: ``a list``."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else said("value-of-type", type(value).__name__)

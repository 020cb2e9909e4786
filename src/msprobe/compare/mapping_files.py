"""Mapping files: which names of the candidate answer to which of the reference.

Four kinds, as mindstudio-probe 8.1.1 and 26.2 have them: data (tensor by tensor), cell (module paths), api
(functions and their arguments) and layer (children of a class). A file with mistakes is refused with all of
them at once, each with its line and field; what is only odd gives a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe import log
from msprobe.config.jsonc import Document, FieldPath
from msprobe.config.mistakes import Mistake, Source, did_you_mean, dotted, raise_mistakes, shown
from msprobe.config.yaml_source import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.paths import StrPath

NO_PARTNER = "N/A"
TOP_LAYER = "TopLayer"

# The words of an api mapping for what a call has -> the accepted spellings, the first as 8.1.1 reads it.
_API_LISTS = {
    "args": ("args", "arg"),
    "output": ("output", "outputs"),
    "parameters": ("parameters", "parameter"),
    "parameters_grad": ("parameters_grad", "parameter_grad", "parameters_grads"),
}
_API_FIELDS = {
    f"{side}_{spelling}": (side, word)
    for side in ("ms", "pt")
    for word, spellings in _API_LISTS.items()
    for spelling in spellings
}


@dataclass(frozen=True)
class DataMapping:
    """Name of a candidate's tensor -> name of the reference's; None where it is to have no partner."""

    pairs: Mapping[str, str | None]


@dataclass(frozen=True)
class CellMapping:
    """Path and class of a candidate's module -> those of the reference's. Empty: only Cell is told to be Module."""

    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ApiPair:
    """One function: its names on both sides (``Functional.tanh``, ``Torch.tanh``), and what of it answers to what.

    Each map goes from the candidate's index or parameter name to the reference's. None: nothing is said, and
    equal ones answer to each other. An index that a map does not list has no partner.
    """

    candidate: str
    reference: str
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    parameters: Mapping[str, str] | None = None
    gradients: Mapping[str, str] | None = None


@dataclass(frozen=True)
class ApiMapping:
    """Functions with names of their own in a file, in its order; the shipped table goes without saying."""

    pairs: tuple[ApiPair, ...] = ()


@dataclass(frozen=True)
class LayerMapping:
    """Class of a module -> {child of the candidate's: child of the reference's}; a child may be a dotted path."""

    classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def load_data_mapping(given: StrPath | Mapping[Any, Any]) -> DataMapping:
    """Read a data mapping: ``{candidate tensor: reference tensor}``, from a YAML file or as it is.

    Raises PathError, or InvalidInputError with all mistakes.
    """
    source = _source(given, "data mapping", "data_mapping")
    reader = _Reader(source, "data mapping")
    pairs: dict[str, str | None] = {}
    for name, value in reader.object((), "{candidate tensor: reference tensor}"):
        if value == NO_PARTNER:
            pairs[name] = None
        elif reader.name(value, (name,), "the name of a reference tensor (or N/A)"):
            pairs[name] = value
    reader.finish()
    return DataMapping(pairs)


def load_cell_mapping(given: StrPath | Mapping[Any, Any] | bool) -> CellMapping:
    """Read a cell mapping: ``{path.Class: path.Class}``. True (no file): only Cell is told to be Module."""
    if given is True:
        return CellMapping()
    source = _source(given, "cell mapping", "cell_mapping")
    reader = _Reader(source, "cell mapping")
    paths: dict[str, str] = {}
    for name, value in reader.object((), "{cell path.Class: module path.Class}"):
        if reader.name(value, (name,), "the path of a module"):
            paths[_without_kind(name)] = _without_kind(value)
    reader.finish()
    return CellMapping(paths)


def load_layer_mapping(given: StrPath | Mapping[Any, Any] | bool) -> LayerMapping:
    """Read a layer mapping: ``{Class: {layer: layer}}``. True (no file): layers answer to those of their name."""
    if given is True:
        return LayerMapping()
    source = _source(given, "layer mapping", "layer_mapping")
    reader = _Reader(source, "layer mapping")
    classes: dict[str, dict[str, str]] = {}
    for class_name, _ in reader.object((), "{Class: {candidate layer: reference layer}}"):
        # Older files call the outermost level of the candidate "Cell".
        layers = classes.setdefault(TOP_LAYER if class_name == "Cell" else class_name, {})
        for layer, value in reader.object((class_name,), "{candidate layer: reference layer}"):
            if reader.name(value, (class_name, layer), "the name of a layer"):
                layers[layer] = value.split("(", 1)[0].strip()
    reader.finish()
    return LayerMapping(classes)


def load_api_mapping(given: StrPath | Mapping[Any, Any] | list[Any] | bool) -> ApiMapping:
    """Read an api mapping: one object, or a list of them. True (no file): only the shipped table counts.

    An entry whose two lists differ in length is left out with a warning, as mindstudio-probe does.
    """
    if given is True:
        return ApiMapping()
    source = _source(given, "api mapping", "api_mapping")
    reader = _Reader(source, "api mapping")
    value = source.document.value
    if isinstance(value, list):
        entries: list[tuple[FieldPath, Any]] = [((number,), entry) for number, entry in enumerate(value)]
        if not entries:
            reader.wrong((), "is an empty list; expected entries with ms_api and pt_api")
    else:
        entries = [((), value)]
    pairs = [pair for path, _ in entries if (pair := _read_api_pair(reader, path)) is not None]
    reader.finish()
    return ApiMapping(tuple(pairs))


def _read_api_pair(reader: _Reader, path: FieldPath) -> ApiPair | None:
    names: dict[str, str] = {}
    lists: dict[str, dict[str, tuple[list[str], FieldPath]]] = {"ms": {}, "pt": {}}
    given = dict(reader.object(path, "an object with ms_api and pt_api"))
    if not given:
        return None
    for key, value in given.items():
        where = (*path, key)
        if key in ("ms_api", "pt_api"):
            if reader.name(value, where, "the name of an API, as in Functional.tanh"):
                names[key] = value
        elif key in _API_FIELDS:
            side, word = _API_FIELDS[key]
            if word in lists[side]:
                reader.wrong(where, f'says again what "{lists[side][word][1][-1]}" says')
            found = reader.indices(value, where) if word in ("args", "output") else reader.names(value, where)
            if found is not None:
                lists[side][word] = (found, where)
        else:
            reader.wrong(where, f"is not a field of an api mapping{did_you_mean(key, _api_field_names())}")
    for key in ("ms_api", "pt_api"):
        if key not in given:
            reader.wrong((*path, key), "is missing")
    maps: dict[str, dict[str, str]] = {}
    fits = True
    for word in _API_LISTS:
        mine, theirs = lists["ms"].get(word), lists["pt"].get(word)
        if mine is None and theirs is None:
            continue
        if mine is None or theirs is None:
            side, other = ("pt", "ms") if mine is None else ("ms", "pt")
            present = lists[side][word][1]
            if not any(key in given for key, meant in _API_FIELDS.items() if meant == (other, word)):
                reader.wrong(present, f"needs {other}_{_API_LISTS[word][0]} beside it")
            continue
        if len(mine[0]) != len(theirs[0]):
            reader.warn(mine[1], f"has {len(mine[0])} values and {dotted(theirs[1])} has {len(theirs[0])}")
            fits = False
            continue
        if len(set(mine[0])) != len(mine[0]):
            reader.wrong(mine[1], "names one of them twice")
        maps[word] = dict(zip(mine[0], theirs[0], strict=True))
    if not fits or len(names) != 2:
        return None
    return ApiPair(
        names["ms_api"],
        names["pt_api"],
        maps.get("args"),
        maps.get("output"),
        maps.get("parameters"),
        maps.get("parameters_grad"),
    )


def _api_field_names() -> list[str]:
    return ["ms_api", "pt_api", *_API_FIELDS]


def _without_kind(path: str) -> str:
    """A path as people copy it from a dump may begin with what it is a path of."""
    for kind in ("Cell.", "Module."):
        path = path.removeprefix(kind)
    return path


def _source(given: object, what: str, argument: str) -> Source:
    if isinstance(given, (str, os.PathLike)):
        return read_yaml(given, what)
    if isinstance(given, (Mapping, list)):
        plain = dict(given) if isinstance(given, Mapping) else given
        return Source(argument, Document(plain, {}, ()), {})
    raise InvalidInputError(
        f"argument {argument}: must be the path of a .yaml file or an object, found {shown(given)} "
        f"({type(given).__name__})."
    )


class _Reader:
    """Takes values out of a source and collects what is wrong with them."""

    def __init__(self, source: Source, what: str) -> None:
        self._source = source
        self._what = what
        self._mistakes: list[Mistake] = []
        for twice in source.document.duplicates:
            first, last = twice.first.line, twice.last.line
            log.warning(f'{source.name}:{last}: field "{dotted(twice.path)}" is also in line {first}; this one counts.')

    def object(self, path: FieldPath, expected: str) -> Iterator[tuple[str, Any]]:
        """The members of the object at ``path``; nothing, and a mistake, if there is none or it is empty."""
        value = self._source.document.value
        for part in path:
            value = value[part]
        if not isinstance(value, dict) or not value:
            kind = "is empty" if value in (None, {}) else f"is {_kind(value)}"
            self.wrong(path, f"{kind}; expected {expected}")
            return
        for key, item in value.items():
            if not isinstance(key, str) or not key.strip():
                self.wrong((*path, str(key)), f"the name before the colon must be a text, found {shown(key)}")
            else:
                yield key, item

    def name(self, value: Any, path: FieldPath, expected: str) -> bool:
        """True if the value is a name."""
        if isinstance(value, str) and value.strip():
            return True
        found = "nothing" if value in (None, "") else f"{_kind(value)} ({shown(value)})"
        self.wrong(path, f"expected {expected}, found {found}")
        return False

    def names(self, value: Any, path: FieldPath) -> list[str] | None:
        """A list of names; None, and a mistake for each, if it is not."""
        if not isinstance(value, list):
            self.wrong(path, f"expected a list of names, found {shown(value)}")
            return None
        good = [self.name(item, (*path, number), "a name") for number, item in enumerate(value)]
        return [str(item) for item in value] if all(good) else None

    def indices(self, value: Any, path: FieldPath) -> list[str] | None:
        """A list of whole numbers from 0, as texts; None, and a mistake for each, if it is not."""
        if not isinstance(value, list):
            self.wrong(path, f"expected a list of whole numbers from 0, found {shown(value)}")
            return None
        good = True
        for number, item in enumerate(value):
            is_index = (isinstance(item, int) and not isinstance(item, bool) and item >= 0) or (
                isinstance(item, str) and item.isascii() and item.isdigit()
            )
            if not is_index:
                self.wrong((*path, number), f"expected a whole number from 0, found {shown(item)}")
                good = False
        return [str(int(item)) for item in value] if good else None

    def wrong(self, path: FieldPath, text: str) -> None:
        if path:
            self._mistakes.append(self._source.mistake(path, text))
        else:
            self._mistakes.append(Mistake(self._source.name, f"the {self._what} {text}"))

    def warn(self, path: FieldPath, text: str) -> None:
        log.warning(f"{self._source.where(path)} {text}; this entry of the {self._what} is left out.")

    def finish(self) -> None:
        if self._mistakes:
            raise_mistakes(self._mistakes, self._source.name)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else f"a value of type {type(value).__name__}"

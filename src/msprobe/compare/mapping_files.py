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
from msprobe.config.mistakes import ConfigSource, Mistake, dotted, raise_mistakes, shown, warn_of_duplicates
from msprobe.config.yaml_source import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath

NO_PARTNER = "N/A"
TOP_LAYER = "TopLayer"


@dataclass(frozen=True)
class DataMapping:
    """Name of a candidate's tensor -> name of the reference's; None where it is to have no partner."""

    pairs: Mapping[str, str | None]


@dataclass(frozen=True)
class CellMapping:
    """Path and class of a candidate's module -> those of the reference's. Empty: Cell alone is taken for Module."""

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
    from msprobe.compare.mapping_fields import DATA

    return DataMapping(_read(DATA, given, "data mapping", "data_mapping"))


def load_cell_mapping(given: StrPath | Mapping[Any, Any] | bool) -> CellMapping:
    """Read a cell mapping: ``{path.Class: path.Class}``. True (no file): Cell alone is taken for Module."""
    if given is True:
        return CellMapping()
    from msprobe.compare.mapping_fields import CELLS

    return CellMapping(_read(CELLS, given, "cell mapping", "cell_mapping"))


def load_layer_mapping(given: StrPath | Mapping[Any, Any] | bool) -> LayerMapping:
    """Read a layer mapping: ``{Class: {layer: layer}}``. True (no file): layers answer to those of their name."""
    if given is True:
        return LayerMapping()
    from msprobe.compare.mapping_fields import LAYERS

    classes: dict[str, dict[str, str]] = {}
    for name, layers in _read(LAYERS, given, "layer mapping", "layer_mapping").items():
        # Older files call the outermost level of the candidate "Cell".
        classes.setdefault(TOP_LAYER if name == "Cell" else name, {}).update(layers)
    return LayerMapping(classes)


def load_api_mapping(given: StrPath | Mapping[Any, Any] | list[Any] | bool) -> ApiMapping:
    """Read an api mapping: one object, or a list of them. True (no file): only the shipped table counts.

    An entry whose two lists differ in length is left out with a warning, as mindstudio-probe does.
    """
    if given is True:
        return ApiMapping()
    source = _source(given, "api mapping", "api_mapping")
    value = source.document.value
    if value == []:
        raise InvalidInputError(said("api-mapping-empty", source.name))
    places: list[FieldPath] = [(number,) for number in range(len(value))] if isinstance(value, list) else [()]
    mistakes: list[Mistake] = []
    pairs = [pair for place in places if (pair := _read_api_pair(source, place, mistakes)) is not None]
    if mistakes:
        raise_mistakes(mistakes, source.name)
    return ApiMapping(tuple(pairs))


def _read_api_pair(source: ConfigSource, place: FieldPath, mistakes: list[Mistake]) -> ApiPair | None:
    from msprobe.compare.mapping_fields import API_ENTRY, API_LISTS
    from msprobe.config.declared import read_declared

    read = read_declared(API_ENTRY, source, "the api mapping", place)
    mistakes += read.mistakes
    given = source.document.value[place[0]] if place else source.document.value
    if not isinstance(given, Mapping) or not given:
        return None
    missing = [name for name in ("ms_api", "pt_api") if name not in given]
    mistakes += [source.mistake((*place, name), "is missing") for name in missing]
    if read.value is None:
        return None
    maps: dict[str, Mapping[str, str] | None] = {}
    for word, spellings in API_LISTS.items():
        mine, theirs = ([f"{side}_{name}" for name in spellings if f"{side}_{name}" in given] for side in ("ms", "pt"))
        mistakes += _unpaired_lists(source, place, word, mine, theirs)
        if mine and theirs:
            maps[word] = _paired(source, place, read.value, (mine[-1], theirs[-1]), mistakes)
    if read.mistakes or missing or None in maps.values():
        return None
    return ApiPair(read.value.ms_api, read.value.pt_api, *map(maps.get, API_LISTS))


def _unpaired_lists(
    source: ConfigSource, place: FieldPath, word: str, mine: list[str], theirs: list[str]
) -> Iterator[Mistake]:
    """Lists that an entry has twice, in two spellings, or on one side alone."""
    for first, *others in filter(None, (mine, theirs)):
        for other in others:
            yield source.mistake((*place, other), said("says-again", first))
    if bool(mine) != bool(theirs):
        missing = f"{'pt' if mine else 'ms'}_{word}"
        yield source.mistake((*place, (mine or theirs)[0]), said("needs-field-beside-it", missing))


def _paired(
    source: ConfigSource, place: FieldPath, entry: Any, fields: tuple[str, str], mistakes: list[Mistake]
) -> Mapping[str, str] | None:
    """What answers to what of two lists; None if they do not fit, or one of them is wrong in itself."""
    mine, theirs = (getattr(entry, field) for field in fields)
    if mine is None or theirs is None:
        return None
    here, there = ((*place, field) for field in fields)
    if len(mine) != len(theirs):
        text = said("list-lengths-differ", len(mine), dotted(there), len(theirs))
        log.warning(said("api-mapping-entry-left-out", source.where(here), text))
        return None
    if len(set(mine)) != len(mine):
        mistakes.append(source.mistake(here, said("names-one-twice")))
    return dict(zip(mine, theirs, strict=True))


def _read(form: Any, given: object, what: str, argument: str) -> Any:
    from msprobe.config.declared import read_declared

    source = _source(given, what, argument)
    read = read_declared(form, source, f"the {what}")
    if read.mistakes:
        raise_mistakes(read.mistakes, source.name)
    return read.value


def _source(given: object, what: str, argument: str) -> ConfigSource:
    if isinstance(given, (str, os.PathLike)):
        source = read_yaml(given, what)
        warn_of_duplicates(source)
        return source
    if isinstance(given, (Mapping, list)):
        plain = dict(given) if isinstance(given, Mapping) else given
        return ConfigSource(argument, Document(plain, {}, ()), {})
    raise InvalidInputError(said("mapping-argument-wrong", argument, shown(given), type(given).__name__))

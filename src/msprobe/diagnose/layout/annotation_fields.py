"""What is allowed in an annotation file; :mod:`msprobe.diagnose.layout.annotation` says what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, TypeAdapter, ValidationInfo

from msprobe.config.declared import Declared, demand, is_filled_object, is_list, is_object, is_whole, wrong
from msprobe.config.mistakes import shown
from msprobe.diagnose.layout.placements import Placement, parsed_placement
from msprobe.foreign.patterns import PatternError, compile_pattern
from msprobe.messages import joined, said

_SLOTS = ("input", "output")


@dataclass(frozen=True)
class _Mesh:
    """What the other fields of a side must fit: the names of its axes, and the number of stages, if that is known."""

    axes: tuple[str, ...]
    stages: int | None


def _mesh_of(info: ValidationInfo) -> _Mesh:
    return cast(_Mesh, info.context)


def _axis(name: Any, info: ValidationInfo) -> str:
    mesh = _mesh_of(info)
    if name not in mesh.axes:
        raise wrong(said("no-axis-of-mesh", name, ", ".join(mesh.axes) or said("none-of-them")))
    return str(name)


def _stage_axis(name: Any, info: ValidationInfo) -> str:
    mesh = _mesh_of(info)
    if name not in mesh.axes:
        raise wrong(said("must-be-axis-of-mesh", ", ".join(mesh.axes), shown(name)))
    return str(name)


def _placement(word: Any) -> Placement:
    placement = parsed_placement(str(word))
    if placement is None:
        raise wrong(said("placement-unknown", str(word)))
    return placement


def _slot(name: str) -> str:
    if not name.startswith(_SLOTS):
        raise wrong(said("slot-unknown"))
    return name


def _first_numbers(value: Any, info: ValidationInfo) -> tuple[int, ...]:
    count = _mesh_of(info).stages
    whole = is_list(value) and all(is_whole(number) and number >= 0 for number in value)
    if count is not None and not (whole and len(value) == count):
        raise wrong(said("stages-not-all-listed", count, shown(value)))
    return tuple(value) if whole else ()


def _expression(pattern: str) -> str:
    try:
        compile_pattern(pattern, "names")
    except PatternError as problem:
        raise wrong(
            said("must-be-regular-expression", problem.__cause__) if problem.__cause__ else problem.reason
        ) from problem
    return pattern


def _replacements(names: dict[str, str]) -> dict[str, str]:
    problems = []
    for pattern, new in names.items():
        try:
            compile_pattern(pattern, "names").sub(new, "")
        except (re.error, IndexError) as problem:
            problems.append(said("cannot-stand-for", shown(new), shown(pattern), problem))
    if problems:
        raise wrong(said("replacements-wrong", joined(", ", problems)))
    return names


_ANY_OBJECT = demand((lambda value: value is None or is_object(value), "an object"))
_ABSENT_IS_EMPTY = BeforeValidator(lambda value: {} if value is None else value)

_Size = Annotated[int, demand((lambda value: is_whole(value) and value >= 1, "a whole number from 1 on"))]
_Axes = Annotated[
    dict[str, _Size],
    demand(
        (is_filled_object, lambda _: said("must-name-axes")),
    ),
]
_Split = Annotated[
    dict[Annotated[str, AfterValidator(_axis)], Annotated[Placement, PlainValidator(_placement)]],
    _ABSENT_IS_EMPTY,
    _ANY_OBJECT,
]
_Slots = Annotated[dict[Annotated[str, AfterValidator(_slot)], _Split], _ABSENT_IS_EMPTY, _ANY_OBJECT]
_FirstNumbers = Annotated[tuple[int, ...], PlainValidator(_first_numbers)]
_Replacement = Annotated[
    str,
    BeforeValidator(lambda value: "" if value is None else str(value)),
    demand((lambda value: not is_list(value) and not is_object(value), "a text")),
]


class Stages(Declared):
    """``stages`` of a side."""

    axis: Annotated[str, BeforeValidator(_stage_axis)] = Field(None, validate_default=True)
    layers: Annotated[dict[str, _FirstNumbers], _ABSENT_IS_EMPTY, _ANY_OBJECT] = Field({})


class SideFields(Declared):
    """What is said of one run."""

    mesh: _Axes = Field(None, validate_default=True)
    parameters: Annotated[dict[str, _Split], _ABSENT_IS_EMPTY, _ANY_OBJECT] = Field({})
    modules: Annotated[dict[str, _Slots], _ABSENT_IS_EMPTY, _ANY_OBJECT] = Field({})
    stages: Annotated[Stages | None, _ANY_OBJECT] = None
    names: Annotated[
        dict[Annotated[str, AfterValidator(_expression)], _Replacement],
        AfterValidator(_replacements),
        _ABSENT_IS_EMPTY,
        _ANY_OBJECT,
    ] = Field({})


_SIDE = TypeAdapter(SideFields)


def _side(value: Mapping[str, Any]) -> SideFields:
    mesh, stages = value.get("mesh"), value.get("stages")
    sizes = dict(mesh) if isinstance(mesh, Mapping) else {}
    axis = stages.get("axis") if isinstance(stages, Mapping) else None
    count = sizes.get(axis) if isinstance(axis, str) else None
    return _SIDE.validate_python(value, context=_Mesh(tuple(sizes), count if is_whole(count) else None))


_Side = Annotated[SideFields | None, PlainValidator(_side), demand((is_object, "an object"))]


class _File(Declared):
    candidate: _Side = None
    reference: _Side = None


FILE = Annotated[_File, demand((is_filled_object, lambda _: said("must-have-sides")))]

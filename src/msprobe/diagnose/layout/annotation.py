"""The annotation file: how a run that does not say it itself lies on its ranks.

YAML or JSON, for the candidate, the reference, or both; the form is described in ``docs/verdict.md``. What the file
does not tell of a tensor is found out by its shapes, on the mesh that the file gives.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msprobe.diagnose.layout.placements import Placement, of_text
from msprobe.errors import InvalidInputError, PathError
from msprobe.paths import StrPath

_MOST_BYTES = 1 << 22
_SIDES = ("candidate", "reference")
_FIELDS = ("mesh", "parameters", "modules", "stages", "names")
_SLOTS = ("input", "output")

Split = dict[str, Placement]


@dataclass(frozen=True)
class Annotation:
    """What a file says of one run.

    ``mesh``: axes and their sizes, the slowest first; rank numbers count through it. ``parameters``: pattern of a
    parameter's name -> placement by axis. ``modules``: pattern of a module's path, ``input`` or ``output`` (or one
    slot, ``output.0``), placement by axis. ``layers``: name of a numbered group of modules -> its first number in each
    stage, by the place on ``stage_axis``. ``names``: expressions that are replaced in names.
    """

    mesh: tuple[tuple[str, int], ...]
    parameters: tuple[tuple[str, Split], ...] = ()
    modules: tuple[tuple[str, str, Split], ...] = ()
    stage_axis: str | None = None
    layers: tuple[tuple[str, tuple[int, ...]], ...] = ()
    names: tuple[tuple[re.Pattern[str], str], ...] = ()

    @property
    def size(self) -> int:
        """How many ranks the mesh has."""
        return math.prod(size for _, size in self.mesh)

    def place(self, rank: int) -> dict[str, int]:
        """Where on the mesh a rank stands."""
        found: dict[str, int] = {}
        for name, size in reversed(self.mesh):
            rank, found[name] = divmod(rank, size)
        return found

    def of_parameter(self, name: str) -> Split:
        """How a parameter lies on the axes that the file speaks of; the first pattern that fits counts."""
        found: Split = {}
        for pattern, split in self.parameters:
            if fnmatchcase(name, pattern):
                found = split | found
        return found

    def of_module(self, path: str, slot: str) -> Split:
        """The same for what goes into a module and comes out of it."""
        found: Split = {}
        for pattern, which, split in self.modules:
            if fnmatchcase(path, pattern) and (slot == which or slot.startswith(f"{which}.")):
                found = split | found
        return found

    def renamed(self, name: str, rank: int) -> str:
        """The name that a module or parameter of this rank has in the whole model."""
        for pattern, new in self.names:
            name = pattern.sub(new, name)
        if self.stage_axis is not None:
            stage = self.place(rank)[self.stage_axis]
            for group, firsts in self.layers:
                name = moved(name, group, firsts[stage])
        return name


def moved(name: str, group: str, offset: int) -> str:
    """``blocks.0.up`` -> ``blocks.2.up`` for the group ``blocks`` and the offset 2."""
    if not offset:
        return name
    head = f"{group}." if group else ""
    if not name.startswith(head):
        return name
    number, dot, rest = name[len(head) :].partition(".")
    return f"{head}{int(number) + offset}{dot}{rest}" if number.isdigit() else name


def read_annotations(path: StrPath) -> dict[str, Annotation]:
    """What a file says of the candidate and of the reference.

    Raises PathError if it cannot be read, InvalidInputError with all that is wrong in it.
    """
    content = _content(Path(path))
    problems: list[str] = []
    found: dict[str, Annotation] = {}
    if not isinstance(content, dict) or not content:
        raise InvalidInputError(f'"{path}" must be an object with the keys candidate, reference, or both.')
    for side, fields in content.items():
        if side not in _SIDES:
            problems.append(f"{side!r} is not known; the keys are candidate and reference")
        elif not isinstance(fields, dict):
            problems.append(f"{side} must be an object, found {type(fields).__name__}")
        else:
            annotation = _read_side(str(side), fields, problems)
            if annotation is not None:
                found[str(side)] = annotation
    if problems:
        raise InvalidInputError(f'"{path}": ' + "; ".join(problems) + ".")
    return found


def _content(path: Path) -> Any:
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise InvalidInputError(f'"{path}" is larger than 4 MiB, so it is no annotation of a layout.')
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise InvalidInputError(f'"{path}" is not UTF-8 text: {problem}.') from problem
    except OSError as problem:
        raise PathError(f'"{path}" cannot be read: {(problem.strerror or str(problem)).lower()}.') from problem
    try:
        if path.suffix == ".json":
            return json.loads(text)
        import yaml

        return yaml.safe_load(text)
    except (ValueError, RecursionError) as problem:
        raise InvalidInputError(f'"{path}" is no JSON: {problem}.') from problem
    except Exception as problem:
        raise InvalidInputError(f'"{path}" is no YAML: {" ".join(str(problem).split())}.') from problem


def _read_side(side: str, fields: dict[Any, Any], problems: list[str]) -> Annotation | None:
    before = len(problems)
    for key in fields:
        if key not in _FIELDS:
            problems.append(f"{side}.{key} is not known; the fields are {', '.join(_FIELDS)}")
    mesh = _mesh(side, fields.get("mesh"), problems)
    axes = dict(mesh)
    parameters = tuple(
        (str(pattern), _split(f"{side}.parameters.{pattern}", split, axes, problems))
        for pattern, split in _object(f"{side}.parameters", fields.get("parameters"), problems)
    )
    modules = []
    for pattern, slots in _object(f"{side}.modules", fields.get("modules"), problems):
        where = f"{side}.modules.{pattern}"
        for slot, split in _object(where, slots, problems):
            if not str(slot).startswith(_SLOTS):
                problems.append(f"{where}.{slot} is not known; the slots are input, output, and one of them (output.0)")
            modules.append((str(pattern), str(slot), _split(f"{where}.{slot}", split, axes, problems)))
    axis, layers = _stages(side, fields.get("stages"), axes, problems)
    names = []
    for pattern, new in _object(f"{side}.names", fields.get("names"), problems):
        try:
            names.append((re.compile(str(pattern)), str(new)))
        except re.error as problem:
            problems.append(f"{side}.names.{pattern} is no regular expression: {problem}")
    if len(problems) > before:
        return None
    return Annotation(mesh, parameters, tuple(modules), axis, layers, tuple(names))


def _mesh(side: str, found: Any, problems: list[str]) -> tuple[tuple[str, int], ...]:
    if not isinstance(found, dict) or not found:
        problems.append(f"{side}.mesh must name the axes and their sizes, the slowest first, as {{data: 2, tensor: 2}}")
        return ()
    for name, size in found.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            problems.append(f"{side}.mesh.{name} must be a whole number from 1 on, found {size!r}")
    return tuple((str(name), size if isinstance(size, int) else 1) for name, size in found.items())


def _split(where: str, found: Any, axes: dict[str, int], problems: list[str]) -> Split:
    split: Split = {}
    for axis, word in _object(where, found, problems):
        placement = of_text(str(word))
        if axis not in axes:
            problems.append(f"{where}: {axis!r} is no axis of the mesh; it has {', '.join(axes) or 'none'}")
        elif placement is None:
            problems.append(
                f"{where}.{axis}: {word!r} is not known; write replicate, shard(0), partial or interleave(0)"
            )
        else:
            split[str(axis)] = placement
    return split


def _stages(
    side: str, found: Any, axes: dict[str, int], problems: list[str]
) -> tuple[str | None, tuple[tuple[str, tuple[int, ...]], ...]]:
    if found is None:
        return None, ()
    fields = dict(_object(f"{side}.stages", found, problems))
    axis = fields.get("axis")
    if axis not in axes:
        problems.append(f"{side}.stages.axis must be an axis of the mesh ({', '.join(axes)}), found {axis!r}")
        return None, ()
    layers = []
    for group, firsts in _object(f"{side}.stages.layers", fields.get("layers"), problems):
        whole = isinstance(firsts, list) and all(isinstance(n, int) and n >= 0 for n in firsts)
        if not whole or len(firsts) != axes[str(axis)]:
            problems.append(
                f"{side}.stages.layers.{group} must list the first number of each of the {axes[str(axis)]} stages, "
                f"found {firsts!r}"
            )
        else:
            layers.append((str(group), tuple(firsts)))
    return str(axis), tuple(layers)


def _object(where: str, found: Any, problems: list[str]) -> list[tuple[Any, Any]]:
    if found is None:
        return []
    if not isinstance(found, dict):
        problems.append(f"{where} must be an object, found {type(found).__name__}")
        return []
    return list(found.items())

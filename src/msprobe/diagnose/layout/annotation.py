"""The annotation file: how a run that does not say it itself lies on its ranks.

YAML or JSON, for the candidate, the reference, or both; the form is described in ``docs/verdict.md``. What the file
does not say of a tensor is found out by its shapes, on the mesh that the file gives.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.config import jsonc
from msprobe.config.jsonc import FieldPath
from msprobe.config.mistakes import (
    ConfigSource,
    Mistake,
    MistakeKind,
    dotted,
    raise_in_one_line,
    warn_of_duplicates,
)
from msprobe.diagnose.layout.placements import Placement
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.patterns import Pattern, compile_pattern
from msprobe.messages import said
from msprobe.paths import StrPath

if TYPE_CHECKING:
    from msprobe.diagnose.layout.annotation_fields import SideFields

_MOST_BYTES = 1 << 22
_SIDES = ("candidate", "reference")

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
    names: tuple[tuple[Pattern, str], ...] = ()

    @property
    def size(self) -> int:
        """How many ranks the mesh has."""
        return math.prod(size for _, size in self.mesh)

    def place(self, rank: int) -> dict[str, int]:
        """Where on the mesh a rank stands."""
        place_by_axis: dict[str, int] = {}
        for name, size in reversed(self.mesh):
            rank, place_by_axis[name] = divmod(rank, size)
        return place_by_axis

    def parameter_split(self, name: str) -> Split:
        """How a parameter lies on the axes that the file speaks of; the first pattern that fits counts."""
        split_found: Split = {}
        for pattern, split in self.parameters:
            if fnmatchcase(name, pattern):
                split_found = split | split_found
        return split_found

    def module_split(self, path: str, slot: str) -> Split:
        """The same for what goes into a module and comes out of it."""
        split_found: Split = {}
        for pattern, which, split in self.modules:
            if fnmatchcase(path, pattern) and (slot == which or slot.startswith(f"{which}.")):
                split_found = split | split_found
        return split_found

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
    from msprobe.config.declared import read_declared
    from msprobe.diagnose.layout.annotation_fields import FILE

    source = _source(Path(path))
    warn_of_duplicates(source)
    read = read_declared(FILE, source, "the file")
    if read.mistakes:
        raise_in_one_line(read.mistakes, InvalidInputError)
    by_side = {side: getattr(read.value, side) for side in _SIDES}
    return {side: _annotation(fields) for side, fields in by_side.items() if fields is not None}


def _annotation(fields: SideFields) -> Annotation:
    modules = tuple(
        (pattern, slot, split) for pattern, slots in fields.modules.items() for slot, split in slots.items()
    )
    axis, layers = None, {}
    if fields.stages is not None:
        axis, layers = fields.stages.axis, fields.stages.layers
    return Annotation(
        tuple(fields.mesh.items()),
        tuple(fields.parameters.items()),
        modules,
        axis,
        tuple(layers.items()),
        tuple((compile_pattern(pattern, "names"), new) for pattern, new in fields.names.items()),
    )


class _Sentences(ConfigSource):
    """Mistakes as sentences about the field: ``"layout.yaml":3: candidate.mesh.data must be ...``."""

    def mistake(self, path: FieldPath, text: str, kind: MistakeKind = "value") -> Mistake:
        """A mistake in this field; a text that begins with a value stands behind a colon."""
        field = dotted(path) if path[0] in _SIDES else repr(path[0])
        between = ": " if text.startswith("'") else " "
        known = super().mistake(path, text, kind)
        return replace(known, where=f"{self.name}{self.line(path)}", text=f"{field}{between}{text}")


def _source(path: Path) -> ConfigSource:
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise InvalidInputError(said("layout-file-too-large", path))
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise InvalidInputError(said("layout-file-no-utf8", path, problem)) from problem
    except OSError as problem:
        raise PathError(said("layout-file-unreadable", path, reason_of(problem))) from problem
    name, kind = f'"{path}"', "JSON" if path.suffix == ".json" else "YAML"
    try:
        if kind == "JSON":
            document = jsonc.parse(text, name)
        else:
            from msprobe.config.yaml_source import parse_yaml

            document = parse_yaml(text, name, typed=True).document
    except InvalidInputError as problem:
        raise InvalidInputError(said("not-in-format", name, kind, problem.message)) from problem
    return _Sentences(name, document, {})

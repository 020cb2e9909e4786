"""What the readers of graph files (``.vis``, ``.vis.db``) give, whoever wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.messages import said

Fields = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class FileNode:
    """A node of a graph file.

    ``kind``: 0 module, 1 call, 8 fused operators, 9 calls between modules. ``link``: the partner behind all that is
    around it, empty if there is none. ``index`` and ``overflow`` are None where there is none. ``merged``: how ranks
    were merged, one line each. ``inputs_read`` and ``outputs_read`` may still be JSON text: ask :meth:`inputs`.
    """

    name: str
    kind: int
    parent: str | None
    children: tuple[str, ...]
    link: tuple[str, ...]
    index: float | int | None
    overflow: str | None
    micro_step: int
    stack: tuple[str, ...]
    communication: Any
    inputs_read: Fields | str
    outputs_read: Fields | str
    merged: tuple[str, ...] = ()

    def inputs(self) -> Fields:
        """Arguments and their fields, all texts."""
        return _fields(self.inputs_read, self.name)

    def outputs(self) -> Fields:
        """Results and their fields, all texts."""
        return _fields(self.outputs_read, self.name)

    @property
    def partner(self) -> str | None:
        """The name of the partner; None if there is none."""
        return self.link[-1] if self.link else None


@dataclass(frozen=True)
class FileGraph:
    """One side of one step and rank: ``source`` is ``NPU`` (candidate, or alone) or ``Bench`` (reference).

    ``step`` and ``rank`` are None where a ``.vis`` file does not name them.
    """

    source: str
    step: int | None
    rank: int | None
    dump_data_dir: str | None
    nodes: Mapping[str, FileNode]


@dataclass(frozen=True)
class GraphFile:
    """The content of a graph file. ``task``: summary, md5, all (tensors), structure; empty for one dump alone."""

    path: Path
    is_comparison: bool
    task: str
    tool_tip: Mapping[str, str]
    colours: Mapping[str, Any]
    micro_steps: int
    overflow_check: bool
    graphs: tuple[FileGraph, ...]


def read_graph_file(path: Path) -> GraphFile:
    """Read ``.vis`` or ``.vis.db``, by the ending of the name. Raises InvalidInputError or PathError."""
    from msprobe.graph.vis_db_reader import read_vis_db
    from msprobe.graph.vis_file import read_vis

    if path.name.endswith(".vis.db"):
        return read_vis_db(path)
    if path.name.endswith(".vis"):
        return read_vis(path)
    raise InvalidInputError(said("no-graph-file-name", path))


def names_of(names: object) -> tuple[str, ...]:
    """A list of names, or of lines, as texts; none for what is empty. Raises ValueError for what is no list."""
    if names and not isinstance(names, list):
        raise ValueError(said("no-list-of-names", str(names)[:40]))
    return tuple(map(str, names)) if isinstance(names, list) else ()


def without_prefixes(link: Iterable[Any]) -> tuple[str, ...]:
    """A link without the marks of sides (``N___``, ``B___``) that older files put before names."""
    return tuple(str(end).removeprefix("N___").removeprefix("B___") for end in link)


def _fields(fields: Fields | str, name: str) -> Fields:
    if not isinstance(fields, str):
        return fields
    try:
        read = json.loads(fields) if fields else {}
    except (ValueError, RecursionError) as problem:
        raise InvalidInputError(said("node-data-unreadable", name, problem)) from problem
    return read if isinstance(read, dict) else {}

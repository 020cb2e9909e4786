"""What to build: from the compare.json of 8.1.1 or the arguments of 26.2, checked with all mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from msprobe import log
from msprobe.compare.compare_file import GIVE, FolderPath, OtherPath, parsed
from msprobe.compare.mapping_files import LayerMapping
from msprobe.config.declared import Declared, demand, is_object, read_declared
from msprobe.config.mistakes import ConfigSource, raise_in_one_line
from msprobe.errors import InvalidInputError
from msprobe.graph.matching import Mode
from msprobe.graph.merge.layout import ParallelLayout
from msprobe.messages import said
from msprobe.paths import StrPath

FileType = Literal["vis", "db", "json"]


@dataclass(frozen=True)
class GraphRequest:
    """One call of ``graph`` or ``graph_visualize``.

    ``layouts``: how ranks are merged, for the candidate and the reference; empty: they are not. ``fields`` name the two
    paths in messages.
    """

    candidate: str
    reference: str | None
    output: StrPath
    file_type: FileType
    fields: tuple[str, str]
    match: Mode = "aligned"
    mapping: LayerMapping | None = None
    overflow_check: bool = False
    complete_stacks: bool = True
    published_values: bool = False
    layouts: tuple[ParallelLayout, ...] = field(default=())


@dataclass(frozen=True)
class GraphCompareFile:
    """The fields of compare.json that a graph needs."""

    npu_path: str
    bench_path: str | None
    layouts: tuple[ParallelLayout, ...] = ()


class _GraphFile(Declared):
    npu_path: FolderPath = Field(description=GIVE)
    bench_path: OtherPath = None
    parallel_merge: Any = None
    # Those of other commands, which have the same file.
    stack_path: Any = None
    is_print_compare_log: Any = None


_FILE = Annotated[_GraphFile, demand((is_object, "an object with npu_path"))]


def read_compare_file(path: StrPath) -> GraphCompareFile:
    """Read compare.json; comments are allowed. Raises PathError or InvalidInputError."""
    name = os.fspath(path)
    read = read_declared(_FILE, ConfigSource(name, parsed(path), {}), "the file", unknown="ignored")
    if read.mistakes:
        raise_in_one_line(read.mistakes, InvalidInputError)
    fields: _GraphFile = read.value
    layouts = _layouts(fields.parallel_merge, name, fields.bench_path is not None)
    return GraphCompareFile(fields.npu_path, fields.bench_path, layouts)


def _layouts(given: Any, name: str, compares: bool) -> tuple[ParallelLayout, ...]:
    """The layouts of ``parallel_merge``; none, with a warning, where it is not an object with ``npu``."""
    if not isinstance(given, Mapping) or not given.get("npu"):
        if given:
            needed = '{"npu": {"rank_size": ..., "tp": ..., "pp": ...}}'
            log.warning(said("parallel-merge-wrong", name, needed))
        return ()
    layouts = []
    for side in ("npu", "bench")[: 2 if compares else 1]:
        fields = given.get(side)
        where = f'compare file "{name}": parallel_merge.{side}'
        if not isinstance(fields, Mapping):
            raise InvalidInputError(said("layout-is-no-object", where))
        layouts.append(ParallelLayout.of(fields, where))
    return tuple(layouts)

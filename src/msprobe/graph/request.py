"""What to build: from the compare.json of 8.1.1 or the arguments of 26.2, checked with all mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msprobe import log
from msprobe.compare.mapping_files import LayerMapping
from msprobe.config.jsonc import parse
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import read_bounded
from msprobe.graph.matching import Mode
from msprobe.graph.merge.layout import Layout
from msprobe.paths import StrPath

FileType = Literal["vis", "db", "json"]
# Those of compare.json, whichever command reads it.
_KNOWN = frozenset(("npu_path", "bench_path", "stack_path", "is_print_compare_log", "parallel_merge"))


@dataclass(frozen=True)
class Request:
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
    layouts: tuple[Layout, ...] = field(default=())


@dataclass(frozen=True)
class CompareFile:
    """The fields of compare.json that a graph needs."""

    npu_path: str
    bench_path: str | None
    layouts: tuple[Layout, ...] = ()


def read_compare_file(path: StrPath) -> CompareFile:
    """Read compare.json; comments are allowed. Raises PathError or InvalidInputError."""
    name = os.fspath(path)
    try:
        text = read_bounded(path, Budget(path, SETTINGS))
    except FileNotFoundError:
        raise PathError(f'cannot read compare file "{name}": no such file.') from None
    except OSError as problem:
        raise PathError(f'cannot read compare file "{name}": {reason_of(problem)}.') from None
    found = parse(text, name).value
    if not isinstance(found, Mapping):
        raise InvalidInputError(f'compare file "{name}" must hold an object, found a {type(found).__name__}.')
    mistakes: list[str] = []
    npu = found.get("npu_path")
    unknown = [key for key in found if key not in _KNOWN]
    if not isinstance(npu, str) or not npu:
        instead = f", found {', '.join(map(repr, unknown))}" if npu is None and unknown else ""
        mistakes.append(f"'npu_path' is required and must be a folder path{instead}")
    bench = found.get("bench_path")
    if bench is not None and not isinstance(bench, str):
        mistakes.append("'bench_path' must be a folder path")
    if mistakes:
        raise InvalidInputError(f'compare file "{name}": {"; ".join(mistakes)}.')
    if unknown:
        log.warning(f'compare file "{name}": {", ".join(map(repr, unknown))} mean nothing to graph and are left out.')
    bench = bench or None
    return CompareFile(str(npu), bench, _layouts(found.get("parallel_merge"), name, bench is not None))


def _layouts(given: Any, name: str, compares: bool) -> tuple[Layout, ...]:
    """The layouts of ``parallel_merge``; none, with a warning, where it is not an object with ``npu``."""
    if not isinstance(given, Mapping) or not given.get("npu"):
        if given:
            needed = '{"npu": {"rank_size": ..., "tp": ..., "pp": ...}}'
            log.warning(f'compare file "{name}": parallel_merge is no {needed}: ranks are not merged.')
        return ()
    found = []
    for side in ("npu", "bench")[: 2 if compares else 1]:
        fields = given.get(side)
        where = f'compare file "{name}": parallel_merge.{side}'
        if not isinstance(fields, Mapping):
            raise InvalidInputError(f"{where} must be an object with rank_size, tp and pp.")
        found.append(Layout.of(fields, where))
    return tuple(found)

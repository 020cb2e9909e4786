"""The texts of graphs that a user points at: one, those in a folder, or those of several ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msprobe.diagnose.code_mapping.ir_text import IrGraph, read_ir
from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.paths import StrPath

# What a folder is searched for, the best first: graph_build has the numbers of the dump.
_KINDS = (
    re.compile(r"graph_build_(?P<graph>\d{1,9})_(?P<pass>\d{1,9})\.ir"),
    re.compile(r"ms_output_trace_code_graph_(?P<graph>\d{1,9})(?P<pass>)\.ir"),
)
_RANK = re.compile(r"rank_(\d{1,9})")
# Of a dump; MS_DEV_SAVE_GRAPHS_PATH has the texts in the folder of the rank itself.
_OF_A_DUMP = "graphs"

# The texts by rank; those under None are for every rank.
GraphTexts = dict[int | None, list[IrGraph]]


def read_graphs(path: StrPath) -> GraphTexts:
    """Read one text, or all texts of kernel graphs in a folder, or in its folders ``rank_0``, ``rank_1``, ...

    Raises PathError if there is none, and as ``read_ir``.
    """
    folder = Path(path)
    if not folder.is_dir():
        return {None: [read_ir(path)]}
    if texts := _texts_in(folder):
        return {None: list(map(read_ir, texts))}
    graph_texts: GraphTexts = {}
    for rank, place in sorted(_ranks_in(folder)):
        if texts := _texts_in(place) or _texts_in(place / _OF_A_DUMP):
            graph_texts[rank] = list(map(read_ir, texts))
    if not graph_texts:
        raise PathError(said("no-graph-files", folder))
    return graph_texts


def rank_of(folder: Path) -> int | None:
    """The rank in whose folder ``rank_{R}`` this one is; None if in none."""
    ranks = [int(match[1]) for match in map(_RANK.fullmatch, folder.parts) if match]
    return ranks[-1] if ranks else None


def _texts_in(folder: Path) -> list[Path]:
    """The best kind of texts in a folder, of each graph that of the last pass."""
    names = _names(folder) if folder.is_dir() else []
    for kind in _KINDS:
        last: dict[int, tuple[int, str]] = {}
        for match in filter(None, map(kind.fullmatch, names)):
            graph = int(match["graph"])
            last[graph] = max(last.get(graph, (-1, "")), (int(match["pass"] or 0), match[0]))
        if last:
            return [folder / last[graph][1] for graph in sorted(last)]
    return []


def _ranks_in(folder: Path) -> Iterator[tuple[int, Path]]:
    for name in _names(folder):
        if rank := _RANK.fullmatch(name):
            yield int(rank[1]), folder / name


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as problem:
        raise PathError(said("kernel-subfolder-unreadable", folder, problem.strerror)) from problem

"""One job of building graphs: the ranks that make one graph, or one rank, from its dump to its file.

A job knows nothing of other jobs. What ranks say of each other is added to the files when all are there
(:mod:`msprobe.graph.between_ranks`), so that only one rank, or one for each worker, is in memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from msprobe import log
from msprobe.diagnose.steps.collector import no_collection
from msprobe.errors import InvalidInputError
from msprobe.graph.between_ranks import Ends, ends_of
from msprobe.graph.comparison import GraphComparison, compare_sides
from msprobe.graph.folders import RankFolder
from msprobe.graph.matching import Partners, aligned, unmatched
from msprobe.graph.merge.dump_files import write_merged
from msprobe.graph.merge.together import merge_ranks
from msprobe.graph.node_texts import Written
from msprobe.graph.overflow import mark_overflow
from msprobe.graph.request import GraphRequest
from msprobe.graph.side import GraphOfSide, read_side
from msprobe.graph.tree import Tree, read_tree
from msprobe.graph.value_texts import Form
from msprobe.graph.vis_db import DbPart, write_part
from msprobe.graph.vis_file import Place, write_vis
from msprobe.messages import said
from msprobe.store.part import DumpPart

Pair = tuple[RankFolder, RankFolder | None]


@dataclass(frozen=True)
class GraphJob:
    """The pairs of folders that are done together: one, or all of a step whose ranks are merged.

    ``folder`` is where the files grow, ``number`` keeps their names apart.
    """

    request: GraphRequest
    pairs: tuple[Pair, ...]
    folder: Path
    number: int


@dataclass(frozen=True)
class Built:
    """A graph in a file that is not yet under its name. ``part``: of a database; ``ends``: those of transfers;
    ``interrupted``: the dumps that end too early.
    """

    pair: Pair
    file: Path
    ends: tuple[Ends, ...]
    part: DbPart | None = None
    interrupted: tuple[Path, ...] = ()


def build(job: GraphJob) -> list[Built]:
    """Read, compare and write. Raises PathError, InvalidInputError or TaskMismatchError."""
    request = job.request
    # Millions of small objects, none of which know each other: looking for circles takes half as long as the work.
    with no_collection():
        built: list[Built] = []
        opened: list[DumpPart] = []
        for count, (pair, written) in enumerate(_written(job, opened)):
            if request.overflow_check:
                written = replace(written, overflow_check=True)
                for _, side in written.sides:
                    mark_overflow(side)
            file = job.folder / f"{job.number}_{count}"
            if request.file_type == "json":
                built.append(Built(pair, write_merged(job.folder, written.candidate), ()))
            elif request.file_type == "db":
                built.append(Built(pair, file, ends_of(written), write_part(file, written)))
            else:
                places: dict[Place, int] = {}
                write_vis(file, written, published_values=request.published_values, places=places)
                built.append(Built(pair, file, ends_of(written, places)))
        ended = tuple(part.folder for part in opened if not part.complete)
        return [replace(graph, interrupted=ended) for graph in built]


def _written(job: GraphJob, opened: list[DumpPart]) -> list[tuple[Pair, Written]]:
    """What is written of each graph; the dumps are added to ``opened``, and closed."""
    with ExitStack() as open_parts:
        open_parts.callback(_close, opened)
        if job.request.layouts:
            return _merged(job, opened)
        (pair,) = job.pairs
        folder, other_folder = pair
        part = _open(folder, opened)
        tree = _tree(part, job.request)
        if other_folder is None:
            return [(pair, Written(_side(part, tree, folder, job.request)))]
        other_part = _open(other_folder, opened)
        other_tree = _tree(other_part, job.request)
        partner: Partners | None = None
        if job.request.match == "aligned" and job.request.mapping is None:
            # Before arguments are read: the alignment and they need half a gigabyte each for 100,000 nodes.
            partner = aligned(tree, other_tree, (part, other_part))
        side = _side(part, tree, folder, job.request)
        other = _side(other_part, other_tree, other_folder, job.request)
        comparison = compare_sides(
            side,
            other,
            (part, other_part),
            form=_form(job.request),
            match_mode=job.request.match,
            mapping=job.request.mapping,
            partner=partner,
        )
        _log_notes(comparison, folder)
        return [(pair, Written(side, comparison))]


def _close(parts: list[DumpPart]) -> None:
    for part in parts:
        part.close()


def _open(folder: RankFolder, opened: list[DumpPart]) -> DumpPart:
    opened.append(folder.open())
    return opened[-1]


def _tree(part: DumpPart, request: GraphRequest) -> Tree:
    return read_tree(part, rehang_recomputed=request.match != "strict")


def _side(part: DumpPart, tree: Tree, folder: RankFolder, request: GraphRequest) -> GraphOfSide:
    for notice in tree.notices:
        log.warning(f'"{folder.path}": {notice}')
    return read_side(part, complete_stacks=request.complete_stacks, tree=tree)


def _merged(job: GraphJob, opened: list[DumpPart]) -> list[tuple[Pair, Written]]:
    """One graph for each copy of the model."""
    request = job.request

    def read(folders: list[RankFolder]) -> tuple[DumpPart, list[GraphOfSide]]:
        parts = [_open(folder, opened) for folder in folders]
        sides = [_side(part, _tree(part, request), at, request) for part, at in zip(parts, folders, strict=True)]
        return parts[0], sides

    part, ranks = read(list(dict.fromkeys(left for left, _ in job.pairs)))
    sides = merge_ranks(ranks, request.layouts[0])
    right = list(dict.fromkeys(right for _, right in job.pairs if right is not None))
    if not right:
        return [(job.pairs[place], Written(side)) for place, side in enumerate(sides)]
    other_part, other_ranks = read(right)
    others = merge_ranks(other_ranks, request.layouts[1])
    if len(sides) != len(others):
        raise InvalidInputError(
            said("copies-of-model-differ", len(sides), request.fields[0], len(others), request.fields[1])
        )
    merged: list[tuple[Pair, Written]] = []
    for place, (side, other) in enumerate(zip(sides, others, strict=True)):
        comparison = compare_sides(side, other, (part, other_part), form=_form(request), match_mode="fuzzy")
        merged.append((job.pairs[place], Written(side, comparison)))
    return merged


def _form(request: GraphRequest) -> Form:
    return "8.1.1" if request.file_type == "vis" else "26.2"


def _log_notes(comparison: GraphComparison, folder: RankFolder) -> None:
    mine = unmatched(comparison.candidate.tree, comparison.partner)
    if mine:
        named = ", ".join(mine[:3]) + (", ..." if len(mine) > 3 else "")
        log.info(f'"{folder.path}": {len(mine)} without partner: {named}')

"""Build the graph files of one run, or of two compared: every step and rank of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msprobe import log
from msprobe.coverage import Coverage, NotRead, together, write
from msprobe.engine import ALONE, Workers, run
from msprobe.errors import InvalidInputError
from msprobe.graph.between_ranks import find_partners
from msprobe.graph.folders import DumpFolders, RankFolder, coverage_of, find_folders, pair_folders
from msprobe.graph.job import Built, GraphJob, Pair, build
from msprobe.graph.merge.together import check_ranks
from msprobe.graph.request import GraphRequest
from msprobe.graph.vis_db import id_of, write_vis_db
from msprobe.graph.vis_file import with_partners
from msprobe.messages import said
from msprobe.paths import make_folder, make_folder_in

Progress = Callable[[str], None]


class Graphs(NamedTuple):
    """The files that were written, and of what the graphs are."""

    files: list[Path]
    coverage: Coverage


def build_graphs(
    request: GraphRequest, time: str, progress: Progress = lambda text: None, workers: Workers = ALONE
) -> Graphs:
    """Build what is asked for and write it; the files, and what they are of. ``time`` stands in their names.

    ``workers``: how many ranks are done at once; the files are the same. Where steps or ranks are on one side alone or
    missing, or a dump ends too early, ``coverage_{time}.json`` says which. Raises PathError, InvalidInputError or
    TaskMismatchError; then nothing is written.
    """
    mine = find_folders(request.candidate, request.fields[0])
    theirs = None if request.reference is None else find_folders(request.reference, request.fields[1])
    for layout, side, field in zip(request.layouts, (mine, theirs), request.fields, strict=False):
        if side is not None:
            check_ranks(layout, side, field)
    pairs = list(_jobs(mine, theirs, request))
    output = Path(request.output)
    with _growing_folder(output) as folder:
        jobs = [GraphJob(request, pair, folder, number) for number, pair in enumerate(pairs)]
        graphs: list[Built] = []

        def show_dump(number: int) -> None:
            progress(said("job-of-jobs", str(pairs[number][0][0].path), number + 1, len(pairs)))

        for done in run(build, jobs, workers, show_dump):
            graphs += done
        files = _finish(graphs, output, request, "build" if theirs is None else "compare", time, mine)
        covered = Coverage({"dumps": len(pairs)}) if request.layouts else coverage_of(mine, theirs, request.fields)
        ended = dict.fromkeys(path for built in graphs for path in built.interrupted)
        covered = together([covered, Coverage({}, tuple(NotRead(str(path), said("graph-cut-off")) for path in ended))])
        if not covered.is_complete:
            write(covered, output / f"coverage_{time}.json")
        return Graphs(files, covered)


@contextmanager
def _growing_folder(output: Path) -> Iterator[Path]:
    """A folder for files on their way, in the folder of the results; of both nothing stays if the work fails."""
    missing = [output, *output.parents]
    missing = missing[
        : next((place for place, folder_made in enumerate(missing) if folder_made.exists()), len(missing))
    ]
    folder = output / f".msprobe-{os.getpid()}.tmp"
    make_folder(folder)
    is_done = False
    try:
        yield folder
        is_done = True
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for folder_made in () if is_done else missing:
            try:
                folder_made.rmdir()
            except OSError:
                break


def _finish(
    graphs: Sequence[Built], output: Path, request: GraphRequest, verb: str, time: str, mine: DumpFolders
) -> list[Path]:
    """Give the files their names, with what the ranks of a step say of each other."""
    if request.file_type == "json":
        return [_moved(built.file, output) for built in graphs]
    additions = _additions(graphs)
    if request.file_type == "db":
        path = output / f"{verb}_{time}.vis.db"
        rows = (
            (id_of(ends.source, ends.step, ends.rank, call.name), partner[call.node])
            for built, sides in zip(graphs, additions, strict=True)
            for ends, partner in zip(built.ends, sides, strict=True)
            for call in ends.calls
            if call.node in partner
        )
        write_vis_db(path, [built.part for built in graphs if built.part is not None], rows)
        return [path]
    made: list[Path] = []
    for built, sides in zip(graphs, additions, strict=True):
        path = output / f"{_name(verb, mine, built.pair[0])}_{time}.vis"
        offsets = {
            ends.places[node]: its_partner
            for ends, partner in zip(built.ends, sides, strict=True)
            for node, its_partner in partner.items()
        }
        if offsets:
            with_partners(built.file, path, offsets)
        else:
            os.replace(built.file, path)
        made.append(path)
    return made


def _additions(graphs: Sequence[Built]) -> list[list[Mapping[int, Any]]]:
    """For each graph and each of its sides, by node, the partners of communication calls in other ranks."""
    by_graph: list[list[Mapping[int, Any]]] = [[] for _ in graphs]
    for step in dict.fromkeys(built.pair[0].step for built in graphs):
        places = [place for place, built in enumerate(graphs) if built.pair[0].step == step]
        sides, lost = find_partners([graphs[place].ends for place in places])
        for place, side in zip(places, sides, strict=True):
            by_graph[place] = side
        if lost:
            log.warning(said("transfers-without-end", lost))
    return by_graph


def _moved(folder: Path, output: Path) -> Path:
    """Move a merged dump to its place among the results."""
    target = make_folder_in(output, folder.parent.name, folder.name)
    for file in folder.iterdir():
        os.replace(file, target / file.name)
    return target


def _name(verb: str, folders: DumpFolders, rank: RankFolder) -> str:
    step = f"step{rank.step}" if folders.kind == "steps" else ""
    return "_".join(word for word in (verb, step, "" if folders.kind == "single" else rank.label) if word)


def _jobs(mine: DumpFolders, theirs: DumpFolders | None, request: GraphRequest) -> Iterator[tuple[Pair, ...]]:
    """The pairs of folders that are done together: each alone, or all of a step whose ranks are merged."""
    pairs: list[Pair]
    if theirs is not None and request.layouts:
        yield from _merged_steps(mine, theirs, request)
        return
    pairs = (
        [(rank, None) for rank in mine.ranks] if theirs is None else list(pair_folders(mine, theirs, request.fields))
    )
    if not request.layouts:
        yield from ((pair,) for pair in pairs)
        return
    for step in dict.fromkeys(left.step for left, _ in pairs):
        yield tuple(pair for pair in pairs if pair[0].step == step)


def _merged_steps(mine: DumpFolders, theirs: DumpFolders, request: GraphRequest) -> Iterator[tuple[Pair, ...]]:
    """All ranks of each step. The sides may have another number of ranks: they are merged before they are paired."""
    if mine.kind != theirs.kind:
        pair_folders(mine, theirs, request.fields)  # says what is wrong
    by_step = [list(dict.fromkeys(rank.step for rank in side.ranks)) for side in (mine, theirs)]
    if mine.kind == "ranks":
        common = [(by_step[0][0], by_step[1][0])]
    else:
        common = [(step, step) for step in by_step[0] if step in by_step[1]]
        if not common:
            raise InvalidInputError(said("no-common-step", request.fields[0], request.fields[1]))
    for left, right in common:
        ranks = [rank for rank in mine.ranks if rank.step == left]
        others = [rank for rank in theirs.ranks if rank.step == right]
        longest = max(len(ranks), len(others))
        # The shorter side is filled up with its last rank; each is read once.
        yield tuple((ranks[min(at, len(ranks) - 1)], others[min(at, len(others) - 1)]) for at in range(longest))

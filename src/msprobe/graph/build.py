"""Build the graph files of one run, or of two compared: every step and rank of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from msprobe import log
from msprobe.diagnose.steps.collector import no_collection
from msprobe.errors import InvalidInputError
from msprobe.graph.communication import Call, partners
from msprobe.graph.comparison import Comparison, compare_sides
from msprobe.graph.folders import DumpFolders, RankFolder, find_folders, pair_folders
from msprobe.graph.matching import unmatched
from msprobe.graph.merge.dump_files import write_merged
from msprobe.graph.merge.together import check_ranks, merge_ranks
from msprobe.graph.node_texts import Written
from msprobe.graph.overflow import mark_overflow
from msprobe.graph.request import Request
from msprobe.graph.side import Side, read_side
from msprobe.graph.value_texts import Form
from msprobe.graph.vis_db import VisDbWriter
from msprobe.graph.vis_file import write_vis
from msprobe.paths import make_folder
from msprobe.store.part import DumpPart

Tell = Callable[[str], None]
_Pair = tuple[RankFolder, RankFolder | None]


def build_graphs(request: Request, time: str, tell: Tell = lambda text: None) -> list[Path]:
    """Build what is asked for and write it; the files. ``time`` stands in their names.

    Raises PathError or InvalidInputError; then nothing is written of the step and rank at fault.
    """
    # Millions of small objects, none of which know each other: looking for circles takes half as long as the work.
    with no_collection():
        return _build(request, time, tell)


def _build(request: Request, time: str, tell: Tell) -> list[Path]:
    mine = find_folders(request.candidate, request.fields[0])
    theirs = None if request.reference is None else find_folders(request.reference, request.fields[1])
    for layout, side, field in zip(request.layouts, (mine, theirs), request.fields, strict=False):
        if side is not None:
            check_ranks(layout, side, field)
    steps = list(_steps(mine, theirs, request))
    output = Path(request.output)
    verb = "build" if theirs is None else "compare"
    if request.file_type == "vis":
        made: list[Path] = []
        for step in steps:
            for pair, written in _written(step, request, tell):
                make_folder(output)
                path = output / f"{_name(verb, mine, pair[0])}_{time}.vis"
                write_vis(path, written, published_values=request.published_values)
                made.append(path)
        return made
    if request.file_type == "json":
        graphs = (written for step in steps for _, written in _written(step, request, tell))
        return [write_merged(output, written.candidate) for written in graphs]
    path = output / f"{verb}_{time}.vis.db"
    with ExitStack() as stack:
        writer: VisDbWriter | None = None
        for step in steps:
            for _, written in _written(step, request, tell):
                if writer is None:
                    # Not before something is there to write: a dump that cannot be read leaves no folder.
                    make_folder(output)
                    writer = stack.enter_context(VisDbWriter(path))
                writer.add(written)
    return [path]


def _name(verb: str, folders: DumpFolders, rank: RankFolder) -> str:
    step = f"step{rank.step}" if folders.kind == "steps" else ""
    return "_".join(word for word in (verb, step, "" if folders.kind == "single" else rank.label) if word)


def _steps(mine: DumpFolders, theirs: DumpFolders | None, request: Request) -> Iterator[list[_Pair]]:
    """The pairs of folders, those of one step together."""
    pairs: Sequence[_Pair]
    if theirs is None:
        pairs = [(rank, None) for rank in mine.ranks]
    elif request.layouts:
        yield from _merged_steps(mine, theirs, request)
        return
    else:
        pairs = list(pair_folders(mine, theirs, request.fields))
    for step in dict.fromkeys(left.step for left, _ in pairs):
        yield [pair for pair in pairs if pair[0].step == step]


def _merged_steps(mine: DumpFolders, theirs: DumpFolders, request: Request) -> Iterator[list[_Pair]]:
    """All ranks of each step. The sides may have another number of ranks: they are merged before they are paired."""
    if mine.kind != theirs.kind:
        pair_folders(mine, theirs, request.fields)  # tells what is wrong
    by_step = [list(dict.fromkeys(rank.step for rank in side.ranks)) for side in (mine, theirs)]
    if mine.kind == "ranks":
        common = [(by_step[0][0], by_step[1][0])]
    else:
        common = [(step, step) for step in by_step[0] if step in by_step[1]]
        if not common:
            raise InvalidInputError(f"no step is on both sides of {request.fields[0]} and {request.fields[1]}.")
    for left, right in common:
        ranks = [rank for rank in mine.ranks if rank.step == left]
        others = [rank for rank in theirs.ranks if rank.step == right]
        longest = max(len(ranks), len(others))
        # The shorter side is filled up with its last rank; each is read once.
        yield [(ranks[min(at, len(ranks) - 1)], others[min(at, len(others) - 1)]) for at in range(longest)]


def _written(step: list[_Pair], request: Request, tell: Tell) -> Iterator[tuple[_Pair, Written]]:
    """The graphs of one step, with what ranks say of each other."""
    with ExitStack() as open_parts:

        def read(folder: RankFolder) -> tuple[DumpPart, Side]:
            part = folder.open()
            open_parts.callback(part.close)
            tell(f"read {folder.path}")
            strict = request.match == "strict"
            side = read_side(part, complete_stacks=request.complete_stacks, rehang_recomputed=not strict)
            for notice in side.tree.notices:
                log.warning(f'"{folder.path}": {notice}')
            return part, side

        found: list[tuple[_Pair, Written]] = []
        if request.layouts:
            found = _merged(step, request, read)
        else:
            for pair in step:
                part, side = read(pair[0])
                if pair[1] is None:
                    found.append((pair, Written(side)))
                    continue
                other_part, other = read(pair[1])
                comparison = compare_sides(
                    side,
                    other,
                    (part, other_part),
                    form=_form(request),
                    match_mode=request.match,
                    mapping=request.mapping,
                )
                _tell_of(comparison, pair[0])
                found.append((pair, Written(side, comparison)))
        if request.overflow_check:
            found = [(pair, replace(written, overflow_check=True)) for pair, written in found]
            for _, written in found:
                for _, side in written.sides:
                    mark_overflow(side)
        _find_partners([written for _, written in found], request.overflow_check)
        yield from found


def _merged(
    step: list[_Pair], request: Request, read: Callable[[RankFolder], tuple[DumpPart, Side]]
) -> list[tuple[_Pair, Written]]:
    """One graph for each copy of the model."""
    mine = [read(folder) for folder in dict.fromkeys(left for left, _ in step)]
    sides = merge_ranks([side for _, side in mine], request.layouts[0])
    right = [folder for folder in dict.fromkeys(right for _, right in step) if folder is not None]
    if not right:
        return [(step[place], Written(side)) for place, side in enumerate(sides)]
    theirs = [read(folder) for folder in right]
    others = merge_ranks([side for _, side in theirs], request.layouts[1])
    if len(sides) != len(others):
        raise InvalidInputError(
            f"the sides hold another number of copies of the model: {len(sides)} in {request.fields[0]}, {len(others)} "
            f"in {request.fields[1]}."
        )
    parts = (mine[0][0], theirs[0][0])
    if request.mapping is not None:
        log.warning("merged ranks are paired by name and order; the layer mapping is not used.")
    found: list[tuple[_Pair, Written]] = []
    for place, (side, other) in enumerate(zip(sides, others, strict=True)):
        comparison = compare_sides(side, other, parts, form=_form(request), match_mode="fuzzy")
        found.append((step[place], Written(side, comparison)))
    return found


def _form(request: Request) -> Form:
    return "8.1.1" if request.file_type == "vis" else "26.2"


def _tell_of(comparison: Comparison, folder: RankFolder) -> None:
    mine = unmatched(comparison.candidate.tree, comparison.partner)
    if mine:
        named = ", ".join(mine[:3]) + (", ..." if len(mine) > 3 else "")
        log.info(f'"{folder.path}": {len(mine)} without partner: {named}')


def _find_partners(graphs: Sequence[Written], with_overflow: bool) -> None:
    """Fill :attr:`Side.communication` of all ranks of one step."""
    if len(graphs) < 2:
        return
    for number in range(2 if graphs[0].comparison is not None else 1):
        by_rank = {written.sides[number][1].rank: (written.sides[number][1], written) for written in graphs}
        calls = {rank: _calls(side) for rank, (side, _) in by_rank.items()}
        found, alone = partners(calls, partial(_rated, by_rank, with_overflow, number == 0))
        for rank, nodes in found.items():
            by_rank[rank][0].communication.update(nodes)
        if alone:
            log.warning(f"{alone} transfers between two ranks have no other end among the ranks of this step.")


def _calls(side: Side) -> list[Call]:
    order, names = side.tree.order, side.tree.names
    return [
        Call(node, names[node], side.exchanges[node]) for node in sorted(side.exchanges, key=lambda one: order[one])
    ]


def _rated(
    by_rank: Mapping[int, tuple[Side, Written]], with_overflow: bool, of_candidate: bool, rank: int, node: int
) -> str:
    """The index of a node of a rank, or its overflow level, as text."""
    side, written = by_rank[rank]
    if with_overflow:
        return str(side.overflow.get(node, "Nan"))
    index = written.comparison.index[node] if written.comparison is not None and of_candidate else None
    return "Nan" if index is None else str(index)

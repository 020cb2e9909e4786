"""What of two runs a comparison has read, and what not, so that "no bad step" is said of nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msprobe.coverage import Coverage, NotRead
from msprobe.messages import joined, said
from msprobe.monitor.csv_files import QuantityTable
from msprobe.monitor.files import RunFolder, find_runs
from msprobe.monitor.sketch import FILE_NAME, Sketch, unread_bytes
from msprobe.monitor.whole_runs import WholeRun, whole_runs
from msprobe.paths import StrPath

_MOST_NAMED = 4
# A file may say any number.
_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class RunPair:
    """Runs that answer to each other: of the same rank and monitor. ``name``: empty if the rank has only one."""

    rank: int
    name: str
    first: WholeRun
    second: WholeRun


def pairs_of(first: StrPath, second: StrPath) -> tuple[list[RunPair], list[str]]:
    """The pairs in two folders, and what of them is in no pair. Raises PathError."""
    sides = [_by_place(find_runs(path)) for path in (first, second)]
    ranks = [{rank for rank, _, _ in side} for side in sides]
    if not ranks[0] & ranks[1] and len(ranks[0]) == len(ranks[1]) == 1:
        (rank,) = ranks[1]
        sides[0] = {(rank, monitor, place): run for (_, monitor, place), run in sides[0].items()}
    pairs = []
    for place in sorted(sides[0].keys() & sides[1].keys()):
        several = sum(other[0] == place[0] for side in sides for other in side) > 2
        ours, theirs = sides[0][place], sides[1][place]
        pairs.append(RunPair(place[0], str(theirs) if several else "", ours, theirs))
    alone = [
        said(name, place[0], run)
        for name, side, other in (
            ("rank-in-first-alone", sides[0], sides[1]),
            ("rank-in-second-alone", sides[1], sides[0]),
        )
        for place, run in sorted(side.items())
        if place not in other
    ]
    return pairs, [*alone, *_in_neither_folder(first, second)]


def _in_neither_folder(first: StrPath, second: StrPath) -> Iterator[str]:
    """Ranks that the programs had, that were to be measured, and that neither folder has."""
    for path in (first, second):
        runs = find_runs(path)
        if len(runs) == 1 and Path(path).resolve() == Path(runs[0].path).resolve():
            return  # whoever gives the folder of one run means that
    lacking = ranks_lacking([*find_runs(first), *find_runs(second)])
    if lacking:
        yield said("ranks-in-neither-folder", _ranks_in_words(lacking))


def ranks_lacking(runs: Sequence[RunFolder]) -> list[int]:
    """Ranks that the programs of these runs had, that were to be measured, and of which none is."""
    there = {run.rank for run in runs}
    asked: set[int] = set()
    for run in runs:
        world, config = run.about.get("world"), run.about.get("config")
        chosen = config.get("module_ranks") if isinstance(config, dict) else None
        if isinstance(world, int) and max(there) < world <= _MOST_RANKS:
            asked |= (
                {rank for rank in chosen if type(rank) is int}
                if isinstance(chosen, list) and chosen
                else set(range(world))
            )
    return sorted(asked - there)


def _ranks_in_words(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return said("one-rank-named", ranks[0])
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    if len(ranks) > _MOST_NAMED:
        return said("ranks-named-and-more", named, len(ranks) - _MOST_NAMED)
    return said("ranks-named", named)


def coverage_of_tables(
    folder: StrPath, runs: Sequence[RunFolder], tables: Sequence[tuple[int, QuantityTable]]
) -> Coverage:
    """What a conversion of all ``runs`` in a folder has read, by rank and table: and what it has not, as ranks that the
    program had, damaged lines, quantities and steps of other ranks.
    """
    missing = []
    if not (len(runs) == 1 and Path(folder).resolve() == Path(runs[0].path).resolve()):
        lacking = ranks_lacking(runs)
        if lacking:
            missing.append(NotRead(_ranks_in_words(lacking), said("rank-lacks")))
    steps_by_quantity: dict[str, dict[int, set[int]]] = {}
    for rank, table in tables:
        steps_by_quantity.setdefault(table.quantity, {})[rank] = set(np.unique(table.steps).tolist())
        if table.damaged:
            missing.append(NotRead(said("rank-lines-of", rank, table.damaged, table.quantity), said("is-damaged")))
    everyone = {run.rank for run in runs}
    for quantity, steps in steps_by_quantity.items():
        every = set().union(*steps.values())
        for rank in sorted(everyone):
            if rank not in steps:
                missing.append(NotRead(said("rank-quantity", rank, quantity), said("other-ranks-have-it")))
            elif every - steps[rank]:
                gone = sorted(every - steps[rank])
                what = said("rank-steps-of", rank, _spans(gone), quantity)
                missing.append(NotRead(what, said("other-ranks-have-them")))
    rows = sum(len(table) for _, table in tables)
    return Coverage({"ranks": len(everyone), "tables": len(tables), "rows": rows}, tuple(missing))


def missing_parts(
    pair: RunPair, sketches: Sequence[Sequence[Sketch]], tables: Sequence[Mapping[str, QuantityTable]]
) -> Iterable[str]:
    """What one of a pair lacks that the other has, or that cannot be read. ``tables``: none where sketches were."""
    ours, theirs = ({group.quantity for sketch in side for group in sketch.groups} for side in sketches)
    for name, here, there in (
        ("quantities-of-first-alone", ours, theirs),
        ("quantities-of-second-alone", theirs, ours),
    ):
        alone = sorted(here - there)
        if alone:
            yield said(name, pair.rank, ", ".join(alone))
    yield from _holes(pair, [sorted(sketch.step for sketch in side) for side in sketches])
    for side in tables:
        for quantity, table in side.items():
            if table.damaged:
                yield said("rank-damaged-lines", pair.rank, table.damaged, quantity)
    if not any(tables):
        for run in (pair.first, pair.second):
            for folder in run.folders:
                path = Path(folder.path, FILE_NAME)
                unread = unread_bytes(path) if os.path.isfile(path) else 0
                if unread:
                    yield said("rank-damaged-bytes", pair.rank, unread, path)


def _by_place(folders: list[RunFolder]) -> dict[tuple[int, int, int], WholeRun]:
    """Rank, monitor and which of its runs -> the run."""
    runs_by_place: dict[tuple[int, int, int], WholeRun] = {}
    for run in whole_runs(folders):
        place = next(at for at in range(len(folders)) if (run.rank, run.monitor, at) not in runs_by_place)
        runs_by_place[run.rank, run.monitor, place] = run
    return runs_by_place


def _holes(pair: RunPair, steps: Sequence[list[int]]) -> Iterable[str]:
    """Steps between the first and the last that both have, which one of them lacks without having been asked to."""
    if not all(steps):
        return
    begin, end = max(side[0] for side in steps), min(side[-1] for side in steps)
    both = set(steps[0]) & set(steps[1])
    grids = [_interval(pair.first), _interval(pair.second)]
    for name, here, grid in (("first-lacks-steps", steps[1], grids[0]), ("second-lacks-steps", steps[0], grids[1])):
        lacking = [step for step in here if begin <= step <= end and step not in both]
        if grid is not None:
            start, every = grid
            lacking = [step for step in lacking if (step - start) % every == 0]
        if lacking:
            yield said(name, pair.rank, len(lacking), _spans(lacking))


def run_interval(folder: RunFolder) -> int:
    """Every how many steps one is measured, as the configuration of the run says; 1 if it does not."""
    grid = _interval_of(folder)
    return 1 if grid is None else grid[1]


def _interval(run: WholeRun) -> tuple[int, int] | None:
    return _interval_of(run.folders[0])


def _interval_of(folder: RunFolder) -> tuple[int, int] | None:
    """The first step and the interval that the configuration asks for."""
    config = folder.about.get("config")
    if not isinstance(config, Mapping):
        return None
    interval = [config.get("start_step", 0), config.get("step_interval", 1)]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in interval) or interval[1] < 1:
        return None
    return interval[0], interval[1]


def _spans(steps: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for step in steps:
        if spans and spans[-1][1] == step - 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    shown = [str(a) if a == b else said("numbers-from-to", a, b) for a, b in spans[:_MOST_NAMED]]
    return joined(", ", shown) + (", ..." if len(spans) > _MOST_NAMED else "")

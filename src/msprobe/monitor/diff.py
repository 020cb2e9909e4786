"""Two monitored runs, rank by rank: the first step at which the second is not the first with other rounding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from msprobe.errors import InvalidInputError
from msprobe.monitor.csv_files import Table
from msprobe.monitor.csv_text import SCALARS
from msprobe.monitor.files import RunFolder, by_rank, files_of, find_runs
from msprobe.monitor.locate import HALF, FirstBadStep, first_bad_step
from msprobe.monitor.measurements import Quantity, Row, StepMetrics
from msprobe.monitor.series import tables_of
from msprobe.monitor.sketch import FILE_NAME, Sketch, Sketcher, read_sketches
from msprobe.monitor.trend_reading import dtypes_of
from msprobe.paths import StrPath

_BYTES_OF_TYPES = 100_000


@dataclass(frozen=True, slots=True)
class Difference:
    """``found``: the first bad step of the earliest rank, ``rank``; None if no rank has one. ``ranks``, ``steps``: how
    many were compared; ``first``: the first of the steps. ``by_sketches``: False where csv files were read.
    """

    found: FirstBadStep | None
    rank: int
    ranks: int
    steps: int
    first: int
    by_sketches: bool
    #: The last step of each, where they are not the same; () else.
    ends: tuple[int, ...] = ()


def diff(first: StrPath, second: StrPath) -> Difference:
    """Compare the ranks that both have. Sketches are read where both runs have them, else the csv files.

    Each folder: the output folder of the monitor, or that of one run. Raises PathError and InvalidInputError.
    """
    runs = [_ranks(path) for path in (first, second)]
    pairs: list[tuple[int, list[RunFolder], list[RunFolder]]]
    ranks = sorted(runs[0].keys() & runs[1].keys())
    if not ranks and all(len(known) == 1 for known in runs):
        rank = next(iter(runs[1]))
        pairs = [(rank, next(iter(runs[0].values())), runs[1][rank])]
    else:
        pairs = [(rank, runs[0][rank], runs[1][rank]) for rank in ranks]
    if not pairs:
        raise InvalidInputError(
            f'"{first}" has the ranks {sorted(runs[0])} and "{second}" {sorted(runs[1])}: there is none to compare.'
        )
    steps: set[int] = set()
    lasts: set[tuple[int, int]] = set()
    results: list[tuple[int, FirstBadStep]] = []
    sketched = True
    for rank, ours, theirs in pairs:
        both = [_sketches(ours), _sketches(theirs)]
        steps_of_numbers: dict[str, float] = {}
        if not all(both):
            sketched = False
            tables = [tables_of(ours), tables_of(theirs)]
            ops = _common_ops(tables)
            both = [_from_csv(one, ops) for one in tables]
            steps_of_numbers = _steps_of_numbers(tables)
        steps |= {one.step for one in both[0]} & {one.step for one in both[1]}
        found = first_bad_step(both[0], both[1], steps_of_numbers, _half_rounding(ours))
        lasts |= {(max(one.step for one in both[0]), max(one.step for one in both[1]))} if all(both) else set()
        if found is not None:
            results.append((rank, found))
    if not steps:
        raise InvalidInputError(f'"{first}" and "{second}" have no step in common.')
    if not results:
        return Difference(None, pairs[0][0], len(pairs), len(steps), min(steps), sketched, _ends(lasts))
    rank, earliest = min(results, key=lambda one: one[1].step)
    return Difference(earliest, rank, len(pairs), len(steps), min(steps), sketched, _ends(lasts))


def _ends(lasts: set[tuple[int, int]]) -> tuple[int, ...]:
    return next((one for one in sorted(lasts) if one[0] != one[1]), ())


def _half_rounding(runs: Sequence[RunFolder]) -> float:
    """By how much numbers may differ for their type alone: a half type among those of the newest run's csv files, of
    which the first lines are read, or of its database.
    """
    found = 0.0
    for path in files_of(runs[-1].path):
        with open(path, encoding="utf-8", errors="replace") as file:
            start = file.read(_BYTES_OF_TYPES)
        found = max([found, *(rounding for name, rounding in HALF.items() if f"torch.{name}" in start)])
    types = dtypes_of(runs[-1])
    return max([found, *(rounding for name, rounding in HALF.items() if f"torch.{name}" in types)])


def _ranks(path: StrPath) -> dict[int, list[RunFolder]]:
    runs = find_runs(path)
    if not runs:
        raise InvalidInputError(
            f'"{path}" has no folders of runs, as Dec03_21-34-40-rank0-0123abcd; give one with them.'
        )
    return by_rank(runs)


def _sketches(runs: Sequence[RunFolder]) -> list[Sketch]:
    """Of all runs of a rank, the newest counting; empty if one of them has none."""
    found: dict[int, Sketch] = {}
    for run in runs:
        path = Path(run.path, FILE_NAME)
        if not os.path.isfile(path):
            return []
        found.update({sketch.step: sketch for sketch in read_sketches(path)})
    return [found[step] for step in sorted(found)]


def _common_ops(tables: Sequence[dict[str, Table]]) -> dict[str, tuple[str, ...]]:
    """By quantity, the operators that all have: others say nothing of a difference."""
    return {
        name: tuple(op for op in table.ops if all(op in other[name].ops for other in tables[1:]))
        for name, table in tables[0].items()
        if all(name in other for other in tables[1:])
    }


def _from_csv(tables: dict[str, Table], ops: dict[str, tuple[str, ...]]) -> list[Sketch]:
    """Sketches made of csv files, of these operators."""
    scalars: dict[int, dict[str, float]] = {}
    rows: dict[int, dict[Quantity, list[Row]]] = {}
    for name, table in tables.items():
        for at, step in enumerate(table.steps.tolist()):
            if name == SCALARS:
                scalars.setdefault(step, {})[table.names[at]] = float(table.values[at, 0])
            elif name in ops:
                rows.setdefault(step, {}).setdefault(cast(Quantity, name), []).append(_row(table, at, ops))
    columns = {cast(Quantity, name): one for name, one in ops.items()}
    sketcher = Sketcher()
    return [
        sketcher.sketch(StepMetrics(step, (), rows.get(step, {}), columns, scalars.get(step, {})))
        for step in sorted(rows.keys() | scalars.keys())
    ]


def _steps_of_numbers(tables: Sequence[dict[str, Table]]) -> dict[str, float]:
    """The least step between two numbers of a quantity, where all of them are rounded to a few decimals."""
    found: dict[str, float] = {}
    for one in tables:
        for name, table in one.items():
            finite = table.values[np.isfinite(table.values)]
            for decimals in range(1, 9):
                if (np.round(finite, decimals) == finite).all():
                    found[name] = max(found.get(name, 0.0), 10.0**-decimals)
                    break
    return found


def _row(table: Table, at: int, ops: dict[str, tuple[str, ...]]) -> Row:
    columns = [table.ops.index(op) for op in ops[table.quantity]]
    values = tuple(None if np.isnan(x) else float(x) for x in table.values[at, columns])
    present = table.dtypes[at] != "nan"
    micro = int(table.micro_steps[at]) if table.has_micro_steps else None
    # A NaN of a tensor, not one that stands for no answer.
    kept = tuple(float("nan") if x is None and present else x for x in values)
    return Row(
        table.stages[at], table.names[at], micro, kept, () if present else None, table.dtypes[at] if present else None
    )

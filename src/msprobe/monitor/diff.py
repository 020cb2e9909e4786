"""Two monitored runs, rank by rank: the first step at which the second is not the first with other rounding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from msprobe.coverage import Coverage, NotRead
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.monitor.coverage import RunPair, missing_parts, pairs_of, run_interval
from msprobe.monitor.csv_files import QuantityTable, selected
from msprobe.monitor.csv_text import SCALARS
from msprobe.monitor.files import RunFolder, files_of, find_runs
from msprobe.monitor.locate import HALF, FirstBadStep, first_bad_step
from msprobe.monitor.measurements import Quantity, Row, StepMetrics
from msprobe.monitor.series import tables_of
from msprobe.monitor.sketch import FILE_NAME, Sketch, Sketcher, read_sketches
from msprobe.monitor.trend_reading import dtypes_of
from msprobe.monitor.whole_runs import recorded_steps
from msprobe.paths import StrPath

_BYTES_OF_TYPES = 100_000
#: What an update of weights shows in at its own step.
_OF_UPDATES: frozenset[str] = frozenset({"update", "param_updated"})
# A killed run may have so many steps in its csv files that are not in its sketches yet.
_BEHIND = 2


@dataclass(frozen=True, slots=True)
class RunDifference:
    """``first_bad``: the first bad step of the earliest rank, ``rank``; None if no rank has one in what was compared.
    ``ranks``, ``steps``: how many were compared; ``first``: the first of the steps. ``by_sketches``: False where csv
    files were read.
    """

    first_bad: FirstBadStep | None
    rank: int
    ranks: int
    steps: int
    first: int
    by_sketches: bool
    #: The last step of each, where they are not the same; () else.
    ends: tuple[int, ...] = ()
    #: The run of the rank that ``first_bad`` is of, where the rank has several.
    run: str = ""
    #: The step whose update may have done what ``first_bad`` shows, as weights and updates were not measured in both.
    update_in_doubt: int | None = None
    #: What was not compared, and why.
    unread: tuple[str, ...] = ()

    @property
    def coverage(self) -> Coverage:
        """What was compared, and what not."""
        parts = (text.partition(": ") for text in self.unread)
        return Coverage({"ranks": self.ranks, "steps": self.steps}, tuple(NotRead(what, why) for what, _, why in parts))


def diff(first: StrPath, second: StrPath) -> RunDifference:
    """Compare the runs that both have: of the same rank, and of the same monitor where a rank has several. Sketches are
    read where both runs have them, else the csv files.

    Each folder: the output folder of the monitor, or that of one run. Raises PathError and InvalidInputError.
    """
    for path in (first, second):
        if not find_runs(path):
            raise InvalidInputError(said("no-monitor-runs", path))
    pairs, unread = pairs_of(first, second)
    if not pairs:
        sides = [sorted({run.rank for run in find_runs(path)}) for path in (first, second)]
        raise InvalidInputError(said("monitor-runs-without-common-rank", first, sides[0], second, sides[1]))
    steps: set[int] = set()
    lasts: set[tuple[int, int]] = set()
    results: list[tuple[RunPair, FirstBadStep, int | None]] = []
    sketched = True
    for pair in pairs:
        ours, theirs = list(pair.first.folders), list(pair.second.folders)
        both = [_sketches(ours), _sketches(theirs)]
        steps_of_numbers: dict[str, float] = {}
        tables: list[dict[str, QuantityTable]] = []
        if not all(both):
            sketched = False
            tables = [tables_of(ours), tables_of(theirs)]
            ops = _common_ops(tables)
            damaged = tables
            tables = _without_damaged_steps(tables)
            every = [{name: table.ops for name, table in tables_of_side.items()} for tables_of_side in tables]
            unread += missing_parts(
                pair, [_from_csv(*tables_of_side) for tables_of_side in zip(tables, every, strict=True)], damaged
            )
            both = [_from_csv(tables_of_side, ops) for tables_of_side in tables]
            steps_of_numbers = _steps_of_numbers(tables)
        else:
            unread += missing_parts(pair, both, tables)
        common = {sketch.step for sketch in both[0]} & {sketch.step for sketch in both[1]}
        if not common:
            unread.append(said("rank-without-common-step", pair.rank, pair.second))
        steps |= common
        bad_step = first_bad_step(both[0], both[1], steps_of_numbers, _half_rounding(ours))
        lasts |= (
            {(max(sketch.step for sketch in both[0]), max(sketch.step for sketch in both[1]))} if all(both) else set()
        )
        if bad_step is not None:
            results.append((pair, bad_step, _update_in_doubt(both, bad_step)))
    if not steps:
        raise InvalidInputError(said("monitor-runs-without-common-step", first, second))
    ranks = len({pair.rank for pair in pairs})
    ends = _ends(lasts)
    if not results:
        return RunDifference(None, pairs[0].rank, ranks, len(steps), min(steps), sketched, ends, unread=tuple(unread))
    pair, earliest, update = min(results, key=lambda result: result[1].step)
    return RunDifference(
        earliest, pair.rank, ranks, len(steps), min(steps), sketched, ends, pair.name, update, tuple(unread)
    )


def _update_in_doubt(both: Sequence[Sequence[Sketch]], bad_step: FirstBadStep) -> int | None:
    """The step before a bad one, if an update of weights would not have shown in it: none are measured on one side."""
    before = [sketch.step for sketch in both[0] if sketch.step < bad_step.step]
    measured = [{group.quantity for sketch in side for group in sketch.groups} for side in both]
    is_seen = all(quantities & _OF_UPDATES for quantities in measured)
    return max(before) if before and not is_seen and not bad_step.certain else None


def _ends(lasts: set[tuple[int, int]]) -> tuple[int, ...]:
    return next((last for last in sorted(lasts) if last[0] != last[1]), ())


def _half_rounding(runs: Sequence[RunFolder]) -> float:
    """By how much numbers may differ for their type alone: a half type among those of the newest run's csv files, of
    which the first lines are read, or of its database.
    """
    rounding_found = 0.0
    for path in files_of(runs[-1].path):
        with open(path, encoding="utf-8", errors="replace") as file:
            start = file.read(_BYTES_OF_TYPES)
        rounding_found = max(
            [rounding_found, *(rounding for name, rounding in HALF.items() if f"torch.{name}" in start)]
        )
    types = dtypes_of(runs[-1])
    return max([rounding_found, *(rounding for name, rounding in HALF.items() if f"torch.{name}" in types)])


def _sketches(runs: Sequence[RunFolder]) -> list[Sketch]:
    """Of all folders of a run, the newest counting; empty if one of them has none, or one that ends before its csv
    files do.
    """
    by_step: dict[int, Sketch] = {}
    for run in runs:
        path = Path(run.path, FILE_NAME)
        if not os.path.isfile(path):
            return []
        sketches_of_run = {sketch.step: sketch for sketch in read_sketches(path)}
        others = recorded_steps(run)
        # A step is written to the csv files first.
        if sketches_of_run and others is not None and max(sketches_of_run) < others[1] - _BEHIND * run_interval(run):
            return []
        by_step.update(sketches_of_run)
    return [by_step[step] for step in sorted(by_step)]


def _common_ops(tables: Sequence[dict[str, QuantityTable]]) -> dict[str, tuple[str, ...]]:
    """By quantity, the operators that all have: others say nothing of a difference."""
    return {
        name: tuple(op for op in table.ops if all(op in other[name].ops for other in tables[1:]))
        for name, table in tables[0].items()
        if all(name in other for other in tables[1:])
    }


def _from_csv(tables: dict[str, QuantityTable], ops: dict[str, tuple[str, ...]]) -> list[Sketch]:
    """Sketches made of csv files, of these operators."""
    scalars: dict[int, dict[str, float]] = {}
    rows: dict[int, dict[Quantity, list[Row]]] = {}
    for name, table in tables.items():
        for at, step in enumerate(table.steps.tolist()):
            if name == SCALARS:
                scalars.setdefault(step, {})[table.names[at]] = float(table.values[at, 0])
            elif name in ops:
                rows.setdefault(step, {}).setdefault(cast(Quantity, name), []).append(_row(table, at, ops))
    columns = {cast(Quantity, name): operators for name, operators in ops.items()}
    sketcher = Sketcher()
    return [
        sketcher.sketch(StepMetrics(step, (), rows.get(step, {}), columns, scalars.get(step, {})))
        for step in sorted(rows.keys() | scalars.keys())
    ]


def _without_damaged_steps(tables: Sequence[dict[str, QuantityTable]]) -> list[dict[str, QuantityTable]]:
    """The tables without the steps in which a quantity has lost rows to damaged lines, on either side."""
    sides = [dict(tables_of_side) for tables_of_side in tables]
    for quantity in {name for tables_of_side in tables for name, table in tables_of_side.items() if table.damaged}:
        short: set[int] = set()
        for tables_of_side in tables:
            if quantity in tables_of_side:
                steps, counts = np.unique(tables_of_side[quantity].steps, return_counts=True)
                short |= set(steps[counts < counts.max()].tolist())
        every: list[set[int]] = [
            set(tables_of_side[quantity].steps.tolist()) for tables_of_side in tables if quantity in tables_of_side
        ]
        short |= set().union(*every) - every[0].intersection(*every)
        for side in sides:
            if quantity in side:
                table = side[quantity]
                side[quantity] = selected(table, np.flatnonzero(~np.isin(table.steps, list(short))).tolist())
    return sides


def _steps_of_numbers(tables: Sequence[dict[str, QuantityTable]]) -> dict[str, float]:
    """The least step between two numbers of a quantity, where all of them are rounded to a few decimals."""
    least_steps: dict[str, float] = {}
    for tables_of_side in tables:
        for name, table in tables_of_side.items():
            finite = table.values[np.isfinite(table.values)]
            for decimals in range(1, 9):
                if (np.round(finite, decimals) == finite).all():
                    least_steps[name] = max(least_steps.get(name, 0.0), 10.0**-decimals)
                    break
    return least_steps


def _row(table: QuantityTable, at: int, ops: dict[str, tuple[str, ...]]) -> Row:
    columns = [table.ops.index(op) for op in ops[table.quantity]]
    values = tuple(None if np.isnan(x) else float(x) for x in table.values[at, columns])
    present = table.dtypes[at] != "nan"
    micro = int(table.micro_steps[at]) if table.has_micro_steps else None
    # A NaN of a tensor, not one that stands for no answer.
    kept = tuple(float("nan") if x is None and present else x for x in values)
    return Row(
        table.stages[at], table.names[at], micro, kept, () if present else None, table.dtypes[at] if present else None
    )

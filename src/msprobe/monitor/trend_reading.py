"""Reading back what the sink ``sqlite`` has written, while the training may still run: tables as of csv files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.errors import PathError
from msprobe.foreign.budget import BudgetError
from msprobe.foreign.database import Database, DatabaseError, open_database
from msprobe.foreign.opening import is_regular
from msprobe.messages import said
from msprobe.monitor.csv_files import QuantityTable, merged, read_csv_tables
from msprobe.monitor.csv_files import quantities_of as csv_quantities_of
from msprobe.monitor.files import RunFolder
from msprobe.monitor.trend_database import FILE_NAME, INFINITE, TENSORS, identifier

# So many rows are read at once: a reader that holds the file for long would keep the training's writer waiting.
_ROWS_AT_ONCE = 50_000
_PLACE = ("rank", "step", "target_id", "metric_id")


def quantities_of(runs: Sequence[RunFolder]) -> list[str]:
    """The quantities that the runs have files or tables of. Raises PathError."""
    names = {name: None for run in runs for name in csv_quantities_of(run.path)}
    for run in filter(has_database, runs):
        with _open(run) as base:
            names.update((name, None) for name in _metrics(base).values())
    return list(names)


def read_quantity(runs: Sequence[RunFolder], quantity: str) -> QuantityTable | None:
    """All rows of a quantity in the runs of one rank, which are given from the oldest to the newest: of csv files and
    of databases.

    Of rows for the same tensor and step the last one counts, as a run that was resumed repeats steps. None if there
    is nothing. Raises PathError for a file that cannot be read.
    """
    tables: list[QuantityTable] = []
    for run in runs:
        tables += read_csv_tables(run, quantity)
        trend = read_trend(run, quantity)
        if trend is not None:
            tables.append(trend)
    return merged(tables) if tables else None


def has_database(run: RunFolder) -> bool:
    """True if the run was written as a database."""
    return is_regular(Path(run.path, FILE_NAME))


def dtypes_of(run: RunFolder) -> set[str]:
    """The types of the tensors in the run's database. Raises PathError."""
    if not has_database(run):
        return set()
    try:
        with open_database(Path(run.path, FILE_NAME), is_live=True) as base:
            return {str(text) for (text,) in base.rows(["DISTINCT dtype"], TENSORS) if text}
    except (sqlite3.Error, DatabaseError):  # no database, or one that other tools have made
        return set()


def extremes_of(run: RunFolder) -> tuple[int, int] | None:
    """The first and the last step in the run's database; None if it has none. Raises PathError."""
    if not has_database(run):
        return None
    with _open(run) as base:
        extremes = list(base.rows(["MIN(step)", "MAX(step)"], "trend_data"))
        return (int(extremes[0][0]), int(extremes[0][1])) if extremes and extremes[0][0] is not None else None


def read_trend(run: RunFolder, quantity: str, last_steps: int | None = None) -> QuantityTable | None:
    """The rows of a quantity in the run's database, or of its last steps; None if it has none. Raises PathError."""
    if not has_database(run):
        return None
    with _open(run) as base:
        metric = next((at for at, name in _metrics(base).items() if name == quantity), None)
        if metric is None:
            return None
        ((text, last),) = base.rows([identifier(quantity), "max_step"], "global_stats", "LIMIT 1")
        ops = tuple(filter(None, str(text or "").split(",")))
        first = 0 if last_steps is None else int(last or 0) - last_steps + 1
        rows = list(_rows(base, run.rank, metric, ops, first))
        return _table(quantity, ops, rows, _targets(base), _tensors(base, metric))


@dataclass(frozen=True, slots=True)
class _Target:
    name: str
    stage: int
    micro_step: int


@contextmanager
def _open(run: RunFolder) -> Iterator[Database]:
    """The database of a run. What is wrong with it, also while it is used, is a PathError."""
    path = Path(run.path, FILE_NAME)
    try:
        with open_database(path, is_live=True) as base:
            yield base
    except BudgetError:
        raise
    except (sqlite3.Error, DatabaseError, ValueError, TypeError, LookupError, OverflowError) as problem:
        reason = problem.message.rstrip(".") if isinstance(problem, DatabaseError) else problem
        raise PathError(said("trend-database-unreadable", path, reason)) from None


def _metrics(base: Database) -> dict[int, str]:
    return {int(at): str(name) for at, name in base.rows(["metric_id", "metric_name"], "monitoring_metrics")}


def _targets(base: Database) -> dict[int, _Target]:
    read = base.rows(["target_id", "target_name", "vpp_stage", "micro_step"], "monitoring_targets")
    return {at: _Target(str(name), int(stage), int(micro)) for at, name, stage, micro in read}


def _tensors(base: Database, metric: int) -> dict[int, tuple[str, str]]:
    """Target -> shape and type; of files of other tools nothing is known."""
    try:
        read = base.rows(["target_id", "shape", "dtype"], TENSORS, "WHERE metric_id = ?", (metric,))
        return {at: (str(shape), str(dtype)) for at, shape, dtype in read}
    except (sqlite3.Error, DatabaseError):
        return {}


def _rows(base: Database, rank: int, metric: int, ops: Sequence[str], first: int) -> Iterator[tuple[Any, ...]]:
    columns = (*_PLACE, *map(identifier, ops))
    after: tuple[int, ...] = (rank, first, -1, -1)
    while True:
        wanted = (
            "WHERE rank = ? AND (rank, step, target_id, metric_id) > (?, ?, ?, ?)"
            f" AND metric_id = ? ORDER BY rank, step, target_id, metric_id LIMIT {_ROWS_AT_ONCE}"
        )
        rows_read = list(base.rows(columns, "trend_data", wanted, (rank, *after, metric)))
        yield from rows_read
        if len(rows_read) < _ROWS_AT_ONCE:
            return
        after = tuple(rows_read[-1][:4])


def _table(
    quantity: str,
    ops: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
    targets: dict[int, _Target],
    tensors: dict[int, tuple[str, str]],
) -> QuantityTable:
    of = [targets[row[2]] for row in rows]
    # What a cell says: a tensor's NaN has no number there, and infinity one that no other has.
    values = np.array([row[4:] for row in rows], dtype=np.float64).reshape(len(rows), len(ops))
    infinite = np.abs(values) == INFINITE
    values[infinite] = np.copysign(np.inf, values[infinite])
    kinds = [tensors.get(row[2], ("", "")) for row in rows]
    return QuantityTable(
        quantity,
        ops,
        [target.stage for target in of],
        [target.name for target in of],
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([target.micro_step for target in of], dtype=np.int64),
        values,
        [shape for shape, _ in kinds],
        [dtype for _, dtype in kinds],
        any(target.micro_step for target in of),
    )

"""A database of the run beside its csv files, for the trend viewer and for SQL; one for each rank."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msprobe.monitor.csv_text import SCALARS, scalar_rows
from msprobe.monitor.measurements import MonitorRun, Row, StepMetrics
from msprobe.monitor.trend_database import FILE_NAME, TrendDatabase


class SqliteSink:
    """Writes ``monitor_data.trend.db`` into the folder of the run, a transaction for each flush.

    ``renumber``: each micro step is a step, as ``msprobe data2db`` does by default.
    """

    def __init__(self, renumber: bool = False) -> None:
        self._renumber = renumber
        self._next = 0
        # (quantity, stage, name, micro step) -> shape and type, as they are in the file.
        self._described: dict[tuple[str, int, str, int], tuple[str, str]] = {}

    def open(self, run: MonitorRun) -> None:
        """Begin the file, or go on with it. Raises PathError."""
        self._rank = run.rank
        self._database = TrendDatabase(os.path.join(run.folder, FILE_NAME), extend=True)

    def write(self, metrics: StepMetrics) -> None:
        """Add the step. Raises PathError."""
        first = self._next
        for quantity, rows in metrics.rows.items():
            if rows:
                self._add(metrics.step, first, quantity, metrics.ops_of(quantity), rows)
        if metrics.scalars:
            self._add(metrics.step, first, SCALARS, ("value",), scalar_rows(metrics))
        self._next += 1 + max((row.micro_step or 0 for rows in metrics.rows.values() for row in rows), default=0)

    def flush(self) -> None:
        """Commit. Raises PathError."""
        self._database.commit()

    def close(self) -> None:
        """Commit, and end. Raises PathError."""
        self._database.close()

    def _add(self, step: int, first: int, quantity: str, ops: Sequence[str], rows: Sequence[Row]) -> None:
        # A tensor that is not there in this step has no row, so that a row without a number is that of a NaN.
        rows = [row for row in rows if row.dtype is not None or any(value is not None for value in row.values)]
        if self._renumber:
            given = [(row.stage, row.name, first + (row.micro_step or 0), 0, row.values) for row in rows]
        else:
            given = [(row.stage, row.name, step, row.micro_step or 0, row.values) for row in rows]
        self._database.add(self._rank, quantity, ops, given)
        for row, (stage, name, _, micro, _) in zip(rows, given, strict=True):
            kind = str(list(row.shape or ())), row.dtype or ""
            if row.dtype is not None and self._described.get((quantity, stage, name, micro)) != kind:
                self._described[quantity, stage, name, micro] = kind
                self._database.describe(quantity, stage, name, micro, *kind)

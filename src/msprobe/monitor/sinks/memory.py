"""Measurements for programs: the last step in memory (``format: api``), or a function that is called with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msprobe.monitor.measurements import MonitorRun, Quantity, Row, StepMetrics
from msprobe.monitor.tags import tag_of_row

#: Called with the step and its rows by quantity, in the thread that writes.
OnMetrics = Callable[[int, Mapping[Quantity, Sequence[Row]]], None]


class MemorySink:
    """Keeps the last step."""

    is_first = True

    def __init__(self) -> None:
        self._rank = 0
        self.last: StepMetrics | None = None

    def open(self, run: MonitorRun) -> None:
        """Remember whose steps they are."""
        self._rank = run.rank

    def write(self, metrics: StepMetrics) -> None:
        """The step is the last one now."""
        self.last = metrics

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The last step stays readable."""

    def tagged(self, quantity: Quantity) -> dict[str, dict[str, Any]]:
        """The last step's tensors by tag, each with its operators, ``shape`` and ``dtype``; empty before the first."""
        metrics = self.last
        if metrics is None:
            return {}
        ops = metrics.ops_of(quantity)
        return {
            tag_of_row(row, self._rank, quantity): {
                **dict(zip(ops, row.values, strict=True)),
                "shape": row.shape,
                "dtype": row.dtype,
            }
            for row in metrics.rows.get(quantity, ())
        }


class CallbackSink:
    """Calls a function with each step. If it raises, that is reported once and it is not called again."""

    def __init__(self, on_metrics: OnMetrics) -> None:
        self._on_metrics = on_metrics

    def open(self, run: MonitorRun) -> None:
        """Nothing to do."""

    def write(self, metrics: StepMetrics) -> None:
        """Call it."""
        self._on_metrics(metrics.step, metrics.rows)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing to do."""

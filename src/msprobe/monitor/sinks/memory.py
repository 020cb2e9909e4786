"""Measurements for programs: the last step in memory (``format: api``), or a function that is called with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msprobe.monitor.measurements import MonitorRun, Quantity, Row, StepMetrics

#: Called with the step and its rows by quantity, in the thread that writes.
OnMetrics = Callable[[int, Mapping[Quantity, Sequence[Row]]], None]


class MemorySink:
    """Keeps the last step."""

    is_first = True

    def __init__(self) -> None:
        self.last: StepMetrics | None = None

    def open(self, run: MonitorRun) -> None:
        """Nothing to do."""

    def write(self, metrics: StepMetrics) -> None:
        """The step is the last one now."""
        self.last = metrics

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The last step stays readable."""


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

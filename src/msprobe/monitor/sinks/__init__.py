"""Where the measurements of a monitored training go: a small interface, and one module for each place."""

from __future__ import annotations

from typing import Protocol

from msprobe.monitor.measurements import MonitorRun, StepMetrics


class Sink(Protocol):
    """Takes the measurements of a run, step by step, in the thread that writes.

    Methods may raise: the writer reports the error once, and goes on with the other sinks and the training. A sink with
    an attribute ``is_first`` that is true has each step before all others.
    """

    def open(self, run: MonitorRun) -> None:
        """A run begins; before anything is written."""

    def write(self, metrics: StepMetrics) -> None:
        """A step has been measured; each step once, in ascending order."""

    def flush(self) -> None:
        """Make sure that what was written can be read by others now."""

    def close(self) -> None:
        """The run is over, or the monitor was stopped."""

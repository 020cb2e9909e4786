"""Live scalars for TensorBoard, under the tags of mindstudio-probe 8.1.1: ``0:fc1.input:0/rank0/actv_norm``."""

from __future__ import annotations

from msprobe.monitor.measurements import MonitorRun, StepMetrics
from msprobe.monitor.sinks.event_file import EventFile
from msprobe.monitor.tags import scalars_of


class TensorBoardSink:
    """Writes an event file into the folder of the run."""

    def open(self, run: MonitorRun) -> None:
        """Begin the file. Raises NotAvailableError without ``tensorboard``."""
        self._rank = run.rank
        self._file = EventFile(run.folder)

    def write(self, metrics: StepMetrics) -> None:
        """Add all numbers of the step that there are."""
        self._file.add(metrics.step, scalars_of(metrics, self._rank))

    def flush(self) -> None:
        """Let readers see what was written."""
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()

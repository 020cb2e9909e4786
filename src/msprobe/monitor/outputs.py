"""What becomes of the measured steps of one run and rank: its folder, its sinks, and the last step in memory."""

from __future__ import annotations

import importlib
import io
import itertools
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

from msprobe import log
from msprobe.foreign import csv_cells
from msprobe.messages import said
from msprobe.monitor import files
from msprobe.monitor.alerts.alert import Alert
from msprobe.monitor.alerts.attempts import Attempt
from msprobe.monitor.alerts.sink import AlertSink, OnAlert
from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.measurements import MonitorRun, StepMetrics
from msprobe.monitor.sinks import Sink
from msprobe.monitor.sinks.memory import CallbackSink, MemorySink, OnMetrics
from msprobe.monitor.sketch import SketchSink
from msprobe.monitor.writer import MonitorWriter
from msprobe.paths import make_folder, write_atomically

OUTPUT_DIR = "MONITOR_OUTPUT_DIR"


class Output:
    """Made with the monitor; :meth:`open` makes the folder and the writer."""

    def __init__(
        self,
        rank: int,
        world: int,
        framework: str,
        pipeline_stage: int,
        group_mates: Sequence[int],
        on_metrics: OnMetrics | None,
        on_alert: Sequence[OnAlert],
        more_sinks: Sequence[Sink] = (),
    ) -> None:
        self._rank = rank
        self._world = world
        self._framework = framework
        self._pipeline_stage = pipeline_stage
        self._group_mates = tuple(group_mates)
        self._on_metrics = on_metrics
        self._on_alert = tuple(on_alert)
        self._more_sinks = tuple(more_sinks)
        self._base = os.environ.get(OUTPUT_DIR) or "./monitor_output"
        #: Which of the monitors that this process has at once in this place this is, from 0.
        self.number = 0
        self._alerts: AlertSink | None = None
        self._writer: MonitorWriter | None = None
        #: The folder of this run and rank, and whether an earlier run has begun it.
        self.folder: str | None = None
        self.goes_on = False
        self._memory = MemorySink()
        #: True as long as no step has measured anything.
        self.is_empty = True

    def last_of(self, step: int | None) -> StepMetrics | None:
        """The step that was handed over last; waits for its numbers. ``step``: the one that the program is in, so that
        a step before it that was not measured has none.
        """
        if self._writer is not None:
            self._writer.settle()
        last = self._memory.last
        return None if last is not None and step is not None and step - last.step > 1 else last

    @property
    def judges(self) -> bool:
        """True if rules look at the steps."""
        return self._alerts is not None

    def open(self, config: MonitorConfig) -> None:
        """Begin: make what ``config`` asks for. Raises PathError if the folder cannot be made."""
        run = MonitorRun(
            base=self._base,
            rank=self._rank,
            world=self._world,
            started=time.time(),
            framework=self._framework,
            steps_per_file=config.step_count_per_record,
            digits=config.ndigits,
            config=dict(config.text),
            append_to=config.append_output,
            monitor=_take_number(self._base, self._rank, self),
        )
        self.number = run.monitor
        self._memory = MemorySink()
        sinks: list[Sink] = [self._memory, *self._more_sinks]
        if config.format != "api":
            run = files.begin(run)
            self.folder = run.folder
            self.goes_on = bool(run.append_to) and files.is_resumed(run.folder)
            sinks.append(sink_of(config.format))
        if config.sketch and run.folder:
            sinks.append(SketchSink())
        if config.alert is not None and config.alert.settings.rules:
            if config.alert.ring and run.folder:
                ring = SketchSink(last=config.alert.ring)
                sinks.insert(0, ring)
                self._on_alert = (*self._on_alert, lambda raised: _write_ring(ring, raised))
            self._alerts = AlertSink(
                config.alert.settings,
                pipeline_stage=self._pipeline_stage,
                group_mates=self._group_mates,
                on_alert=self._on_alert,
                is_recorded=config.alert.records_step,
            )
            # Before all that takes longer: an alert is on the disk when the next step begins.
            sinks.insert(1 if config.alert.ring and run.folder else 0, self._alerts)
        if self._on_metrics is not None:
            sinks.append(CallbackSink(self._on_metrics))
        self._writer = MonitorWriter(run, sinks)

    def put(self, step: Callable[[], StepMetrics | None] | None) -> None:
        """A step is over; what makes its metrics, None if it has measured nothing."""
        if step is not None and self._writer is not None:
            self.is_empty = False
            self._writer.put(step)
            if self.judges:
                self._writer.settle()

    def put_attempt(self, attempt: Attempt) -> None:
        """Something that became no step, for the rules alone."""
        if self.judges and self._writer is not None:
            self._writer.put(attempt)
            self._writer.settle()

    def describe(self, first_step: int, models: str) -> None:
        """Write to ``run.json`` what the program has given. Raises PathError."""
        if self.folder is not None:
            files.describe(self.folder, **{files.FIRST_STEP: first_step, files.MONITOR: self.number, "models": models})

    def flush(self) -> None:
        """Wait until all that was put can be read."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """The run is over."""
        writer, self._writer = self._writer, None
        _numbers.get((os.path.abspath(self._base), self._rank), {}).pop(self.number, None)
        if writer is not None:
            writer.close()

    # ---------------------------------------------------------------- files beside the measurements

    def write_stacks(self, stacks: Mapping[str, Sequence[str]]) -> None:
        """``stack_info.csv``: from where each module was first called."""
        if self.folder is None:
            return
        text = io.StringIO()
        table = csv_cells.writer(text, lineterminator="\n")
        table.writerow(("module_name", "stack_info"))
        for name, lines in stacks.items():
            table.writerow((name, "\n".join(line.rstrip() for line in lines)))
        write_atomically(os.path.join(self.folder, "stack_info.csv"), text.getvalue().encode())

    def write_structure(self, text: str) -> str:
        """``module_struct.json``: of rank 0 in the base folder, and of each rank in one of its own; the latter path."""
        folder = make_folder(os.path.join(self._base, "module_struct", f"rank{self._rank}"))
        path = os.path.join(folder, "module_struct.json")
        write_atomically(path, text.encode())
        if self._rank == 0:
            write_atomically(os.path.join(self._base, "module_struct.json"), text.encode())
        return path


# (folder, rank) -> number -> whose it is: the monitors that this process has there now.
_numbers: dict[tuple[str, int], dict[int, weakref.ref[Output]]] = {}


def _take_number(base: str, rank: int, owner: Output) -> int:
    taken = _numbers.setdefault((os.path.abspath(base), rank), {})
    free = next(number for number in itertools.count() if number not in taken or taken[number]() in (None, owner))
    taken[free] = weakref.ref(owner)
    return free


def _write_ring(ring: SketchSink, alerts: Sequence[Alert]) -> None:
    path = ring.write_ring(alerts[0].step)
    log.info(said("sketches-written", path))


def sink_of(name: str) -> Sink:
    """The sink that the field ``format`` names. Raises NotAvailableError if the package that it needs is missing."""
    module, kind = _SINKS[name]
    sink: Sink = getattr(importlib.import_module(f"msprobe.monitor.sinks.{module}"), kind)()
    return sink


# Imported when asked for: some need a package of their own.
_SINKS = {
    "csv": ("csv", "CsvSink"),
    "tensorboard": ("tensorboard", "TensorBoardSink"),
    "wandb": ("wandb", "WandbSink"),
    "sqlite": ("sqlite", "SqliteSink"),
}

"""One thread that hands measured steps to the sinks, so that the training waits neither for text nor for a disk.

What waits is bounded: where sinks are slower than the training, the training is held up, which a warning says once,
and no step is lost. A sink that fails is reported once and dropped; the others and the training go on. The thread ends
at the exit of the program, after it has written what was left; a process that is killed loses what was still waiting,
as a rule one step. In a forked child nothing is written: the run is the parent's.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.monitor.alerts.attempts import Attempt
from msprobe.monitor.measurements import MonitorRun, StepMetrics
from msprobe.monitor.sinks import Sink
from msprobe.store.background import Background

#: A step, or what makes one when the thread is ready for it (a copy from the device that is still under way); None of
#: it: nothing was measured.
Measured = StepMetrics | Callable[[], StepMetrics | None] | Attempt

_FLUSH_SECONDS = 5.0
_MOST_STEPS = 64
_MOST_ROWS = 100_000
# What a row takes with its numbers and its place in a list: an estimate, for the report.
_BYTES_OF_ROW = 400
# A sink on a file system that does not answer must not keep a program from ending.
_SECONDS_AT_EXIT = 60.0


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that waits, and how many rows it has."""

    measured: Measured
    rows: int


@dataclass(frozen=True, slots=True)
class _Flush:
    """Sinks are to make visible what they hold. ``done``: they have."""

    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Load:
    """How the writer keeps up. ``waiting``: steps in the queue; ``most_waiting``, ``most_bytes``: the most so far, in
    steps and in bytes (estimated). ``held_up``: seconds that the training has waited. ``written``: steps given to
    sinks. ``dropped_sinks``: those that failed.
    """

    waiting: int
    most_waiting: int
    most_bytes: int
    held_up: float
    written: int
    dropped_sinks: int


class MonitorWriter:
    """Hands steps to sinks in a thread of its own; used by the thread that trains.

    ``most_steps``, ``most_rows``: what may wait at once. ``flush_seconds``: how often sinks are asked to make visible
    what they hold.
    """

    def __init__(
        self,
        run: MonitorRun,
        sinks: Sequence[Sink],
        *,
        flush_seconds: float = _FLUSH_SECONDS,
        most_steps: int = _MOST_STEPS,
        most_rows: int = _MOST_ROWS,
    ) -> None:
        self._run = run
        self._sinks = list(sinks)
        self._flush_seconds = flush_seconds
        # In rows: no more steps wait than may, however few rows they have.
        self._least_of_step = max(most_rows // most_steps, 1)
        self._background: Background[_Step | _Flush] = Background(
            "msprobe-monitor", self._work, most_rows, (flush_seconds, _Flush())
        )
        self._closed = False
        self._changed = threading.Condition()
        # Steps that were put, those that the first sinks have had, and those that all have had.
        self._put = self._settled = self._done = 0
        self._rows = 0
        self._most_waiting = self._most_rows = 0
        self._held_up = 0.0
        self._written = 0
        self._dropped = 0
        atexit.register(self._at_exit)

    @property
    def load(self) -> Load:
        """How the writer keeps up."""
        return Load(
            max(self._put - self._done, 0),
            self._most_waiting,
            self._most_rows * _BYTES_OF_ROW,
            self._held_up,
            self._written,
            self._dropped,
        )

    def put(self, measured: Measured, rows: int | None = None) -> None:
        """Hand over a step; waits while too much is waiting already. Never raises for a sink.

        ``rows``: how many rows the step will have, where it is still to be made.
        """
        if self._closed or not self._sinks or self._background.is_closed:
            return
        if rows is None:
            rows = sum(map(len, measured.rows.values())) if isinstance(measured, StepMetrics) else 0
        step, size = _Step(measured, rows), max(rows, self._least_of_step)
        if not self._background.put(step, size, 0.0):
            log.once(("monitor", "queue full", id(self)), "warning", said("monitor-files-slow", self.load.waiting))
            began = time.monotonic()
            if not self._background.put(step, size):
                return
            self._held_up += time.monotonic() - began
        with self._changed:
            self._put += 1
            self._rows += rows
            self._most_waiting = max(self._most_waiting, self._put - self._done)
            self._most_rows = max(self._most_rows, self._rows)

    def settle(self, seconds: float = _SECONDS_AT_EXIT) -> bool:
        """Wait until the sinks that come first (:data:`Sink.is_first`) have had all that was put; False if that took
        longer.
        """
        if self._background.is_this_thread():
            return False
        with self._changed:
            wanted = self._put
            return self._wait_for(lambda: self._settled >= wanted, seconds)

    def flush(self, seconds: float = _SECONDS_AT_EXIT) -> bool:
        """Wait until all that was put is written and can be read by others; False if that took longer."""
        flush = _Flush()
        if self._closed or not self._put or not self._background.put(flush, 0, seconds):
            return True
        with self._changed:
            return self._wait_for(flush.done.is_set, seconds)

    def close(self, seconds: float = _SECONDS_AT_EXIT) -> None:
        """Write what is left, close the sinks and end the thread; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        if self._sinks:
            self._background.put(_Flush(), 0, 0.0)  # files of a run without a step are made and ended all the same
        if not self._background.close(seconds):
            log.error(said("monitor-files-not-ended", seconds, self.load.waiting))

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _wait_for(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait for the thread, as long as it takes steps; False if that took longer. Inside of ``_changed``."""
        until = time.monotonic() + seconds
        while not (is_so() or self._background.is_closed):
            left = until - time.monotonic()
            if left <= 0.0:
                return False
            self._changed.wait(min(1.0, left))
        return True

    # ---------------------------------------------------------------- in the thread

    def _work(self, items: Iterator[_Step | _Flush]) -> None:
        for sink in list(self._sinks):
            self._ask(sink, lambda sink=sink: sink.open(self._run))  # type: ignore[misc]
        flushed = time.monotonic()
        for item in items:
            if isinstance(item, _Step):
                self._write(item.measured)
                with self._changed:
                    # Only now: what is being written is in memory, too.
                    self._done += 1
                    self._rows -= item.rows
            if isinstance(item, _Flush) or time.monotonic() >= flushed + self._flush_seconds:
                self._flush_sinks()
                flushed = time.monotonic()
            if isinstance(item, _Flush):
                with self._changed:
                    item.done.set()
                    self._changed.notify_all()
            del item
        self._flush_sinks()
        for sink in list(self._sinks):
            self._ask(sink, sink.close)

    def _flush_sinks(self) -> None:
        for sink in list(self._sinks):
            self._ask(sink, sink.flush)

    def _write(self, measured: Measured) -> None:
        first = [sink for sink in self._sinks if getattr(sink, "is_first", False)]
        rest = [sink for sink in self._sinks if sink not in first]
        try:
            if isinstance(measured, Attempt):
                metrics = measured.make()
                judges = [sink for sink in first if hasattr(sink, "attempt")]
                for sink in judges:
                    self._ask(sink, lambda sink=sink: sink.attempt(measured, metrics))  # type: ignore[misc]
                rest = []
            else:
                metrics = measured if isinstance(measured, StepMetrics) else measured()
                for sink in first if metrics is not None else ():
                    self._ask(sink, lambda sink=sink: sink.write(metrics))  # type: ignore[misc]
        except Exception as problem:
            log.once(("monitor", "measured"), "error", said("monitored-step-unreadable", _reason(problem)))
            metrics = None
        with self._changed:
            self._settled += 1
            self._changed.notify_all()
        if metrics is None or isinstance(measured, Attempt):
            return
        for sink in rest:
            self._ask(sink, lambda sink=sink: sink.write(metrics))  # type: ignore[misc]
        self._written += 1

    def _ask(self, sink: Sink, what: Callable[[], None]) -> None:
        """Let a sink do something; one that fails is reported and dropped."""
        try:
            what()
        except Exception as problem:
            self._dropped += 1
            self._sinks = [other for other in self._sinks if other is not sink]
            log.error(
                said("sink-given-up", type(sink).__name__, _reason(problem), "" if self._sinks else ", unmonitored")
            )
            with contextlib.suppress(Exception):
                sink.close()


def _reason(problem: Exception) -> str:
    text = problem.message if isinstance(problem, MsprobeError) else f"{type(problem).__name__}: {problem}"
    return text if text.endswith(".") else f"{text}."

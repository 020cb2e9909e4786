"""One thread that hands measured steps to the sinks, so that the training waits neither for text nor for a disk.

What waits is bounded: where sinks are slower than the training, the training is held up, which a warning says once,
and no step is lost. A sink that fails is reported once and dropped; the others and the training go on. The thread ends
at the exit of the program, after it has written what was left; a process that is killed loses what was still waiting,
as a rule one step. In a forked child nothing is written: the run is the parent's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.monitor.alerts.attempts import Attempt
from msprobe.monitor.measurements import Run, StepMetrics
from msprobe.monitor.sinks import Sink

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


class Writer:
    """Hands steps to sinks in a thread of its own; used by the thread that trains.

    ``most_steps``, ``most_rows``: what may wait at once. ``flush_seconds``: how often sinks are asked to make visible
    what they hold.
    """

    def __init__(
        self,
        run: Run,
        sinks: Sequence[Sink],
        *,
        flush_seconds: float = _FLUSH_SECONDS,
        most_steps: int = _MOST_STEPS,
        most_rows: int = _MOST_ROWS,
    ) -> None:
        self._run = run
        self._sinks = list(sinks)
        self._flush_seconds = flush_seconds
        self._most_steps = most_steps
        self._most_rows = most_rows
        self._queue: deque[tuple[Measured, int]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._closed = False
        self._rows = 0
        self._flush_wanted = 0
        self._flushes = 0
        # Steps that were put, and those that the first sinks have had.
        self._put = 0
        self._settled = 0
        self._most_waiting = 0
        self._most_rows_waiting = 0
        self._held_up = 0.0
        self._written = 0
        self._dropped = 0
        _live.add(self)
        atexit.register(self._at_exit)

    @property
    def load(self) -> Load:
        """How the writer keeps up."""
        return Load(
            len(self._queue),
            self._most_waiting,
            self._most_rows_waiting * _BYTES_OF_ROW,
            self._held_up,
            self._written,
            self._dropped,
        )

    def put(self, measured: Measured, rows: int | None = None) -> None:
        """Hand over a step; waits while too much is waiting already. Never raises for a sink.

        ``rows``: how many rows the step will have, where it is still to be made.
        """
        if self._closed or not self._sinks:
            return
        if rows is None:
            rows = sum(map(len, measured.rows.values())) if isinstance(measured, StepMetrics) else 0
        with self._changed:
            if self._thread is None:
                self._begin()
            if self._is_full(rows):
                self._wait_for_room(rows)
            self._queue.append((measured, rows))
            self._put += 1
            self._rows += rows
            self._most_waiting = max(self._most_waiting, len(self._queue))
            self._most_rows_waiting = max(self._most_rows_waiting, self._rows)
            self._changed.notify_all()

    def settle(self, seconds: float = _SECONDS_AT_EXIT) -> bool:
        """Wait until the sinks that come first (:data:`Sink.is_first`) have had all that was put; False if that took
        longer.
        """
        until = time.monotonic() + seconds
        with self._changed:
            wanted = self._put
            while self._settled < wanted and self._thread is not None and self._thread.is_alive():
                if self._thread is threading.current_thread():
                    return False
                if not self._changed.wait(max(0.0, min(1.0, until - time.monotonic()))) and time.monotonic() >= until:
                    return False
        return True

    def flush(self, seconds: float = _SECONDS_AT_EXIT) -> bool:
        """Wait until all that was put is written and can be read by others; False if that took longer."""
        if self._closed or self._thread is None:
            return True
        until = time.monotonic() + seconds
        with self._changed:
            self._flush_wanted += 1
            wanted = self._flush_wanted
            self._changed.notify_all()
            while self._flushes < wanted and self._thread is not None and self._thread.is_alive():
                if not self._changed.wait(max(0.0, min(1.0, until - time.monotonic()))) and time.monotonic() >= until:
                    return False
        return True

    def close(self, seconds: float = _SECONDS_AT_EXIT) -> None:
        """Write what is left, close the sinks and end the thread; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        with self._changed:
            if self._thread is None and self._sinks:
                self._begin()  # files of a run without a step are made and ended all the same
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
            if thread.is_alive():
                log.error(said("monitor-files-not-ended", seconds, len(self._queue)))

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: the thread, the sinks and what waits are the parent's."""
        self._closed = True
        self._changed = threading.Condition()
        self._queue = deque()
        self._sinks = []
        self._thread = None
        atexit.unregister(self._at_exit)

    # ---------------------------------------------------------------- what the training waits for

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._work, name="msprobe-monitor", daemon=True)
        self._thread.start()

    def _is_full(self, rows: int) -> bool:
        waiting = len(self._queue)
        return waiting >= self._most_steps or (waiting > 0 and self._rows + rows > self._most_rows)

    def _wait_for_room(self, rows: int) -> None:
        log.once(
            ("monitor", "queue full", id(self)),
            "warning",
            said("monitor-files-slow", len(self._queue)),
        )
        began = time.monotonic()
        while self._is_full(rows) and self._thread is not None and self._thread.is_alive():
            self._changed.wait(1.0)
        self._held_up += time.monotonic() - began

    # ---------------------------------------------------------------- in the thread

    def _work(self) -> None:
        for sink in list(self._sinks):
            self._ask(sink, lambda sink=sink: sink.open(self._run))  # type: ignore[misc]
        flushed = time.monotonic()
        while True:
            with self._changed:
                due = flushed + self._flush_seconds
                while not (self._queue or self._closing or self._flush_wanted > self._flushes):
                    if not self._changed.wait(max(0.0, due - time.monotonic())) and time.monotonic() >= due:
                        break
                wanted, ending = self._flush_wanted, self._closing
                measured, rows = self._queue[0] if self._queue else (None, 0)
            if measured is not None:
                self._write(measured)
                with self._changed:
                    # Only now: what is being written is in memory, too.
                    self._queue.popleft()
                    self._rows -= rows
                    self._changed.notify_all()
                if time.monotonic() < due:
                    continue
            for sink in list(self._sinks):
                self._ask(sink, sink.flush)
            flushed = time.monotonic()
            if measured is None:
                with self._changed:
                    self._flushes = wanted
                    self._changed.notify_all()
                if ending:
                    break
        for sink in list(self._sinks):
            self._ask(sink, sink.close)

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


_live: weakref.WeakSet[Writer] = weakref.WeakSet()


def _forked() -> None:
    for writer in list(_live):
        writer._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

"""One recording session: which steps and ranks, what number a call gets, where its record goes.

The session knows no framework. An adapter notifies it of what happens (a call, a module pass, a gradient) in the
form of names and trees; the session decides whether it is wanted, numbers it, keeps the order and hands it to
the store (:class:`msprobe.capture.step_records.StepRecords`).

Life: ``start`` .. ``stop`` any number of times in a step, ``next_step`` between steps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from msprobe import log
from msprobe.capture import native
from msprobe.capture.filters import EntryFilter
from msprobe.capture.outcome import named_numbers
from msprobe.capture.stacks import CallStacks
from msprobe.capture.step_records import StepRecords
from msprobe.capture.thread_state import ThreadState
from msprobe.config.settings import Settings
from msprobe.guard import report_to
from msprobe.messages import joined, said
from msprobe.store import old_runs

OPTIMIZER = "optimizer"
CLIP_GRAD = "clip_grad"


class Session(StepRecords):
    """See the module's text. ``rank`` gives the rank of this process, None if there is no process group."""

    def __init__(self, settings: Settings, framework: str, rank: Callable[[], int | None], stacks: CallStacks) -> None:
        super().__init__(settings, framework, rank)
        self.stacks = stacks
        # Somebody puts other gradients in the place of those that arrive, behind the dump.
        self.gradients_change = False
        # Counts steps and restarts after fork: a hook that carries an older generation is not ours any more.
        self.generation = 0
        self.order = 0
        self.counters: dict[str, int] = {}
        self.filter = EntryFilter.of(settings)
        self.thread = ThreadState({})
        # Recording was asked for in this step, wanted or not.
        self._inside = False
        # The number of the next step, where it is not the next number.
        self._next_number: int | None = None
        self.at_step_end: list[Callable[[], None]] = []
        # The first step of this run; what earlier runs left of it and of later steps goes when recording begins.
        self.first_step = 0
        self.removes_old = settings.existing == "clean"
        self._dump_root = settings.dump_path
        self._pid = os.getpid()
        report_to(self)

    # ---------------------------------------------------------------- life

    def start(self, rank: int | None = None) -> bool:
        """Begin or go on recording this step, if this step and rank are wanted. True if recording is on."""
        if self.ended or self.recording:
            return self.recording
        if rank is not None:
            self._forced_rank = rank
        if not self.is_wanted():
            return False
        self.recording = self._begun = self._dumps = True
        log.once("native", "debug", native.status())
        return True

    def listen(self, rank: int | None, somebody_listens: Callable[[], bool]) -> bool:
        """Begin or go on noticing what happens for listeners, where some are on. True if anything is noticed now."""
        if rank is not None:
            self._forced_rank = rank
        if self.guard(somebody_listens):
            self._inside = True
            if not self.recording:
                self.recording = True
                self._dumps = False
        return self.recording

    def is_wanted(self) -> bool:
        """True if something is to be recorded now, in this step and rank; notes that it was asked for."""
        settings, step = self.settings, self.step
        if self.ended:
            return False
        self._inside = True
        number = self.rank()
        self.outcome.reached(step, number, self._world_size())
        if settings.last_step is not None and step > settings.last_step:
            self.end()
            return False
        if not settings.wants_step(step) or not settings.wants_rank(number if number is not None else 0):
            return False
        self.outcome.begun(step)
        log.set_rank(number)
        if self.removes_old and self.keeps_records and self.sink is self.folder:
            self.removes_old = False
            self._attempt("files of earlier runs", self._remove_old, number)
        return True

    def _remove_old(self, rank: int | None) -> None:
        # Whoever names ranks by hand answers for his own.
        world = self.world() if self._forced_rank is None else 0
        # Where a part of the recording has a folder in the one that was given, that one may hold an old dump.
        roots = dict.fromkeys([self._dump_root, self.settings.dump_path])
        duty = old_runs.Duty(rank, world, self.settings.wants_rank)
        steps, problem = old_runs.remove_old_dumps(roots, self.first_step, duty)
        if steps and not rank:
            named = named_numbers("step", steps)
            log.info(said("earlier-runs-removed", named, self._dump_root))
        if problem:
            log.warning(said("earlier-runs-stay", problem))

    def _world_size(self) -> int:
        # Whoever names ranks by hand has as many as he likes.
        return self.world() if self._forced_rank is None else max(self.settings.ranks, default=0) + 1

    def stop(self) -> None:
        """Stop recording and publish the files of this step as far as it got."""
        self.recording = False
        self.guard(self.publish, False)

    def next_step(self) -> None:
        """Finish the files of this step; the next step begins with all numbers at zero."""
        self.guard(self._end_step)
        self.step = self.step + 1 if self._next_number is None else self._next_number
        self._next_number = None
        self._begin_numbers()

    def give_up_step(self) -> None:
        """What was recorded in this step, of which no file was published yet, is not wanted: the step begins again."""
        self.recording = False
        for work in self.before_publish:
            self.guard(work)
        with self.lock:
            writer, files = self._writer, self._files
            self.late.clear()
            self._begun = False
            self._writer = self._files = None
            if files is not None:
                self._attempt("tensor files", files.close)
            if writer is not None:
                self._attempt("the dump", writer.give_up)
        self._begin_numbers()

    def _begin_numbers(self) -> None:
        with self.lock:
            self.generation += 1
            self._inside = False
            self.order = 0
            self.records_in_step = 0
            self.counters.clear()
            self._stack_numbers.clear()
            self.thread.modules.clear()
            if self.filter is not None:
                self.filter.begin_step()
        for work in self.at_step_end:
            self.guard(work)

    def number_steps_from(self, number: int) -> bool:
        """Number the steps from here on. In the middle of a step (``start`` was called, ``next_step`` was not) it is
        the next step that gets the number; False then.
        """
        if self._inside:
            self._next_number = number
            return False
        self.step = number
        if self.removes_old:
            self.first_step = number
        return True

    def close(self, is_end: bool = True) -> None:
        """The program ends: write what there is. A step that was being recorded is marked as incomplete.

        ``is_end`` False: only these settings end, others take their place; what came of it all is reported later.
        """
        interrupted, self.recording = self.recording, False
        begun = self._begun or self.step > 0
        self._end_step(interrupted)
        if self.filter is not None and (self.recorded_anything or begun):
            missing = self.filter.unmatched()
            if missing:
                log.warning(said("filters-without-match", joined(", ", missing)))
        if self._faults:
            log.warning(said("recording-faults", self._faults))
        if is_end and self.keeps_records and os.getpid() == self._pid:
            for is_warning, line in self.outcome.lines(self.settings):
                (log.warning if is_warning else log.info)(line)

    def _end_step(self, interrupted: bool = False) -> None:
        begun = self._begun
        self.publish(final=True, interrupted=interrupted)
        if begun and self.keeps_records and not self.recorded_anything and not self._expects_nothing:
            log.once("nothing", "warning", said("nothing-recorded-in-step", self.step))

    @property
    def _expects_nothing(self) -> bool:
        """A step without a record is as it should be."""
        return self.settings.keeps_few or self.settings.keeps_none

    def leave_to_parent(self) -> None:
        """After fork, in the child: the dump belongs to the parent; nothing is recorded here."""
        self.lock = threading.RLock()
        self.recording = self._begun = False
        self.ended = True
        self.generation += 1
        self._writer = None
        self._files = None
        self.late.clear()
        # What waits to be written is the parent's, too.
        self.before_publish.clear()

    # ---------------------------------------------------------------- names and order

    def number(self, key: str) -> int:
        """The number of this call of ``key`` within the step, from 0."""
        with self.lock:
            counters = self.counters
            n = counters.get(key, 0)
            counters[key] = n + 1
        return n

    def next_order(self) -> int:
        """The place of a record in the order of execution of this step."""
        self.order = n = self.order + 1
        return n

    def parent(self) -> str | None:
        """The entry of the innermost module that runs in this thread, or the optimizer or clipping region."""
        thread = self.thread
        if thread.modules:
            return thread.modules[-1].entry
        if thread.region is not None and self.with_construct and self.settings.level == "mix":
            self.put_parent(thread.region, None)
        return thread.region


def backward_of(parent: Any) -> Any:
    """The backward entry of a module's forward entry; other parents as they are."""
    if isinstance(parent, str) and ".forward." in parent:
        head, _, number = parent.rpartition(".forward.")
        return f"{head}.backward.{number}"
    return parent

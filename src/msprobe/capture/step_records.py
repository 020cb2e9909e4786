"""The records of a step on their way to its files: in what order they go, what waits for numbers, when files appear.

What fails here is the probe, never the training: :meth:`StepRecords.fault` is where every error of ours ends.
"""

from __future__ import annotations

import importlib
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol

from msprobe import log
from msprobe.capture.late_records import Check, LateRecords, is_late
from msprobe.capture.outcome import RecordingOutcome
from msprobe.capture.sinks import DumpFolder, Sink, StepFacts, StepSink, TensorSink
from msprobe.capture.stacks import CallStack
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError
from msprobe.guard import name_of, pass_on
from msprobe.messages import said

_Given = ParamSpec("_Given")


class RowSource(Protocol):
    """Rows of tensors on their way to the files of a step. ``table.pending``: how many there are."""

    table: Any

    def take(self) -> tuple[int, bytes]:
        """Those since the last time: the number of the first, and the rows."""


class Holder(Protocol):
    """Takes records that are not of this moment."""

    def take(self, name: str, tree: Any, stack: CallStack | None, parent: Any, check: Check | None) -> bool:
        """A finished record; False if it is none of those."""


class StepRecords:
    """Takes finished records. ``rank``: as of a session, which decides what is recorded in which step."""

    def __init__(self, settings: Settings, framework: str, rank: Callable[[], int | None]) -> None:
        self.settings = settings
        self.framework = framework
        self.step = 0
        self.recording = False
        self.ended = False
        self.end_after_record = False
        self.lock = threading.RLock()
        self.with_stacks = settings.extra_info
        self.with_construct = settings.extra_info and (settings.level in ("L0", "mix") or settings.task == "structure")
        self.saves_all = settings.task in ("tensor", "overflow_check", "exception_dump")
        self.tensor_list = settings.tensor_list_patterns() if settings.task == "statistics" else ()
        self.saves_some = bool(self.tensor_list)
        self.records_in_step = 0
        self.recorded_anything = False
        # Files of this step were written, and there may be more to come.
        self.is_published = False
        # False: what is recorded is written by others (the dump of an NPU's kernels); there are no files of ours.
        self.keeps_records = True
        # Recording was on in this step: it has files, even if nothing came of it.
        self._begun = False
        # What is noticed is dumped; False: there are listeners only.
        self._dumps = True
        # Whether what looks like an error of ours is one of the program's, which it is notified of itself.
        self.is_of_program: Callable[[BaseException], bool] = lambda error: False
        # Work to finish before the files of a step are written; each returns nothing and may put records.
        self.before_publish: list[Callable[[], None]] = []
        # True while descriptions wait for numbers that are still on a device; and the records that have them.
        self.has_late: Callable[[], bool] = lambda: False
        self.late = LateRecords()
        # Whoever takes what is recorded now, to put it later.
        self.holder: Holder | None = None
        # The rows of tensors that are described.
        self.rows: RowSource | None = None

        # Where the records go.
        self.folder = DumpFolder(lambda: self.settings)
        self.sink: Sink = self.folder

        # The switches that decide how exactly the framework computes, as they are now.
        self.precision: Callable[[], dict[str, object]] = dict

        # How many ranks the program has.
        self.world: Callable[[], int] = lambda: 1
        self.outcome = RecordingOutcome()

        # Not when something fails in the middle of a training.
        importlib.import_module("msprobe.messages.catalogue")
        self._rank = rank
        self._writer: StepSink | None = None
        self._files: TensorSink | None = None
        self._stack_numbers: dict[CallStack, int] = {}
        self._faults = 0
        self._forced_rank: int | None = None

    @property
    def is_dumping(self) -> bool:
        """True if what happens now is dumped, not only listened to."""
        return self.recording and self._dumps

    def rank(self) -> int | None:
        """The rank that names this process's folder; None for a single process."""
        if self._forced_rank is not None:
            return self._forced_rank
        return self._rank()

    def place(self) -> str:
        """Where we are, for messages: ``step 3`` or ``step 3 of rank 1``."""
        rank = self.rank()
        return said("one-number-of", "step", self.step) if rank is None else said("step-of-rank", self.step, rank)

    def saves(self, name: str) -> bool:
        """True if the tensors of the entry ``name`` are saved whole."""
        return self.saves_all or (self.saves_some and any(p.matches(name) for p in self.tensor_list))

    def put(
        self, name: str, tree: Any, stack: CallStack | None = None, parent: Any = False, is_known: bool = False
    ) -> None:
        """A finished record. ``parent`` False: it has no place in the hierarchy file. ``is_known``: it waits for
        nothing, whatever else does.
        """
        if self.holder is not None and not is_known and self.holder.take(name, tree, stack, parent, None):
            return
        with self.lock:
            writer = self._writer or self._open()
            self.records_in_step += 1
            number = None
            rows = self.rows
            fresh = rows.take() if rows is not None and rows.table.pending else None
            if stack is not None and self.with_stacks:
                number = self._stack_numbers.get(stack)
                if number is None:
                    number = len(self._stack_numbers)
                    writer.define_stack(number, stack.lines())
                    self._stack_numbers[stack] = number
            if not self.with_construct:
                parent = False
            if not is_known and (self.late.waiting or self.has_late()):
                self._put_late(writer, name, tree, number, parent, fresh)
            elif fresh is None:
                writer.put_call(name, tree, number, parent)
            else:
                writer.put_call(name, tree, number, parent, fresh)
            if self.end_after_record:
                self.outcome.is_enough = True
                self.end()

    def wants_rows(self) -> bool:
        """Whether tensors get rows in this step."""
        return self.settings.task in ("statistics", "tensor") and bool(getattr(self.sink, "takes_rows", False))

    def _put_rows(self, writer: StepSink) -> None:
        assert self.rows is not None
        writer.put_rows(*self.rows.take())

    def put_checked(
        self, name: str, tree: dict[str, Any], check: Check, stack: CallStack | None = None, parent: Any = False
    ) -> None:
        """A finished record, if ``check`` keeps it: asked at once, or when the numbers of the record are known."""
        if self.holder is not None and self.holder.take(name, tree, stack, parent, check):
            return
        with self.lock:
            if self.late.waiting or self.has_late():
                self.late.add(name, tree, stack, parent, check)
                self._receive_late()
            elif check(name, tree):
                self.put(name, tree, stack, parent)

    def _put_late(
        self,
        writer: StepSink,
        name: str,
        tree: Any,
        number: int | None,
        parent: Any,
        rows: tuple[int, bytes] | None,
    ) -> None:
        """A record while numbers are on their way."""
        if not self._writes_early:
            if rows is not None:
                writer.put_rows(*rows)
            self.late.add(name, tree, number, parent, None)
            self._receive_late()
            return
        # Where it stands now it stays, so the order is that of the program; a process that is killed has written it,
        # without numbers at worst.
        writer.put_call(name, tree, number, parent, rows)
        if is_late(tree):
            self.late.add(name, tree, number, parent, None)
        self._receive_late()

    @property
    def _writes_early(self) -> bool:
        return self.late.numbers is not None and self.sink is self.folder

    def _receive_late(self) -> None:
        numbers = self.late.numbers
        if numbers is not None:
            self.guard(numbers.receive)
            self._write_late(False)

    def reserve(self, name: str) -> bool:
        """Keep a place in the order for a record that will be put before the files are written. False if that cannot
        be: records before it wait for their numbers, and have no place yet.
        """
        with self.lock:
            if not self._writes_early and (self.late.waiting or self.has_late()):
                return False
            self.records_in_step += 1
            (self._writer or self._open()).reserve(name)
            return True

    def put_parent(self, child: str, parent: str | None) -> None:
        """A place in the hierarchy file without a record."""
        if self.with_construct:
            with self.lock:
                (self._writer or self._open()).put_parent(child, parent)

    def begin_files(self) -> None:
        """Claim the folder of this step now: what others write into it is not taken for files of an earlier run."""
        with self.lock:
            if self._writer is None:
                self._attempt("the dump", self._open)

    def can_save(self) -> bool:
        """True if whole tensors of this step have a place to go."""
        writer = self._writer
        if writer is None:
            with self.lock:
                writer = self._writer or self._open()
        return not writer.failed

    def files(self) -> Any:
        """Where whole tensors of this step go: a :class:`msprobe.capture.sinks.TensorSink`."""
        files = self._files
        if files is None:
            with self.lock:
                files = self._files
                if files is None:
                    files = self._files = self.sink.tensors(self._writer or self._open())
        return files

    def write_late(self) -> None:
        """Hand the records that waited for numbers to the writer, now that the numbers have come."""
        with self.lock:
            self._write_late(not self.has_late())

    def _write_late(self, all_of_them: bool) -> None:
        writer = self._writer
        if writer is not None and self.rows is not None and self.rows.table.pending:
            self._attempt("rows of tensors", self._put_rows, writer)
        for name, tree, stack, parent, check, _ in self.late.ready(all_of_them):
            if check is None:
                writer = self._writer or self._open()
                self._attempt(name, writer.put_call, name, tree, stack, parent)
            elif self._attempt(name, check, name, tree):
                self._attempt(name, self.put, name, tree, stack, parent, True)

    def publish(self, final: bool, interrupted: bool = False) -> None:
        """Bring the files up to date with the records. ``final``: the step is over (``interrupted``: too soon)."""
        for work in self.before_publish:
            self.guard(work)
        with self.lock:
            if self._writer is None and self._begun and self.keeps_records:
                self._attempt("the dump", self._open)
            self._write_late(True)
            writer, files = self._writer, self._files
            self.recorded_anything |= self.records_in_step > 0
            if writer is not None:
                if files is not None:
                    self._attempt("tensor files", files.flush)
                self._attempt("the dump", writer.publish, final, interrupted)
                self.is_published = not final
                records = writer.count
                if writer.failed:
                    # What can be read is found out by reading, when nothing more is written.
                    records = (self._attempt("the dump", self.sink.readable, writer) or 0) if final else 0
                lacks = files is not None and files.failed
                if self.sink.place is not None:
                    self.outcome.written(self.sink.place, self.step, records, writer.failed, lacks)
                elif self.outcome.is_empty:
                    self.outcome.forget()
            if final:
                # Whatever has failed, the next step begins with files of its own.
                self._begun = False
                self._writer = self._files = None
                if files is not None:
                    self._attempt("tensor files", files.close)

    def _open(self) -> StepSink:
        settings = self.settings
        is_debug = settings.level == "debug"
        header: dict[str, object] = {"task": settings.task, "level": settings.level, "framework": self.framework}
        precision = self.guard(self.precision)
        extra: dict[str, object] = {"precision": precision} if precision else {}
        world = self.guard(self.world) if self._forced_rank is None else None
        if isinstance(world, int) and world > 1:
            # So that readers know which ranks they lack.
            extra["world"] = world
            if settings.ranks:
                extra["ranks"] = [rank for rank in settings.ranks if rank < world]
        self._writer = self.sink.begin(
            StepFacts(
                self.step,
                self.rank(),
                header,
                extra,
                "debug" if is_debug else "dump",
                self.with_stacks and not is_debug,
                settings.extra_info and not is_debug,
                self.saves_all or self.saves_some,
            )
        )
        return self._writer

    def record_into(self, sink: Sink) -> Sink:
        """Send the records of the next steps to ``sink``; where they went before. Raises InvalidInputError in the
        middle of a step that has records already.
        """
        if self._writer is not None or self.recording:
            raise InvalidInputError(said("recorded-already", self.place()))
        before, self.sink = self.sink, sink
        return before

    def end(self) -> None:
        """Everything that was asked for is recorded: say so once, and record no more."""
        if not self.ended:
            self.ended = True
            self.recording = self.recording and not self._dumps
            log.info(said("all-recorded"))

    # ---------------------------------------------------------------- faults

    def guard(self, work: Callable[_Given, Any], *args: _Given.args, **kwargs: _Given.kwargs) -> Any:
        """Do our own work; what fails is noted and costs the training nothing."""
        try:
            return self._attempt(name_of(work), work, *args, **kwargs)
        except Exception as error:
            self.fault("work", error)
            return None

    def _attempt(self, what: str, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except Exception as error:
            self.fault(what, error)
            return None

    def fault(self, what: str, error: BaseException) -> None:
        """An error of ours while recording ``what``: one line in the log, the details beside the dump.

        Raises nothing but what a signal handler of the program has raised while we worked, which is passed on.
        """
        pass_on(error)
        try:
            if self.is_of_program(error):
                return
            self._faults += 1
            kind = type(error).__name__
            log.once(("fault", what.split(".")[0], kind), "error", said("not-recorded", what, kind, error))
            writer = self._writer
            if writer is None and self.is_dumping and self.keeps_records:
                with self.lock:
                    writer = self._writer or self._open()
            if writer is not None and self._faults <= 1000:
                trace = "".join(traceback.format_exception(error))
                writer.error(f"{what} failed: pid={os.getpid()}\n{trace}")
        except Exception as second:
            pass_on(second)

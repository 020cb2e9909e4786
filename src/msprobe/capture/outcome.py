"""What came of a recording, for the line that its end is reported with: which steps are there, which never came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from msprobe.capture.step_numbers import StepNumbers
from msprobe.config.settings import Settings
from msprobe.messages import joined, said
from msprobe.store import layout

_MOST_NAMED = 8


@dataclass
class _Folder:
    """One dump_path. What it keeps does not grow with the number of steps."""

    steps: StepNumbers = field(default_factory=StepNumbers)
    # Those of the steps whose writing failed; of these, those that can be read in part, and so many records of them.
    failed: StepNumbers = field(default_factory=StepNumbers)
    partial: StepNumbers = field(default_factory=StepNumbers)
    partial_records: int = 0
    # Those whose tensor files are not all there.
    without_tensors: StepNumbers = field(default_factory=StepNumbers)
    # Of all steps that did not fail; and of these, how many are of the step that was written last.
    records: int = 0
    records_of_last_step: int = 0
    last_step: int | None = None
    # Some step was recorded twice, and both count.
    is_written_over: bool = False

    def written(self, step: int, records: int, failed: bool, lacks_tensors: bool) -> bool:
        """The step has so many records by now. True if that is new."""
        is_new = step != self.last_step
        if is_new:
            self.is_written_over |= step in self.steps and step not in self.failed
            self.steps.add(step)
            self.last_step, self.records_of_last_step = step, 0
        if lacks_tensors:
            self.without_tensors.add(step)
        if failed:
            self.failed.add(step)
            if records and step not in self.partial:
                self.partial.add(step)
                self.partial_records += records
        if step in self.failed:
            records = 0
        is_new |= records != self.records_of_last_step
        self.records += records - self.records_of_last_step
        self.records_of_last_step = records
        return is_new


class RecordingOutcome:
    """Fed by the sessions of one debugger; :meth:`lines` says what is new since it was last asked."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}
        # Steps and ranks as the program reached them, wanted or not.
        self._last_step: int | None = None
        self._begun = StepNumbers()
        self._rank: int | None = None
        self._world = 1
        self._is_new = True
        # Why nothing was recorded, where somebody else knows it better.
        self.reason = ""
        # As much was found as was asked for: later steps are not missed.
        self.is_enough = False

    @property
    def is_empty(self) -> bool:
        """True as long as no step has a file."""
        return not self._folders

    @property
    def rank(self) -> int | None:
        """The rank of this process, as it was when recording was asked for last; None for a single process."""
        return self._rank

    @property
    def world(self) -> int:
        """How many ranks there were then."""
        return self._world

    def reached(self, step: int, rank: int | None, world: int) -> None:
        """Recording was asked for in this step, by the process of this rank among ``world``."""
        if step != self._last_step:
            self._is_new = True
        self._last_step, self._rank, self._world = step, rank, max(world, 1)

    def begun(self, step: int) -> None:
        """The step is wanted, and recording is on."""
        self._begun.add(step)

    def written(self, dump_path: str, step: int, records: int, failed: bool, lacks_tensors: bool = False) -> None:
        """The files of a step are up to date.

        ``failed``: as far as the disk let them; ``records`` is then how many can be read, 0 as long as that is not
        known. ``lacks_tensors``: not all tensor files could be written.
        """
        if self._folders.setdefault(dump_path, _Folder()).written(step, records, failed, lacks_tensors):
            self._is_new = True

    @contextmanager
    def checks_of_start(self) -> Iterator[None]:
        """What ``start()`` demands of its arguments is looked at: if that raises, nothing was recorded for it."""
        try:
            yield
        except Exception:
            self.reason = said("start-raised")
            raise
        if self.reason == said("start-raised"):
            self.reason = ""

    def forget(self) -> None:
        """Nothing that came so far is worth a line."""
        self._is_new = False

    # ---------------------------------------------------------------- reported at the end

    def lines(self, settings: Settings) -> list[tuple[bool, str]]:
        """What to say: whether it is a warning, and the sentence. Nothing if nothing has come since the last time."""
        if not self._is_new:
            return []
        self._is_new = False
        lines = [(True, line) for line in (self._missing_steps(settings), self._missing_ranks(settings)) if line]
        if self._folders:
            lines += [self._dump_line(path, folder, settings) for path, folder in self._folders.items()]
        elif not lines and not self._is_unwanted_rank(settings):
            lines.append((True, said("no-dump-written", self.reason or self._reason(settings))))
        return lines

    def _dump_line(self, path: str, folder: _Folder, settings: Settings) -> tuple[bool, str]:
        steps = [step for step in folder.steps if step not in folder.failed]
        failed = _failed_text(folder)
        if not steps and not folder.partial:
            return True, said("no-dump-at-folder", path, named_numbers("step", folder.failed))
        if not steps:
            return True, said("dump-without-whole-step", path, failed)
        further: list[str] = []
        if folder.is_written_over:
            further.append(said("records-with-overwritten"))
        if not folder.records and settings.task in ("overflow_check", "nan_check"):
            further.append(said("no-overflow-in-dump"))
        if not folder.records and settings.task == "exception_dump":
            further.append(said("no-failure-in-dump"))
        further.append(failed)
        others = self._other_steps(path, folder)
        if others:
            further.append(said("steps-of-earlier-runs", named_numbers("step", others)))
        is_warning = bool(folder.failed or folder.without_tensors)
        return is_warning, said(
            "dump-with-failures" if is_warning else "dump-is-in",
            path,
            said("one-of-steps") if len(steps) == 1 else said("several-steps", len(steps)),
            numbers_text(steps),
            _records_text(folder.records),
            joined("", further),
        )

    def _other_steps(self, path: str, folder: _Folder) -> list[int]:
        try:
            steps = layout.steps_of_rank(path, self._rank)
        except OSError:
            return []
        return [step for step in steps if step not in folder.steps]

    def _missing_steps(self, settings: Settings) -> str:
        missing = [step for step in settings.steps if step not in self._begun]
        if not missing or self.is_enough or self._last_step is None or self._is_unwanted_rank(settings):
            return ""
        named = named_numbers("step", missing)
        if missing == [*settings.steps]:
            return said("steps-asked-for-only", named, self._last_step)
        return said("steps-not-reached", named_numbers("step", settings.steps), named, self._last_step)

    def _missing_ranks(self, settings: Settings) -> str:
        missing = [rank for rank in settings.ranks if rank >= self._world]
        if not missing or self.is_enough or self._last_step is None or self._rank:
            return ""
        world = said("program-of-one-process") if self._world == 1 else said("program-of-ranks", self._world - 1)
        named = named_numbers("rank", missing)
        is_all = missing == [*settings.ranks]
        return said("ranks-asked-for-only", named, world) if is_all else said("ranks-not-there", named, world)

    def _is_unwanted_rank(self, settings: Settings) -> bool:
        return self._last_step is not None and not settings.wants_rank(self._rank or 0)

    def _reason(self, settings: Settings) -> str:
        if settings.level == "debug":
            return said("never-saved")
        return said("never-started") if self._last_step is None else said("no-step-recorded")


def _failed_text(folder: _Folder) -> str:
    """What of steps that failed can be read, and what cannot; for the end of a line."""
    texts: list[str] = []
    if folder.partial:
        records = _records_text(folder.partial_records)
        texts.append(said("failed-steps-readable", named_numbers("step", folder.partial), records))
    lost = [step for step in folder.failed if step not in folder.partial]
    if lost:
        texts.append(said("failed-steps-lost", named_numbers("step", lost)))
    if folder.without_tensors:
        texts.append(said("tensor-files-missing", named_numbers("step", folder.without_tensors)))
    return said("error-above-says", joined("", texts)) if texts else ""


def numbers_text(numbers: Iterable[int]) -> str:
    """Numbers in few words, ascending: ``0, 4 to 6, 10``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if len(runs) > _MOST_NAMED:
        more = len(runs) - _MOST_NAMED
        runs, last = runs[: _MOST_NAMED - 1], runs[-1]
        return said("numbers-and-more", _runs_text(runs), more, _runs_text([last]))
    return _runs_text(runs)


def _runs_text(runs: list[list[int]]) -> str:
    return joined(
        ", ", [str(a) if a == b else f"{a}, {b}" if b == a + 1 else said("numbers-from-to", a, b) for a, b in runs]
    )


def named_numbers(kind: str, numbers: Iterable[int]) -> str:
    """``step 3`` or ``steps 3, 5 to 8``."""
    listed = list(numbers)
    if len(listed) == 1:
        return said("one-number-of", kind, listed[0])
    return said("several-numbers-of", kind, numbers_text(listed))


def _records_text(count: int) -> str:
    return said("one-record") if count == 1 else said("several-records", count)

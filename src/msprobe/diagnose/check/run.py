"""Run the checks over a dump: all steps, all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msprobe.diagnose.check.history import History
from msprobe.diagnose.check.moment import Earlier, Moment
from msprobe.diagnose.check.registry import CHECKS, Check
from msprobe.diagnose.check.remarks import Notes, notes_of
from msprobe.diagnose.check.sight import Sight
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.findings import Finding, plain
from msprobe.diagnose.places import Places
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.wording import Wording
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.paths import StrPath
from msprobe.store.damage import in_words, lost_parts, missing_ranks, place_in_words
from msprobe.store.reader import Dump, open_dump

VERSION = 1
_MOST = 100


@dataclass(frozen=True)
class CheckResult:
    """What the checks say of a dump.

    ``status``: ``clean`` (nothing found), ``harmless`` (nothing of what was found reaches a loss, a gradient or a
    weight) or ``found``. ``unread`` tells the parts of the dump that could not be read, one sentence each.
    """

    status: Literal["clean", "harmless", "found"]
    dump: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict, hash=False)
    unread: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: nothing found, or only what is harmless; 1: findings; 2: nothing found where not all could be read."""
        if self.status == "found":
            return 1
        return 2 if self.unread else 0

    def to_json(self) -> dict[str, Any]:
        """The content of ``check.json``."""
        return {
            "version": VERSION,
            "status": self.status,
            "dump": self.dump,
            "summary": plain(self.summary) | {"kinds": dict(Counter(found.kind for found in self.findings))},
            "unread": list(self.unread),
            "notes": list(self.notes),
            "findings": [found.to_json() for found in self.findings],
        }


def check_run(
    path: StrPath, checks: Sequence[Check] = CHECKS, progress: Callable[[str], None] | None = None
) -> CheckResult:
    """Say what is wrong in a recorded training, without another one to compare it with.

    ``path`` is the folder of a dump, of a step or of a rank, or a ``dump.json``. Parts that cannot be read are left out
    and told. Raises PathError or InvalidInputError if none can be read, or no part holds a record.
    """
    dump = open_dump(path)
    running = _Running(dump, checks)
    for step in dump.steps:
        # What is read of a step stays until it is closed: no search for garbage finds any before.
        with no_collection():
            running.step(step, progress)
    return running.result(path)


class _Running:
    """The checks over one step after the other; nothing is kept of a step but what later ones and the answer need."""

    def __init__(self, dump: Dump, checks: Sequence[Check]) -> None:
        self._dump = dump
        self._checks = checks
        self._findings: list[Finding] = []
        self._count = 0
        self._harmless = True
        self._notes = Notes()
        self._broken: dict[str, MsprobeError] = {}
        self._unread = Places()
        self._sight = Sight()
        self._before: Earlier | None = None
        self._history = History()
        self._last: int | None = None
        self._told: set[str] = set()
        self._said: set[tuple[Any, ...]] = set()
        self._records = 0

    def step(self, step: int | None, progress: Callable[[str], None] | None) -> None:
        """Check all ranks of a step, and close what was read of it."""
        timelines: dict[int | str, Timeline] = {}
        try:
            for rank in self._dump.ranks(step):
                if progress is not None:
                    progress(Wording("step {}, rank {}", step, rank))
                try:
                    timelines[rank] = _read(self._dump, step, rank)
                except MsprobeError as problem:
                    self._broken[in_words(step, rank, problem.message)] = problem
            self._check(step, timelines)
        finally:
            for timeline in timelines.values():
                timeline.close()
                timeline.part.close()

    def _check(self, step: int | None, timelines: dict[int | str, Timeline]) -> None:
        for timeline in timelines.values():
            self._records += len(timeline.part)
            for place, text in notes_of(timeline):
                self._notes.add(place, text)
        self._sight.add(list(timelines.values()))
        add_digests(*timelines.values())
        # A gap in the steps: what was before is not the step before.
        follows = self._last is not None and step == self._last + 1
        before = self._before if follows else None
        moment = Moment(step, timelines, before, last=step == self._dump.steps[-1], history=self._history)
        self._history.add(moment)
        for found in _found(moment, self._checks, self._told):
            # The same line of the program in the same module, in another pass or step, is no news.
            mark = (found.evidence["check"], found.module, found.evidence.get("source") or found.where, found.kind)
            if mark not in self._said:
                self._said.add(mark)
                self._keep(found)
        if len(timelines) > 1:
            for remark in moment.exchange.remarks():
                self._notes.add(Wording("step {}", step), remark)
        self._history.leave(moment)
        self._before, self._last = moment.earlier(), step
        for timeline in timelines.values():
            # An interrupted dump may name files that were on their way.
            for name in timeline.part.unread if timeline.part.complete else ():
                self._unread.add(f"{place_in_words(step, timeline.rank)}: {name}")

    def _keep(self, found: Finding) -> None:
        self._count += 1
        self._harmless &= found.harmless
        self._findings.append(found)
        if len(self._findings) >= 2 * _MOST:
            self._findings = sorted(self._findings, key=_place)[:_MOST]

    def result(self, path: StrPath) -> CheckResult:
        """The answer. Raises what the first broken part raised if nothing could be read."""
        if not self._records and self._broken:
            raise next(iter(self._broken.values()))
        if not self._records:
            raise InvalidInputError(f'"{path}" holds no record; nothing was recorded, or another folder is meant.')
        unread = [*self._broken, *lost_parts(self._dump)]
        if self._unread.count:
            number = Wording("{} tensor files", self._unread.count) if self._unread.count > 1 else "a tensor file"
            unread.append(Wording("{} cannot be read: {}", number, self._unread))
        return CheckResult(
            status="clean" if not self._count else "harmless" if self._harmless else "found",
            dump=str(path),
            findings=tuple(sorted(self._findings, key=_place)[:_MOST]),
            notes=tuple(dict.fromkeys((*missing_ranks(self._dump), *self._notes.lines()))),
            unread=tuple(unread),
            summary={
                "steps": len(self._dump.steps),
                "records": self._records,
                "findings": self._count,
                "checks": [check.name for check in self._checks],
                "blind": self._sight.blind([check for check in self._checks if check.name not in self._told]),
            },
        )


def _found(moment: Moment, checks: Sequence[Check], told: set[str]) -> list[Finding]:
    """What the checks find in a step; ``told``: those that found something, of which some are asked no more."""
    findings = []
    for check in checks:
        if check.once and check.name in told:
            continue
        for found in check.find(moment):
            told.add(check.name)
            findings.append(replace(found, evidence={"check": check.name, **found.evidence}))
    return findings


def _place(found: Finding) -> tuple[Any, ...]:
    """By step, what does harm first, then in the order of execution."""
    step = -1 if found.step is None else found.step
    return found.harmless, step, found.order if found.order is not None else 0, str(found.rank)


def _read(dump: Dump, step: int | None, rank: int | str) -> Timeline:
    part = dump.part(step, rank)
    try:
        return Timeline(part)
    except MsprobeError:
        part.close()
        raise

"""Run the checks over a dump: all steps, all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msprobe.diagnose.check.communication import Exchange
from msprobe.diagnose.check.history import History
from msprobe.diagnose.check.moment import Earlier, Moment
from msprobe.diagnose.check.registry import CHECKS, Check
from msprobe.diagnose.check.remarks import notes_of
from msprobe.diagnose.check.sight import Sight
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.findings import Finding, plain
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.paths import StrPath
from msprobe.store.damage import in_words, lost_parts, missing_ranks
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
    summary: dict[str, Any] = field(default_factory=dict)
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
    findings: list[Finding] = []
    notes: list[str] = []
    broken: dict[str, MsprobeError] = {}
    sight = Sight()
    before: Earlier | None = None
    history = History()
    last: int | None = None
    told: set[str] = set()
    said: set[tuple[Any, ...]] = set()
    records = 0
    for step in dump.steps:
        timelines = {}
        for rank in dump.ranks(step):
            if progress is not None:
                progress(f"step {step}, rank {rank}")
            try:
                timelines[rank] = _read(dump, step, rank)
            except MsprobeError as problem:
                broken[in_words(step, rank, problem.message)] = problem
                continue
            records += len(timelines[rank].part)
            notes += notes_of(timelines[rank])
        sight.add(list(timelines.values()))
        add_digests(*timelines.values())
        # A gap in the steps: what was before is not the step before.
        follows = last is not None and step == last + 1
        last_one = step == dump.steps[-1]
        moment = Moment(step, timelines, before if follows else None, last=last_one, history=history)
        history.add(moment)
        for found in _found(moment, checks, told):
            # The same line of the program in the same module, in another pass or step, is no news.
            mark = (found.evidence["check"], found.module, found.evidence.get("source") or found.where, found.kind)
            if mark not in said:
                said.add(mark)
                findings.append(found)
        if len(timelines) > 1:
            notes += [f"step {step}: {remark}" for remark in Exchange(timelines).remarks()]
        before, last = moment.earlier(), step
        for timeline in timelines.values():
            timeline.part.close()
    if not records and broken:
        raise next(iter(broken.values()))
    if not records:
        raise InvalidInputError(f'"{path}" holds no record; nothing was recorded, or another folder is meant.')
    findings.sort(key=_place)
    harmless = all(found.harmless for found in findings)
    return CheckResult(
        status="clean" if not findings else "harmless" if harmless else "found",
        dump=str(path),
        findings=tuple(findings[:_MOST]),
        notes=tuple(dict.fromkeys((*missing_ranks(dump), *notes))),
        unread=(*broken, *lost_parts(dump)),
        summary={
            "steps": len(dump.steps),
            "records": records,
            "findings": len(findings),
            "checks": [check.name for check in checks],
            "blind": sight.blind([check for check in checks if check.name not in told]),
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

"""Run the checks over a dump: all steps, all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msprobe.coverage import Coverage
from msprobe.diagnose.check.across import Across
from msprobe.diagnose.check.exchange import Exchange, RankCalls, Shared
from msprobe.diagnose.check.history import Glance, History
from msprobe.diagnose.check.moment import Earlier
from msprobe.diagnose.check.one_rank import CheckedRank, RankJob, check_rank, glance, opened
from msprobe.diagnose.check.registry import CHECKS, Check
from msprobe.diagnose.check.remarks import Notes
from msprobe.diagnose.check.replica import Replica
from msprobe.diagnose.check.sight import Sight
from msprobe.diagnose.covered import dump_coverage
from msprobe.diagnose.findings import Finding, plain
from msprobe.diagnose.places import Places
from msprobe.diagnose.steps.communication import Rank
from msprobe.engine import ALONE, Workers, run
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import coded, said
from msprobe.paths import StrPath
from msprobe.store.damage import in_words, lost_parts, missing_ranks, place_in_words
from msprobe.store.reader import Dump, open_dump

VERSION = 1
_MOST_FINDINGS = 100
#: The place of each check in the list.
_NUMBERS = {check.name: number for number, check in enumerate(CHECKS)}


@dataclass(frozen=True)
class CheckResult:
    """What the checks say of a dump.

    ``status``: ``clean`` (nothing found), ``harmless`` (nothing of what was found reaches a loss, a gradient or a
    weight) or ``found``. ``unread``: the parts of the dump that are missing or could not be read, one sentence each.
    """

    status: Literal["clean", "harmless", "found"]
    dump: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict, hash=False)
    unread: tuple[str, ...] = ()

    @property
    def coverage(self) -> Coverage:
        """What was looked at, and what of the dump was not."""
        return dump_coverage({key: self.summary.get(key) for key in ("steps", "records")}, self.unread)

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
            "summary": plain(self.summary) | {"kinds": dict(Counter(finding.kind for finding in self.findings))},
            "unread": list(self.unread),
            "coverage": self.coverage.as_json(),
            "notes": list(self.notes),
            "messages": coded(self.notes),
            "findings": [finding.to_json() for finding in self.findings],
        }


def check_run(
    path: StrPath,
    checks: Sequence[Check] = CHECKS,
    progress: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
) -> CheckResult:
    """Say what is wrong in a recorded training, without another one to compare it with.

    ``path`` is the folder of a dump, of a step or of a rank, or a ``dump.json``. Parts that cannot be read are left out
    and reported. Ranks are checked one after the other, or several at once as ``workers`` say; of none more is kept
    than what it is compared with others by. Raises PathError or InvalidInputError if none can be read, or no part holds
    a record.
    """
    dump = open_dump(path)
    running = _Running(dump, checks, workers)
    for step in dump.steps:
        running.step(step, progress)
    return running.result(path)


class _Running:
    """The checks over one step after the other; nothing is kept of a step but what later ones and the answer need."""

    def __init__(self, dump: Dump, checks: Sequence[Check], workers: Workers) -> None:
        self._dump = dump
        self._checks = checks
        self._workers = workers
        self._findings: list[tuple[int, Finding]] = []
        self._count = 0
        self._harmless = True
        self._notes = Notes()
        self._broken: dict[str, MsprobeError] = {}
        self._unread = Places()
        self._sight = Sight()
        self._before: dict[Rank, Earlier] = {}
        self._history = History()
        self._last: int | None = None
        self._reported: set[str] = set()
        self._said: set[tuple[Any, ...]] = set()
        self._records = 0

    def step(self, step: int | None, progress: Callable[[str], None] | None) -> None:
        """Check all ranks of a step, one after the other, then what they have to do with each other."""
        ranks = self._dump.ranks(step)
        only = {rank: self._dump.only(step, rank) for rank in ranks}
        glances = self._glances(list(only.values()), step)
        # Tensors get digests of their files on all ranks or on none: one with a digest looks like none without.
        digests = all(seen_rank.has_values for seen_rank in glances)
        held = frozenset[str]().union(*(seen_rank.held for seen_rank in glances))
        # A gap in the steps: what was before is not the step before.
        before = self._before if self._last is not None and step == self._last + 1 else None
        is_last = step == self._dump.steps[-1]
        # What spreads to later steps is reported for the first.
        checks = [check for check in self._checks if not (check.once and check.name in self._reported)]
        names = [check.name for check in checks if check.find is not None]
        optimized = frozenset[str]().union(*(earlier.optimized for earlier in self._before.values()))

        def job_of(rank: Rank) -> RankJob:
            earlier = None if before is None else replace(before.get(rank, Earlier()), optimized=optimized)
            return RankJob(only[rank], names, len(ranks), earlier, self._history, held, is_last, digests)

        jobs = [job_of(rank) for rank in ranks]

        def show_rank(number: int) -> None:
            if progress is not None:
                progress(said("job-of-jobs", place_in_words(step, ranks[number]), number + 1, len(ranks)))

        kept = _Kept()
        shared = Shared()

        def calls() -> Iterator[RankCalls]:
            for done in run(check_rank, jobs, self._workers, show_rank):
                self._add(step, done)
                kept.add(done, shared)
                if done.calls is not None:
                    yield done.calls

        exchange = Exchange(calls())
        if len(ranks) == 1 and not kept.earlier:
            self._history.add(())
        across = Across(step, exchange, kept.replicas, before, lambda rank: opened(only[rank], digests))
        self._look_across(step, across, checks)
        self._history.leave(kept.earlier, step)
        self._before, self._last = kept.earlier, step

    def _glances(self, dumps: Sequence[Dump], step: int | None) -> list[Glance]:
        """What all ranks have, before any is checked; a single one is looked at when it is."""
        if len(dumps) == 1:
            return []
        glances = [seen_rank for seen_rank in run(glance, dumps, self._workers) if seen_rank is not None]
        self._history.add(glances)
        return glances

    def _add(self, step: int | None, done: CheckedRank) -> None:
        """Take in what a rank says by itself."""
        if done.problem is not None:
            self._broken[in_words(step, done.rank, done.problem.message)] = done.problem
        self._records += done.records
        for place, text in done.notes:
            self._notes.add(place, text)
        self._sight.merge(done.sight)
        for name, finding in done.findings:
            self._keep(name, finding)
        for name in done.unread:
            self._unread.add(f"{place_in_words(step, done.rank)}: {name}")

    def _look_across(self, step: int | None, across: Across, checks: Sequence[Check]) -> None:
        """What the ranks of a step have to do with each other."""
        for check in checks:
            for finding in check.across(across) if check.across is not None else ():
                self._keep(check.name, finding)
        if len(across.exchange) > 1:
            self._sight.seen.add("ranks")
            for remark in across.exchange.remarks():
                self._notes.add(said("step", step), remark)

    def _keep(self, check: str, finding: Finding) -> None:
        """Take in a finding, unless the same line of the program in its module had it before."""
        self._reported.add(check)
        mark = (check, finding.module, finding.evidence.get("source") or finding.where, finding.kind)
        if mark in self._said:
            return
        self._said.add(mark)
        self._count += 1
        self._harmless &= finding.harmless
        number = _NUMBERS.get(check, len(_NUMBERS))
        self._findings.append((number, replace(finding, evidence={"check": check, **finding.evidence})))
        if len(self._findings) >= 2 * _MOST_FINDINGS:
            self._findings = sorted(self._findings, key=_place)[:_MOST_FINDINGS]

    def result(self, path: StrPath) -> CheckResult:
        """The answer. Raises what the first broken part raised if nothing could be read."""
        if not self._records and self._broken:
            raise next(iter(self._broken.values()))
        if not self._records:
            raise InvalidInputError(said("nothing-recorded-there", path))
        unread = [*self._broken, *lost_parts(self._dump), *missing_ranks(self._dump)]
        if self._unread.count:
            number = said("tensor-files", self._unread.count) if self._unread.count > 1 else "a tensor file"
            unread.append(said("cannot-be-read", number, self._unread))
        return CheckResult(
            status="clean" if not self._count else "harmless" if self._harmless else "found",
            dump=str(path),
            findings=tuple(finding for _, finding in sorted(self._findings, key=_place)[:_MOST_FINDINGS]),
            notes=tuple(dict.fromkeys(self._notes.lines())),
            unread=tuple(unread),
            summary={
                "steps": len(self._dump.steps),
                "records": self._records,
                "findings": self._count,
                "checks": [check.name for check in self._checks],
                "blind": self._sight.blind([check for check in self._checks if check.name not in self._reported]),
            },
        )


class _Kept:
    """What is kept of the ranks of a step while it is checked."""

    def __init__(self) -> None:
        self.replicas: dict[Rank, Replica] = {}
        self.earlier: dict[Rank, Earlier] = {}

    def add(self, done: CheckedRank, shared: Shared) -> None:
        """Keep what concerns others of a rank; what is equal on many ranks once."""
        if done.replica is not None:
            self.replicas[done.rank] = done.replica.shared(shared)
        if done.earlier is not None:
            weights, gradients = shared.alike(done.earlier.weights), shared.alike(done.earlier.gradients)
            self.earlier[done.rank] = replace(done.earlier, weights=weights, gradients=gradients)


def _place(numbered: tuple[int, Finding]) -> tuple[Any, ...]:
    """By step, what does harm first, then in the order of execution; at one place in the order of the checks."""
    number, finding = numbered
    step = -1 if finding.step is None else finding.step
    return finding.harmless, step, finding.order if finding.order is not None else 0, str(finding.rank), number

"""One step of one rank, checked by itself: its own findings, and what is kept of it for checks over ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from msprobe.diagnose.check.bad_values import Watcher
from msprobe.diagnose.check.exchange import RankCalls
from msprobe.diagnose.check.history import Glance, History, glance_at
from msprobe.diagnose.check.moment import CheckedStep, Earlier
from msprobe.diagnose.check.origins import calls_of
from msprobe.diagnose.check.registry import CHECKS
from msprobe.diagnose.check.remarks import notes_of
from msprobe.diagnose.check.repeated import batch_of
from msprobe.diagnose.check.replica import Replica, replica_of
from msprobe.diagnose.check.sight import Sight
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.errors import MsprobeError
from msprobe.store.reader import Dump

#: What a glance reads: modules, their gradients, optimizers.
_GLANCE = ("Module.", "Cell.", "Optimizer.")


@dataclass(frozen=True)
class RankJob:
    """A step of a rank to check: the only part of ``dump``.

    ``checks``: the names of those to make. ``before``: what is known of the step before it; ``history``: of all steps
    up to it, but for what the rank itself says if it is the only one (``world``). ``held``: parameters that optimizers
    of any rank have. ``last``: no step comes after it. ``with_digests``: see :func:`opened`.
    """

    dump: Dump
    checks: Sequence[str]
    world: int
    before: Earlier | None
    history: History
    held: frozenset[str]
    last: bool
    with_digests: bool


@dataclass
class CheckedRank:
    """What came out for a step of a rank. ``findings``: with the name of the check, in the order of the checks.
    ``problem``: why it could not be read; nothing else is known then.
    """

    rank: Rank
    problem: MsprobeError | None = None
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    calls: RankCalls | None = None
    replica: Replica | None = None
    earlier: Earlier | None = None
    glance: Glance | None = None
    notes: list[tuple[str, str]] = field(default_factory=list)
    sight: Sight = field(default_factory=Sight)
    records: int = 0
    unread: tuple[str, ...] = ()


@contextmanager
def opened(dump: Dump, with_digests: bool = False) -> Iterator[Timeline]:
    """The only part of a dump, read, and closed in the end. ``with_digests``: tensors get those of their files."""
    with no_collection():
        part = dump.part()
        try:
            timeline = Timeline(part)
            try:
                if with_digests:
                    add_digests(timeline)
                yield timeline
            finally:
                timeline.close()
        finally:
            part.close()


def glance(dump: Dump) -> Glance | None:
    """What is to be known of a step of a rank before any is checked; None if it cannot be read."""
    try:
        part = dump.part()
        try:
            timeline = Timeline(part, only=[name for name in part.names() if name.startswith(_GLANCE)])
            try:
                return glance_at(CheckedStep(part.step, timeline))
            finally:
                timeline.close()
        finally:
            part.close()
    except MsprobeError:
        return None


def check_rank(job: RankJob) -> CheckedRank:
    """Make the checks that look at one rank, and keep what the others need."""
    (step,) = job.dump.steps
    (rank,) = job.dump.ranks(step)
    done = CheckedRank(rank)
    try:
        with opened(job.dump, job.with_digests) as timeline:
            _check(job, timeline, done)
    except MsprobeError as problem:
        return CheckedRank(rank, problem)
    return done


def _check(job: RankJob, timeline: Timeline, done: CheckedRank) -> None:
    part = timeline.part
    done.records = len(part)
    done.notes = notes_of(timeline)
    done.sight.add(timeline)
    moment = CheckedStep(part.step, timeline, job.before, job.last, job.history, job.world, job.held)
    if job.world == 1:
        done.glance = glance_at(moment)
        job.history.add([done.glance])
        moment.held = done.glance.held
    for check in CHECKS:
        if check.name in job.checks and check.find is not None:
            done.findings += [(check.name, finding) for finding in check.find(moment)]
    done.calls = calls_of(timeline, Watcher(timeline), with_results=True)
    done.replica = replica_of(moment) if job.world > 1 else None
    if not job.last:
        batch = batch_of(timeline)
        done.earlier = moment.earlier(batch[1] if batch is not None else None)
    # An interrupted dump may name files that were on their way.
    done.unread = tuple(part.unread) if part.complete else ()

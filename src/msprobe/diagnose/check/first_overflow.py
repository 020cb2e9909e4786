"""The first bad value over all ranks of a step, read from a dump of any size.

Of each rank only the records that have bad values, and those that exchange data, are looked at (bench/overflow
measures it).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msprobe.compare.entry_names import operation, read_name
from msprobe.coverage import Coverage
from msprobe.diagnose import operators
from msprobe.diagnose.check.bad_values import USUAL, GrowthLimits, Watcher, bad
from msprobe.diagnose.check.exchange import Exchange, How, RankCalls
from msprobe.diagnose.check.origins import Origin, calls_of, origins
from msprobe.diagnose.check.overflow import finding_of, in_order_of_ranks
from msprobe.diagnose.check.overflow_words import LARGEST
from msprobe.diagnose.check.run import CheckResult
from msprobe.diagnose.check.values import tensors
from msprobe.diagnose.covered import dump_coverage
from msprobe.diagnose.differences.records import numbers
from msprobe.diagnose.differences.words import dtype_word
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.places import Places
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.engine import ALONE, Workers, run
from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store import layout
from msprobe.store.damage import in_words, missing_ranks, place_in_words
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump, open_dump

#: What the text of a record has in it that may have a bad value or stand for memory that nobody has written.
_NAN = b"NaN"
_OTHER_WORDS = (b"Infinity", b'"unset"', b'"nan"', b'"inf"', b'"-inf"')
#: Records with a NaN that are looked at in each direction of a rank: it has gone bad long before.
_MOST_WITH_NAN = 2000
_ALWAYS = ("Distributed.", "Optimizer.")


@dataclass(frozen=True)
class Asked:
    """``all_steps``: go on behind the first step that has a bad value. ``partial``: leave out ranks that cannot be
    read, and read files that are cut off up to their last whole record.
    """

    limits: GrowthLimits = USUAL
    all_steps: bool = False
    partial: bool = False


@dataclass(frozen=True)
class ReceivedBadValue:
    """How a bad value came to a rank: through which call, and which one computed with it first."""

    rank: Rank
    through: str
    first_bad: str | None


@dataclass(frozen=True)
class FirstNode:
    """A call where bad values come from first.

    ``record`` is what the dump says of it; ``construct`` the modules around it, outermost first, and its own name;
    ``input_share`` the largest size among its inputs divided by the largest number of the result's type.
    """

    finding: Finding
    rank: Rank
    step: int | None
    name: str
    how: How
    value: str
    layer: int
    record: dict[str, Any]
    construct: tuple[str, ...]
    stack: tuple[str, ...]
    input_share: float | None
    arrivals: tuple[ReceivedBadValue, ...]


@dataclass(frozen=True)
class OverflowAnswer:
    """What the search over a dump says. ``nodes`` are in the order of steps, layers and ranks."""

    status: Literal["clean", "harmless", "found"]
    dump: str
    nodes: tuple[FirstNode, ...]
    notes: tuple[str, ...]
    unread: tuple[str, ...]
    unmatched: tuple[tuple[Rank, str], ...]
    mismatch: str | None
    steps: int
    ranks: int
    records: int
    asked: Asked = Asked()

    @property
    def coverage(self) -> Coverage:
        """What was searched, and what of the dump was not."""
        return dump_coverage({"steps": self.steps, "ranks": self.ranks, "records": self.records}, self.unread)

    def as_check(self) -> CheckResult:
        """The same as the one check of a dump, for those who show such."""
        return CheckResult(
            status=self.status,
            dump=self.dump,
            findings=tuple(node.finding for node in self.nodes),
            notes=tuple(self.notes) + ((self.mismatch,) if self.mismatch else ()),
            summary={
                "steps": self.steps,
                "records": self.records,
                "findings": len(self.nodes),
                "checks": ["overflow"],
                "blind": {},
            },
            unread=self.unread,
        )


def find_first_overflow(
    path: StrPath,
    asked: Asked | None = None,
    progress: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
) -> OverflowAnswer:
    """Search the steps of a dump, in order, for the first bad value over all ranks.

    ``path`` is the folder of a dump, of a step or of a rank. Ranks are read one after the other, or several at once as
    ``workers`` say; of none more is kept than what it exchanges with others. Raises PathError if there is no dump, or a
    rank's folder has no ``dump.json``; InvalidInputError for a file that is broken, or a dump without statistics.
    """
    dump = open_dump(path)
    search = _Search(dump, asked or Asked(), workers)
    for step in dump.steps:
        search.step(step, progress)
        if search.nodes and not search.asked.all_steps:
            break
    return search.answer(str(path))


@dataclass
class _Seen:
    """What is kept of a step of a rank; ``calls`` is None if it could not be read, as ``problem`` says."""

    calls: RankCalls | None = None
    problem: MsprobeError | None = None
    records: int = 0
    notes: list[str] = field(default_factory=list)
    has_tensors: bool = False
    has_statistics: bool = False


def _look_at(asked: Asked, dump: Dump) -> _Seen:
    """Read a step of a rank. Raises MsprobeError if it cannot be read, unless ``partial`` is asked for."""
    seen = _Seen()
    try:
        # What is read stays until it is closed: no search for garbage finds any before.
        with no_collection(), _opened(dump, asked.partial) as part:
            seen.records = len(part)
            if not part.complete:
                place = place_in_words(part.step, part.rank)
                seen.notes.append(said("interrupted-records", place))
            names = _wanted(part, seen)
            timeline = Timeline(part, only=names if asked.limits.by_words else None)
            try:
                seen.calls = calls_of(timeline, Watcher(timeline, asked.limits))
            finally:
                timeline.close()
    except MsprobeError as problem:
        if not asked.partial:
            raise
        seen.problem = problem
    return seen


@contextmanager
def _opened(dump: Dump, partial: bool) -> Iterator[DumpPart]:
    part = dump.part(partial=partial)
    try:
        yield part
    finally:
        part.close()


def _wanted(part: DumpPart, seen: _Seen) -> Collection[str]:
    """The records that have to do with bad values, as their texts say; all, where memory that nobody has written
    must be followed through the calls of a dump that does not mark it.
    """
    names: list[str] = []
    last = ""
    ours = bool(part.ours)
    with_nan = dict.fromkeys((False, True), 0)
    for name, text in part.texts():
        if not seen.has_statistics:
            seen.has_tensors |= b'"dtype"' in text
            seen.has_statistics |= b'"Max"' in text
        if name.startswith(_ALWAYS):
            names.append(name)
        elif _NAN in text:
            backward = ".backward" in name
            with_nan[backward] += 1
            if with_nan[backward] <= _MOST_WITH_NAN:
                names.append(name)
        elif any(word in text for word in _OTHER_WORDS):
            names.append(name)
        if not ours and "empty" in name and operation(read_name(name).stem) in operators.UNSET:
            return part.names()
        if name.endswith(".forward") or ".forward." in name:
            last = name
    wanted = {last, *names} - {""}
    # The forward call says why a backward call makes what it makes.
    return wanted | {name for name_seen in names if ".backward" in name_seen and (name := _forward(name_seen)) in part}


class _Search:
    def __init__(self, dump: Dump, asked: Asked, workers: Workers) -> None:
        self.dump = dump
        self.asked = asked
        self.nodes: list[FirstNode] = []
        self._workers = workers
        self._notes: list[str] = []
        self._unread: list[str] = []
        self._unmatched: list[tuple[Rank, str]] = []
        self._mismatch: str | None = None
        self._ranks: set[Rank] = set()
        self._steps = self._records = 0
        self._has_tensors = self._has_statistics = False
        for step, rank in dump.hollow:
            file = dump.path / (f"step{step}" if step is not None else "") / f"rank{rank}" / layout.DUMP_FILE
            if not asked.partial:
                raise PathError(said("rank-file-missing", file))
            self._unread.append(in_words(step, rank, said("dump-file-lacking", layout.DUMP_FILE)))

    def step(self, step: int | None, progress: Callable[[str], None] | None) -> None:
        """Look at all ranks of a step."""
        self._steps += 1
        ranks = self.dump.ranks(step)

        def show_rank(number: int) -> None:
            if progress is not None:
                progress(said("job-of-jobs", place_in_words(step, ranks[number]), number + 1, len(ranks)))

        dumps = [self.dump.only(step, rank) for rank in ranks]
        seen = zip(ranks, run(functools.partial(_look_at, self.asked), dumps, self._workers, show_rank), strict=True)
        self._search(step, Exchange(self._kept(step, seen)))

    def _kept(self, step: int | None, seen: Iterable[tuple[Rank, _Seen]]) -> Iterator[RankCalls]:
        """What is known of each rank of a step, once what else was seen is noted."""
        for rank, looked_at in seen:
            if looked_at.problem is not None:
                self._unread.append(in_words(step, rank, looked_at.problem.message))
            self._records += looked_at.records
            self._notes += looked_at.notes
            self._has_tensors |= looked_at.has_tensors
            self._has_statistics |= looked_at.has_statistics
            if looked_at.calls is not None:
                self._ranks.add(rank)
                yield looked_at.calls

    def _search(self, step: int | None, exchange: Exchange) -> None:
        matters = any(calls.matters for calls in exchange.calls)
        self.nodes += [self._node(step, origin, matters) for origin in origins(exchange)]
        self._notes += _dismissed(step, exchange)
        if len(exchange) > 1:
            self._notes += [remark for remark in exchange.remarks() if remark not in self._notes]
            self._unmatched += exchange.unmatched()
            self._mismatch = self._mismatch or exchange.mismatch()

    def _node(self, step: int | None, origin: Origin, matters: bool) -> FirstNode:
        """An origin with all that its rank's dump says of it."""
        with _opened(self.dump.only(step, origin.rank), self.asked.partial) as part:
            only = {origin.name, _forward(origin.name)}
            only |= {name for name in part.names() if name.startswith("Optimizer.")}
            only |= set(_chain(part, origin.name))
            timeline = Timeline(part, only=only)
            try:
                return _node(timeline, step, origin, matters)
            finally:
                timeline.close()

    def answer(self, path: str) -> OverflowAnswer:
        """All that was found. Raises InvalidInputError if there was nothing to look at."""
        if not self._records:
            reason = f" {self._unread[0]}" if self._unread else ""
            raise InvalidInputError(said("dump-without-records", path, reason))
        if self._has_tensors and not self._has_statistics and not self.nodes:
            raise InvalidInputError(said("dump-without-statistics", path))
        nodes = sorted(self.nodes, key=lambda node: (node.step or 0, node.finding.harmless, node.layer, str(node.rank)))
        return OverflowAnswer(
            status="clean" if not nodes else "harmless" if all(node.finding.harmless for node in nodes) else "found",
            dump=path,
            nodes=tuple(nodes),
            notes=tuple(dict.fromkeys(self._notes)),
            unread=(*self._unread, *missing_ranks(self.dump)),
            unmatched=tuple(self._unmatched),
            mismatch=self._mismatch,
            steps=self._steps,
            ranks=len(self._ranks),
            records=self._records,
            asked=self.asked,
        )


def _forward(name: str) -> str:
    head, _, tail = name.rpartition(".backward")
    return f"{head}.forward{tail}"


def _dismissed(step: int | None, exchange: Exchange) -> Iterator[str]:
    """One note on the infinities that were masked away again."""
    places = Places()
    for calls in exchange.calls:
        for name in calls.dismissed:
            places.add(f"{place_in_words(step, calls.rank)}: {name}")
    if places.count:
        yield said("infinities-masked", places)


def _node(timeline: Timeline, step: int | None, origin: Origin, matters: bool) -> FirstNode:
    part = timeline.part
    finding = finding_of(timeline, step, origin, matters)
    record = part.record(origin.name)
    return FirstNode(
        finding=replace(finding, evidence={"check": "overflow", **finding.evidence}),
        rank=origin.rank,
        step=step,
        name=origin.name,
        how=origin.how,
        value=origin.value,
        layer=origin.layer,
        record=record if isinstance(record, dict) else {"output": [record]},
        construct=tuple(_chain(part, origin.name)),
        stack=tuple(part.stack(origin.name)),
        input_share=_input_share(timeline.by_name[origin.name]),
        arrivals=tuple(
            ReceivedBadValue(rank, name, origin.first_bad.get(rank)) for rank, name in in_order_of_ranks(origin.reached)
        ),
    )


def _chain(part: DumpPart, name: str) -> list[str]:
    """The modules that a call ran in, outermost first, and the call."""
    chain = [name]
    while True:
        above: Any = part.parent(chain[0])
        above = above[0] if isinstance(above, list) and above else above
        if not isinstance(above, str) or above in chain or above == "optimizer":
            return chain
        chain.insert(0, above)


def _input_share(event: Event) -> float | None:
    """The largest finite size among the inputs, as a share of the largest number that the result's type holds."""
    results = tensors(event.outputs())
    largest = LARGEST.get(dtype_word(results[0])) if results else None
    sizes = [
        max(abs(statistics[0]), abs(statistics[1]))
        for leaf in tensors(event.inputs())
        if not bad(leaf) and (statistics := numbers(leaf)) is not None
    ]
    return max(sizes) / largest if sizes and largest else None

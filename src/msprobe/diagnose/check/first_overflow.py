"""The first bad value over all ranks of a step, read from a dump of any size.

Of each rank only the records that have bad values, and those that exchange data, are looked at (bench/overflow
measures it).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from msprobe.compare.entry_names import operation, read_name
from msprobe.diagnose import operators
from msprobe.diagnose.check.bad_values import USUAL, Limits, Watcher, bad
from msprobe.diagnose.check.communication import Exchange
from msprobe.diagnose.check.moment import Moment, Rank
from msprobe.diagnose.check.origins import How, Origin
from msprobe.diagnose.check.overflow import finding_of, first_origins, watch
from msprobe.diagnose.check.overflow_words import LARGEST
from msprobe.diagnose.check.values import tensors
from msprobe.diagnose.differences.records import numbers
from msprobe.diagnose.differences.words import dtype_word
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.places import Places
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.wording import Wording
from msprobe.errors import InvalidInputError, MsprobeError, PathError
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

    limits: Limits = USUAL
    all_steps: bool = False
    partial: bool = False


@dataclass(frozen=True)
class Arrival:
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
    arrivals: tuple[Arrival, ...]


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


def find_first_overflow(
    path: StrPath, asked: Asked | None = None, progress: Callable[[str], None] | None = None
) -> OverflowAnswer:
    """Search the steps of a dump, in order, for the first bad value over all ranks.

    ``path`` is the folder of a dump, of a step or of a rank. Raises PathError if there is no dump, or a rank's folder
    has no ``dump.json``; InvalidInputError for a file that is broken, or a dump without statistics.
    """
    dump = open_dump(path)
    search = _Search(dump, asked or Asked())
    for number, step in enumerate(dump.steps, 1):
        if progress is not None:
            progress(Wording("step {}, {} of {}", step, number, len(dump.steps)))
        # What is read of a step stays until it is closed: no search for garbage finds any before.
        with no_collection():
            search.step(step)
        if search.nodes and not search.asked.all_steps:
            break
    return search.answer(str(path))


class _Search:
    def __init__(self, dump: Dump, asked: Asked) -> None:
        self.dump = dump
        self.asked = asked
        self.nodes: list[FirstNode] = []
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
                raise PathError(f'file "{file}" does not exist; give --partial to go on without this rank.')
            self._unread.append(in_words(step, rank, f"it has no {layout.DUMP_FILE}."))

    def step(self, step: int | None) -> None:
        """Look at all ranks of a step."""
        timelines: dict[Rank, Timeline] = {}
        self._steps += 1
        try:
            for rank in self.dump.ranks(step):
                try:
                    timelines[rank] = self._read(step, rank)
                except MsprobeError as problem:
                    if not self.asked.partial:
                        raise
                    self._unread.append(in_words(step, rank, problem.message))
            self._ranks |= timelines.keys()
            self._search(Moment(step, timelines))
        finally:
            for timeline in timelines.values():
                timeline.close()
                timeline.part.close()

    def _read(self, step: int | None, rank: Rank) -> Timeline:
        part = self.dump.part(step, rank, partial=self.asked.partial)
        try:
            self._records += len(part)
            if not part.complete:
                self._notes.append(Wording("{} was interrupted; its whole records are looked at", _place(step, rank)))
            names = self._wanted(part)
            return Timeline(part, only=names if self.asked.limits.by_words else None)
        except MsprobeError:
            part.close()
            raise

    def _wanted(self, part: DumpPart) -> Collection[str]:
        """The records that have to do with bad values, as their texts tell; all, where memory that nobody has written
        must be followed through the calls of a dump that does not mark it.
        """
        found: list[str] = []
        last = ""
        ours = bool(part.ours)
        with_nan = dict.fromkeys((False, True), 0)
        for name, text in part.texts():
            if not self._has_statistics:
                self._has_tensors |= b'"dtype"' in text
                self._has_statistics |= b'"Max"' in text
            if name.startswith(_ALWAYS):
                found.append(name)
            elif _NAN in text:
                backward = ".backward" in name
                with_nan[backward] += 1
                if with_nan[backward] <= _MOST_WITH_NAN:
                    found.append(name)
            elif any(word in text for word in _OTHER_WORDS):
                found.append(name)
            if not ours and "empty" in name and operation(read_name(name).stem) in operators.UNSET:
                return part.names()
            if name.endswith(".forward") or ".forward." in name:
                last = name
        wanted = {last, *found} - {""}
        # The forward call tells why a backward call makes what it makes.
        return wanted | {name for one in found if ".backward" in one and (name := _forward(one)) in part}

    def _search(self, moment: Moment) -> None:
        exchange = Exchange(moment.timelines)
        watchers = watch(moment, self.asked.limits)
        matters = any(watcher.counts for watcher in watchers.values())
        found = first_origins(exchange, watchers)
        for origin in found:
            self.nodes.append(_node(moment, origin, matters))
        self._notes += _dismissed(moment, watchers)
        if len(moment.timelines) > 1:
            self._notes += [remark for remark in exchange.remarks() if remark not in self._notes]
            self._unmatched += exchange.unmatched()
            self._mismatch = self._mismatch or exchange.mismatch()

    def answer(self, path: str) -> OverflowAnswer:
        """All that was found. Raises InvalidInputError if there was nothing to look at."""
        if not self._records:
            reason = f" {self._unread[0]}" if self._unread else ""
            raise InvalidInputError(f'"{path}" holds no record that can be read.{reason}')
        if self._has_tensors and not self._has_statistics and not self.nodes:
            raise InvalidInputError(
                f'"{path}" has no statistics of tensors (Max, Min), as with summary_mode md5 or task structure; '
                'record it again with task statistics and "summary_mode": "statistics".'
            )
        nodes = sorted(self.nodes, key=lambda node: (node.step or 0, node.finding.harmless, node.layer, str(node.rank)))
        return OverflowAnswer(
            status="clean" if not nodes else "harmless" if all(one.finding.harmless for one in nodes) else "found",
            dump=path,
            nodes=tuple(nodes),
            notes=tuple(dict.fromkeys((*self._notes, *missing_ranks(self.dump)))),
            unread=tuple(self._unread),
            unmatched=tuple(self._unmatched),
            mismatch=self._mismatch,
            steps=self._steps,
            ranks=len(self._ranks),
            records=self._records,
        )


def _place(step: int | None, rank: Rank) -> str:
    return place_in_words(step, rank)


def _forward(name: str) -> str:
    head, _, tail = name.rpartition(".backward")
    return f"{head}.forward{tail}"


def _dismissed(moment: Moment, watchers: dict[Rank, Watcher]) -> Iterator[str]:
    """One note on the infinities that were masked away again."""
    places = Places()
    for rank, watcher in watchers.items():
        for event, birth in watcher.births.items():
            if birth.dismissed:
                places.add(f"{_place(moment.step, rank)}: {event.name}")
    if places.count:
        yield Wording("infinities that are masked away again, and so do not count, are made in {}", places)


def _node(moment: Moment, origin: Origin, matters: bool) -> FirstNode:
    part = moment.timelines[origin.rank].part
    name = origin.event.name
    finding = finding_of(moment, origin, matters)
    record = part.record(name)
    return FirstNode(
        finding=replace(finding, evidence={"check": "overflow", **finding.evidence}),
        rank=origin.rank,
        step=moment.step,
        name=name,
        how=origin.how,
        value=origin.value,
        layer=origin.layer,
        record=record if isinstance(record, dict) else {"output": [record]},
        construct=tuple(_chain(part, name)),
        stack=tuple(part.stack(name)),
        input_share=_input_share(origin),
        arrivals=tuple(
            Arrival(rank, event.name, origin.first_bad[rank].name if rank in origin.first_bad else None)
            for rank, event in sorted(origin.reached.items(), key=_by_rank)
        ),
    )


def _by_rank(item: tuple[Rank, Event]) -> tuple[int, str]:
    rank = item[0]
    return (rank, "") if isinstance(rank, int) else (-1, rank)


def _chain(part: DumpPart, name: str) -> list[str]:
    """The modules that a call ran in, outermost first, and the call."""
    chain = [name]
    while True:
        above: Any = part.parent(chain[0])
        above = above[0] if isinstance(above, list) and above else above
        if not isinstance(above, str) or above in chain or above == "optimizer":
            return chain
        chain.insert(0, above)


def _input_share(origin: Origin) -> float | None:
    """The largest finite size among the inputs, as a share of the largest number that the result's type holds."""
    results = tensors(origin.event.outputs())
    largest = LARGEST.get(dtype_word(results[0])) if results else None
    sizes = [
        max(abs(found[0]), abs(found[1]))
        for leaf in tensors(origin.event.inputs())
        if not bad(leaf) and (found := numbers(leaf)) is not None
    ]
    return max(sizes) / largest if sizes and largest else None

"""One step of one rank, read and judged, with all its records at hand until it is closed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from msprobe.diagnose.check.bad_values import births
from msprobe.diagnose.differences.records import Comparer, fingerprint
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.one_step import measured, searched
from msprobe.diagnose.origin.step_facts import StepFacts
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.pairing.order import in_order
from msprobe.diagnose.pairing.step import pair_timelines
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.tensor_info import Known
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance.calibration import Calibration
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said
from msprobe.store.reader import Dump
from msprobe.view.by_hand import put_in
from msprobe.view.rows import TreeRow, rows_of, take_apart

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings


class JudgedStep:
    """What is known of one step of one rank: of the runs that have it, and of each pair of calls.

    ``judged`` holds what the diagnosis says of each pair, by the candidate's record; ``makers`` says which call made
    a tensor, for the candidate and for the reference, ``takers`` which calls take it; ``born`` the records in which NaN
    or infinities are born.
    """

    def __init__(self, candidate: Timeline | None, reference: Timeline | None, notes: tuple[str, ...]) -> None:
        self.candidate = candidate
        self.reference = reference
        self.notes = list(notes)
        self.pairing: Pairing | None = None
        self.comparer: Comparer | None = None
        self.judged: dict[Event, Judged] = {}
        self.makers: list[Producers] = []
        self.takers: list[dict[Hashable, list[Event]]] = []
        self.born: dict[Event, str] = {}
        self.rows: list[TreeRow] = []
        self.row_of: dict[Event, TreeRow] = {}

    @property
    def timelines(self) -> list[Timeline]:
        """Those that there are."""
        return [timeline for timeline in (self.candidate, self.reference) if timeline is not None]

    @property
    def records(self) -> int:
        """How many records are held."""
        return sum(map(len, self.timelines))

    def is_of_candidate(self, event: Event) -> bool:
        """True for a record of the candidate, or of the only run."""
        return self.candidate is not None and self.candidate.by_name.get(event.name) is event

    def makers_of(self, event: Event) -> Producers:
        """Who made the tensors of the side that a record is of."""
        return self.makers[0 if self.is_of_candidate(event) else -1]

    def close(self) -> None:
        """Let go of all records and files."""
        for timeline in self.timelines:
            timeline.close()
            timeline.part.close()
        take_apart(self.rows)
        self.rows, self.row_of, self.judged = [], {}, {}


def judge_pair(
    candidate: Dump,
    reference: Dump,
    mappings: Mappings | None = None,
    follows: bool = False,
    by_hand: Mapping[str, str] | None = None,
    healthy: Dump | None = None,
) -> JudgedStep:
    """Read and judge one step of one rank of two runs, as a comparison does it; each dump has one part.

    ``follows``: steps of both came before it; ``by_hand``: names of the candidate that answer to names of the
    reference, whatever the pairing says; ``healthy``: the same of a second healthy run.
    """
    with no_collection():
        calibration = measured(healthy, reference)
        timelines = _read(candidate, reference)
        try:
            return _judge_pair(timelines[0], timelines[1], mappings, follows, by_hand or {}, calibration)
        except BaseException:
            _close(timelines)
            raise


def judge_pairing(pairing: Pairing, comparer: Comparer, notes: tuple[str, ...] = ()) -> JudgedStep:
    """Judge two timelines whose calls were paired already."""
    return judged_step(StepFacts(pairing, comparer, first_step=False), notes)


def judged_step(facts: StepFacts, notes: tuple[str, ...]) -> JudgedStep:
    """What a comparison knows of a step, as the page needs it."""
    pairing = facts.pairing
    step = JudgedStep(pairing.candidate, pairing.reference, notes)
    step.pairing, step.comparer = pairing, facts.comparer
    step.judged = facts.judged
    step.makers = [side.makers for side in facts.sides]
    _finish(step, rows_of(in_order(pairing), (pairing.candidate, pairing.reference)))
    return step


def read_one(dump: Dump, is_reference: bool = False) -> JudgedStep:
    """Read one step of one rank of a single run, or of the only run that has it; the dump has one part."""
    with no_collection():
        timelines = _read(dump)
        try:
            add_digests(timelines[0])
            return judge_one(timelines[0], is_reference)
        except BaseException:
            _close(timelines)
            raise


def _judge_pair(
    candidate: Timeline,
    reference: Timeline,
    mappings: Mappings | None,
    follows: bool,
    by_hand: Mapping[str, str],
    calibration: Calibration,
) -> JudgedStep:
    paired = pair_timelines(candidate, reference, mappings, follows)
    notes = (*paired.unseen, *put_in(by_hand, paired.pairing))
    return judged_step(searched(paired, calibration), notes)


def judge_one(timeline: Timeline, is_reference: bool = False) -> JudgedStep:
    """What is known of one timeline alone."""
    step = JudgedStep(None, timeline, ()) if is_reference else JudgedStep(timeline, None, ())
    step.makers = [Producers(timeline)]
    pairs = (((None, event) if is_reference else (event, None)) for event in timeline)
    _finish(step, rows_of(pairs, (timeline,)))
    return step


def _finish(step: JudgedStep, rows: list[TreeRow]) -> None:
    step.rows = rows
    for row in rows:
        if row.candidate is not None:
            step.row_of[row.candidate] = row
        if row.reference is not None:
            step.row_of[row.reference] = row
    for timeline in step.timelines[:1]:
        step.born = births(timeline)
    # Asked for with the first row; then it would be waited for.
    step.takers = [_takers(timeline) for timeline in step.timelines]
    for timeline in step.timelines:
        timeline.part.stack("")
    sides = (step.candidate, "candidate"), (step.reference, "reference")
    for timeline, side in [(timeline, side) for timeline, side in sides if timeline is not None]:
        whose = said("the-side", side) if len(step.timelines) > 1 else "the recording"
        if not timeline.part.complete:
            step.notes.append(said("interrupted-shown", whose))
        if not timeline.events:
            step.notes.append(said("no-record-of-step", whose))


def _read(*dumps: Dump) -> list[Timeline]:
    timelines: list[Timeline] = []
    known: Known = {}
    try:
        for dump in dumps:
            part = dump.part()
            try:
                timelines.append(Timeline(part, known=known))
            except BaseException:
                part.close()
                raise
    except BaseException:
        _close(timelines)
        raise
    return timelines


def _close(timelines: list[Timeline]) -> None:
    for timeline in timelines:
        timeline.close()
        timeline.part.close()


def _takers(timeline: Timeline) -> dict[Hashable, list[Event]]:
    takers: dict[Hashable, list[Event]] = {}
    for event in timeline:
        if event.is_call or event.parts.kind == "optimizer":
            for _, leaf in event.inputs():
                mark = fingerprint(leaf)
                if mark is not None:
                    takers.setdefault(mark, []).append(event)
    return takers

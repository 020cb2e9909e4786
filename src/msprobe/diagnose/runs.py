"""Compare two runs: all steps and ranks that both have, one verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.effect.leftover import Left, gradients_left
from msprobe.diagnose.effect.movement import weights_of
from msprobe.diagnose.effect.reach import Reach, reach_of, tolerance, tolerance_of_frameworks, unit_of
from msprobe.diagnose.findings import Status, Verdict
from msprobe.diagnose.layout.annotation import read_annotations
from msprobe.diagnose.layout.compare import ComparedLayouts, Layouts, notes_of_layouts, summary_of_layouts
from msprobe.diagnose.layout.detect import layouts_differ
from msprobe.diagnose.origin.beyond_rounding import beyond_rounding
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.search import search
from msprobe.diagnose.pairing.compiled import leave_out_unseen
from msprobe.diagnose.pairing.lone import lone_calls
from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.pairing.translation import NOTE, translate
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.calibration import MARGIN, NO_CALIBRATION, Calibration, calibrate
from msprobe.diagnose.verdict.calls import StepCalls, calls_of
from msprobe.diagnose.verdict.common import Rank, Step, StepPair, in_common
from msprobe.diagnose.verdict.conclusion import MOST_FINDINGS, Compared, across_ranks, agreeing_of, conclude
from msprobe.diagnose.verdict.recordings import (
    cannot_be_compared,
    leave_out_unrecorded,
    look_for_steps_in_one,
    precision_apart,
)
from msprobe.diagnose.verdict.summary import counts_of, listed, notes_on, summary_of
from msprobe.engine import Engine, Workers, run
from msprobe.errors import InvalidInputError
from msprobe.paths import StrPath
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump, open_dump

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings

Progress = Callable[[str], None]
_Place = tuple[Step, Rank]


def compare_runs(
    candidate: StrPath,
    reference: StrPath,
    progress: Progress | None = None,
    with_calls: bool = False,
    noise: StrPath | None = None,
    jobs: int | None = None,
    engine: Engine = "local",
    layout: StrPath | None = None,
    mappings: Mappings | None = None,
) -> Verdict:
    """Say where two recorded trainings part.

    ``candidate`` and ``reference`` are folders of dumps (a whole dump, a step, a rank, or a ``dump.json``).
    ``progress`` is told which part is compared next; ``with_calls`` fills :attr:`Verdict.calls`.
    ``noise`` is the dump of a second healthy run, from which it is measured what each call may differ by.
    ``jobs`` ranks of a step are compared at once, with the same result: in processes of this machine, or on a Ray
    cluster (see :class:`msprobe.engine.Workers`).
    ``layout`` is an annotation file: how runs of other parallel layouts lie on their ranks, where the dumps do not say
    it (see ``docs/verdict.md``).
    ``mappings``: names of functions and modules of MindSpore and what they are in PyTorch, where these do not answer to
    each other by themselves (see :func:`msprobe.compare.mapping.load_mappings`).
    Raises PathError or InvalidInputError if one of them cannot be read, or ``noise`` has no part in common with the
    reference; NotAvailableError if what ``jobs`` and ``engine`` need is not installed.
    """
    workers = Workers(jobs, engine)
    one, other = open_dump(candidate), open_dump(reference)
    annotations = {} if layout is None else read_annotations(layout)
    healthy = {} if noise is None else _healthy_parts(noise, other)
    common = in_common(one, other)
    if annotations or _layouts_differ(one, other, common.steps):
        common = in_common(one, other, by_rank=False)
    notes, findings = list(common.notes), list(common.findings)
    if not common.steps:
        notes.append("no step of one dump is in the other")
        return Verdict("incomparable", str(candidate), str(reference), tuple(findings), tuple(notes))
    status: Status = "agree"
    done: list[Compared] = []
    compared = False
    shown: StepCalls | None = None
    tell = _Telling(progress, sum(len(step.ranks) for step in common.steps))
    steps = _Steps(one, other, healthy, tell, with_calls, workers, mappings)
    layouts, whole = Layouts(annotations), list[ComparedLayouts]()
    excused: set[str] = set()
    unlike: list[str] = []
    for number, step in enumerate(common.steps):
        if not step.ranks:
            tell.all_ranks(step)
            found_whole = _compare_layouts(layouts, one, other, step, number == 0 and step.candidate in (None, 0))
            whole.append(found_whole)
            findings += found_whole.findings[:MOST_FINDINGS]
            compared |= found_whole.compared
            status = _worse(status, "diverged" if found_whole.findings else "agree")
        else:
            results = steps.compare(step)
            done += [replace(result, calls=None) for result in results]
            shown = shown or results[0].calls
            unlike += [result.unlike for result in results if result.unlike]
            if unlike or not any(result.summary["pairs"] for result in results):
                continue
            compared = True
            following = common.steps[number + 1] if number + 1 < len(common.steps) else None
            suspects = [one for one in across_ranks(results) if one.shows_later not in excused]
            answer, found, rank = conclude(results, suspects, partial(steps.reach_in, following), following is not None)
            findings += found
            if answer != "diverged":
                excused.update(one.shows_later for one in suspects if one.shows_later)
            if found and (status == "agree" or answer == "diverged"):
                shown = next((result.calls for result in results if result.rank == rank), shown)
            status = _worse(status, answer)
        if status == "diverged":
            break
    lone = list(dict.fromkeys(name for result in done for name in result.lone))
    if compared and status == "agree" and lone and all(result.values for result in done):
        notes.append(f"calls of one side alone, which change nothing that was recorded: {listed(lone)}")
    if compared and whole:
        notes += notes_of_layouts(whole)
        if healthy:
            notes.append("the second healthy run is not used: it measures calls, and in other layouts none answer")
    if not compared:
        status = "incomparable"
        notes += dict.fromkeys(unlike) or [
            "no numbers were recorded, and runs in other layouts are compared by what their tensors hold"
            if any(result.counts["pairs"] for result in whole)
            else "no call of one dump answers to any of the other"
        ]
    notes += list(dict.fromkeys(note for result in done for note in result.notes))
    if mappings and done and not any(result.crossing for result in done):
        notes.append("the mappings are not used: they are of names in MindSpore and in PyTorch")
    if compared and status == "agree" and any(result.crossing for result in done):
        notes.append(_apart_in_words(done))
    summary = summary_of(done, len(common.steps), common.lone_steps)
    if whole:
        summary |= summary_of_layouts(whole)
    return Verdict(status, str(candidate), str(reference), tuple(findings), tuple(notes), summary, shown)


def _apart_in_words(done: Sequence[Compared]) -> str:
    """How far two frameworks are apart, which agree: less than a mistake would make, and not nothing."""
    first = max(result.reach.size for result in done if result.step == done[0].step)
    later = max((result.reach.size for result in done if result.step != done[0].step), default=0.0)
    text = f"loss and gradients are apart by {first:.1g} (relative) at most in the first step"
    return text + (f", and by {later:.1g} in later ones, as optimizers carry rounding on" if later > first else "")


def _healthy_parts(noise: StrPath, reference: Dump) -> dict[_Place, Dump]:
    """The parts of the second healthy run by step and rank of the reference. Raises InvalidInputError if there are
    none.
    """
    healthy = open_dump(noise)
    found = {
        (step.reference, twin): healthy.only(step.candidate, rank)
        for step in in_common(healthy, reference).steps
        # Another step measures nothing; a folder of a rank by itself has no number.
        if step.candidate == step.reference or None in (step.candidate, step.reference)
        for rank, twin in step.ranks
    }
    if not found:
        raise InvalidInputError(
            f'noise: "{noise}" has no step and rank in common with the reference "{reference.path}"; '
            "give a second healthy run of the same training."
        )
    return found


def _layouts_differ(one: Dump, other: Dump, steps: Sequence[StepPair]) -> bool:
    """True if ranks of one number do not answer to each other, as the first step that both have tells."""
    if not steps or not steps[0].ranks:
        return False  # nothing to compare, or no rank in common
    if len(one.ranks(steps[0].candidate)) == len(other.ranks(steps[0].reference)) == 1:
        return False
    left, right = _parts(one, steps[0].candidate), _parts(other, steps[0].reference)
    try:
        return layouts_differ(left, right)
    finally:
        for part in (*left, *right):
            part.close()


def _compare_layouts(layouts: Layouts, one: Dump, other: Dump, step: StepPair, first: bool) -> ComparedLayouts:
    """Compare a step of two runs of which no rank answers to another."""
    with no_collection():
        return layouts.compare(_parts(one, step.candidate), _parts(other, step.reference), first)


def _parts(dump: Dump, step: Step) -> list[DumpPart]:
    return [dump.part(step, rank) for rank in dump.ranks(step)]


class _Telling:
    """Says which part is compared, where somebody wants to know."""

    def __init__(self, progress: Progress | None, parts: int) -> None:
        self._progress = progress
        self._parts = parts
        self._before = 0

    def __call__(self, step: StepPair, number: int) -> None:
        """Say that the work is at the rank of this number in this step."""
        if self._progress is not None:
            rank = step.ranks[number][0]
            words = [f"step {step.candidate}"] if step.candidate is not None else []
            words += [f"rank {rank}"] if isinstance(rank, int) else []
            self._progress(", ".join([*words, f"{self._before + number + 1} of {self._parts}"]))

    def all_ranks(self, step: StepPair) -> None:
        """Say that the work is at a step in which ranks do not answer to each other."""
        if self._progress is not None:
            self._progress("all ranks" if step.candidate is None else f"step {step.candidate}, all ranks")

    def done(self, step: StepPair) -> None:
        """All ranks of a step are done."""
        self._before += len(step.ranks)


@dataclass(frozen=True)
class _Task:
    """One step of one rank to compare, with all that is to be known of it in another process.

    Each dump has one part. ``before``: how far the differences of the step before reach. ``left``: the
    gradients that it left behind, in the candidate and in the reference. ``weights``: what weights were in it.
    ``steps``: how many steps each side has.
    """

    candidate: Dump
    reference: Dump
    healthy: Dump | None
    first: bool
    before: Reach
    left: tuple[Mapping[str, Left], Mapping[str, Left]]
    weights: Mapping[str, tuple[Any, Any]]
    mappings: Mappings | None
    with_calls: bool
    steps: tuple[int, int] = (1, 1)


class _Steps:
    """Compares one step after the other, the ranks of each side by side; a step knows what the one before left."""

    def __init__(
        self,
        one: Dump,
        other: Dump,
        healthy: dict[_Place, Dump],
        tell: _Telling,
        with_calls: bool,
        workers: Workers,
        mappings: Mappings | None,
    ) -> None:
        self._dumps = one, other
        self._healthy = healthy
        self._tell = tell
        self._with_calls = with_calls
        self._workers = workers
        self._mappings = mappings
        self._first = True
        self._reached: dict[Rank, Reach] = {}
        self._left: dict[Rank, tuple[Mapping[str, Left], Mapping[str, Left]]] = {}
        self._weights: dict[Rank, Mapping[str, tuple[Any, Any]]] = {}

    def compare(self, step: StepPair) -> list[Compared]:
        """All ranks of a step."""
        results = list(run(_compare, self._tasks(step, self._with_calls), self._workers, partial(self._tell, step)))
        self._tell.done(step)
        self._reached = {result.rank: result.reach for result in results}
        self._left = {result.rank: result.left for result in results}
        self._weights = {result.rank: result.weights for result in results}
        self._first = False
        return results

    def reach_in(self, step: StepPair | None) -> float:
        """How far differences reach in the step that follows: its weights, or all of it where these are not known."""
        if step is None:
            return 0.0
        results = run(_compare, self._tasks(step, with_calls=False), self._workers)
        return max((_brought(result.reach) for result in results), default=0.0)

    def _tasks(self, step: StepPair, with_calls: bool) -> list[_Task]:
        one, other = self._dumps
        return [
            _Task(
                one.only(step.candidate, rank),
                other.only(step.reference, twin),
                self._healthy.get((step.reference, twin)),
                self._first and step.candidate in (None, 0),
                self._reached.get(rank, Reach()),
                self._left.get(rank, ({}, {})),
                self._weights.get(rank, {}),
                self._mappings,
                with_calls,
                (len(one.steps), len(other.steps)),
            )
            for rank, twin in step.ranks
        ]


def _brought(reach: Reach) -> float:
    return reach.size if reach.at_start is None else reach.at_start


def parts_in_common(candidate: StrPath, reference: StrPath) -> list[tuple[Dump, Dump]]:
    """The steps and ranks that :func:`compare_runs` compares; each dump has one part."""
    one, other = open_dump(candidate), open_dump(reference)
    return [
        (one.only(step.candidate, rank), other.only(step.reference, twin))
        for step in in_common(one, other).steps
        for rank, twin in step.ranks
    ]


def _compare(task: _Task) -> Compared:
    """Do a task."""
    with no_collection():
        return _compare_part(task, _calibrate(task))


def _calibrate(task: _Task) -> Calibration:
    if task.healthy is None:
        return NO_CALIBRATION
    healthy, reference = task.healthy.part(), task.reference.part()
    try:
        return calibrate(healthy, reference)
    finally:
        healthy.close()
        reference.close()


def _compare_part(task: _Task, calibration: Calibration) -> Compared:
    left, right = task.candidate.part(), task.reference.part()
    try:
        timelines = Timeline(left), Timeline(right)
        crossing = translate(*timelines, task.mappings)
        if not crossing:
            add_digests(*timelines)
        unseen = leave_out_unseen(*timelines)
        leave_out_unrecorded(*timelines)
        pairing = pair(*timelines)
        comparer = Comparer(left, right)
        comparer.crossing, comparer.follows = crossing, bool(task.weights)
        comparer.measured_noise, comparer.measured_inputs = calibration.allowed, calibration.allowed_inputs
        scene = Scene(pairing, comparer, task.first)
        scene.apart_before, scene.states_before = task.before.gradients, task.before.states
        scene.left_before, scene.weights_before = task.left, task.weights
        scene.untouched = task.before.untouched
        look_for_steps_in_one(scene, task.steps)
        suspects = search(scene)
        reach = reach_of(pairing, scene.judged, comparer, task.before, scene.makers)
        reach = replace(reach, untouched=scene.untouched)
        compared = Compared(
            step=left.step,
            rank=left.rank,
            suspects=suspects,
            reach=reach,
            tolerance=max(_tolerance(scene), MARGIN * calibration.reach),
            doubts=scene.doubts,
            unlike=cannot_be_compared(pairing),
            summary=counts_of(pairing, scene),
            notes=[*([NOTE] if crossing else []), *notes_on(pairing, scene), *unseen],
            interrupted=tuple(side for side, part in (("candidate", left), ("reference", right)) if not part.complete),
            values=scene.has_values,
            carried=task.before.size > 0.0,
            collectives=[event.index for event in pairing.candidate if event.is_collective],
            calls=calls_of(scene) if task.with_calls else None,
            lone=lone_calls(pairing),
            left=(gradients_left(timelines[0]), gradients_left(timelines[1])),
            weights=weights_of(pairing.partner.items(), scene.makers) if crossing else {},
            crossing=crossing,
            precision=() if crossing else precision_apart(left, right),
        )
        compared = replace(compared, beyond=beyond_rounding(scene, reach, agreeing_of(compared)))
        for timeline in timelines:
            timeline.close()
        return compared
    finally:
        left.close()
        right.close()


def _tolerance(scene: Scene) -> float:
    judged = scene.judged.values()
    if not scene.comparer.crossing:
        return tolerance(judged)
    return max(tolerance(judged), tolerance_of_frameworks(unit_of(judged), scene.comparer.weights_apart))


def _worse(one: Status, other: Status) -> Status:
    order: list[Status] = ["agree", "harmless", "diverged", "incomparable"]
    return max(one, other, key=order.index)

"""Compare two runs: all steps and ranks that both have, one verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from msprobe.diagnose.all_steps import Place, PlaceOfWork, Progress, Steps
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding, Status, Verdict
from msprobe.diagnose.layout.detect import layouts_differ
from msprobe.diagnose.one_step import Keep
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.verdict.common import Step, StepPair, in_common
from msprobe.diagnose.verdict.conclusion import across_ranks, conclude
from msprobe.diagnose.verdict.over_steps import findings_over_steps
from msprobe.diagnose.verdict.recordings import two_models
from msprobe.diagnose.verdict.running import Running
from msprobe.diagnose.verdict.unaveraged import name_unaveraged
from msprobe.engine import Engine, Workers
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump, open_dump

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings
    from msprobe.diagnose.layout.annotation import Annotation
    from msprobe.diagnose.layout.compare import ComparedLayouts, LayoutCounts, Layouts


_NO_STEP = said("no-step-in-common")
_OF_ITSELF = said("same-dump")


def compare_runs(
    candidate: StrPath,
    reference: StrPath,
    progress: Progress | None = None,
    noise: StrPath | None = None,
    jobs: int | None = None,
    engine: Engine = "local",
    layout: StrPath | None = None,
    mappings: Mappings | None = None,
    keep: Keep | None = None,
    is_known: Callable[[Finding], bool] = lambda _: False,
) -> Verdict:
    """Say where two recorded trainings part.

    ``candidate`` and ``reference`` are folders of dumps (a whole dump, a step, a rank, or a ``dump.json``).
    ``progress`` gets what is compared next.
    ``noise`` is the dump of a second healthy run, from which it is measured what each call may differ by.
    ``jobs`` ranks of a step are compared at once, with the same result: in processes of this machine, or on a Ray
    cluster (see :class:`msprobe.engine.Workers`).
    ``layout`` is an annotation file: how runs of other parallel layouts lie on their ranks, where the dumps do not say
    it (see ``docs/verdict.md``).
    ``mappings``: names of functions and modules of MindSpore and what they are in PyTorch, where these do not answer to
    each other by themselves (see :func:`msprobe.compare.mapping.load_mappings`).
    ``keep`` is given what is known of each step of a rank, and may go on looking at it; not if others than this process
    compare them. ``is_known``: a finding that is not to be reported, nor to end the search.
    Raises PathError or InvalidInputError if one of them cannot be read, or ``noise`` has no part in common with the
    reference; NotAvailableError if what ``jobs`` and ``engine`` need is not installed.
    """
    workers = Workers(jobs, engine)
    first, other = open_dump(candidate), open_dump(reference)
    annotations = {} if layout is None else _annotations_in(layout)
    if noise is not None and any(are_one_dump(noise, dump) for dump in (candidate, reference)):
        raise InvalidInputError(said("noise-is-compared", noise))
    healthy = {} if noise is None else healthy_parts(noise, other)
    common = in_common(first, other)
    if annotations or _layouts_differ(first, other, common.steps):
        common = in_common(first, other, by_rank=False)
    notes = [*([_OF_ITSELF] if are_one_dump(candidate, reference) else []), *common.notes]
    if not common.steps:
        notes.append(_NO_STEP)
        return Verdict("incomparable", str(candidate), str(reference), common.findings, tuple(notes), reason=_NO_STEP)
    running = Running(common.findings)
    layouts, whole = _layouts_found(annotations) if any(not step.ranks for step in common.steps) else (None, None)
    for lacking in common.without_rank:
        running.leave_out(lacking, said("no-rank-in-common"))
    status: Status = "agree"
    compared = False
    place = PlaceOfWork(progress, sum(len(step.ranks) for step in common.steps))
    steps = Steps(first, other, healthy, place, workers, mappings, keep)
    excused: set[str] = set()
    for number, step in enumerate(common.steps):
        if layouts is not None and whole is not None and not step.ranks:
            place.all_ranks(step)
            found_whole = _compare_layouts(layouts, first, other, step, number == 0 and step.candidate in (None, 0))
            whole.add(found_whole)
            running.add_layouts(step.candidate, found_whole)
            compared |= found_whole.compared
            status = _worse(status, "diverged" if found_whole.findings else "agree")
        else:
            results = steps.compare(step)
            results = running.add(results)
            if not any(result.summary["pairs"] for result in results):
                continue
            compared = True
            following = common.steps[number + 1] if number + 1 < len(common.steps) else None
            suspects = [suspect for suspect in across_ranks(results) if suspect.shows_later not in excused]
            suspects = [suspect for suspect in suspects if not is_known(suspect.finding)]
            suspects = name_unaveraged(results, suspects)
            answer, findings = conclude(results, suspects, partial(steps.reach_in, following), following is not None)
            other_model = two_models(result.answering for result in results) if answer == "diverged" else ""
            if other_model and number == 0:
                compared = False
                running.leave_out(step.candidate, other_model, len(results))
                break
            running.keep(step.candidate, findings)
            if answer != "diverged":
                excused.update(suspect.shows_later for suspect in suspects if suspect.shows_later)
            status = _worse(status, answer)
        if status == "diverged":
            break
    by_layout = not common.steps[0].ranks
    if compared and status == "agree" and running.lone and running.compared.values:
        notes.append(said("extra-calls-without-effect", listed(running.lone, 5)))
    if compared and by_layout and whole is not None:
        from msprobe.diagnose.layout.compare import notes_of_layouts

        notes += notes_of_layouts(whole)
        if healthy:
            notes.append(said("healthy-run-not-used"))
    reasons: list[str] = []
    if not compared:
        status = "incomparable"
        reasons = running.reasons() or [
            said("layouts-need-values")
            if by_layout and whole is not None and whole.pairs
            else said("no-call-in-common")
        ]
        notes += reasons
    notes += running.notes()
    if compared:
        notes += running.notes_on_gaps()
    if mappings and not by_layout and not running.crossing:
        notes.append(said("mappings-not-used"))
    if compared and status == "agree" and running.crossing:
        notes.append(running.reach_in_words())
    if compared and healthy and not by_layout:
        notes += _without_healthy(common.steps, healthy)
    summary = running.summary(len(common.steps) + len(common.without_rank), common.only_on_one_side)
    if by_layout and whole is not None:
        summary |= whole.summary()
    return Verdict(
        status,
        str(candidate),
        str(reference),
        tuple(findings_over_steps(running.findings, summary["steps_compared"], running.effect)),
        tuple(dict.fromkeys(notes)),
        summary,
        tuple(running.apart),
        reasons[0] if reasons else "",
        tuple(running.not_compared),
    )


def _without_healthy(steps: Sequence[StepPair], healthy: Mapping[Place, Dump]) -> list[str]:
    """A remark on the steps and ranks of which the second healthy run has none."""
    places = [(step.reference, twin) for step in steps for _, twin in step.ranks]
    lacking = sum(place not in healthy for place in places)
    text = said("healthy-run-lacks-ranks", lacking, len(places))
    return [text] if lacking else []


def healthy_parts(noise: StrPath, reference: Dump) -> dict[Place, Dump]:
    """The parts of the second healthy run by step and rank of the reference. Raises InvalidInputError if there are
    none.
    """
    healthy = open_dump(noise)
    parts = {
        (step.reference, twin): healthy.only(step.candidate, rank)
        for step in in_common(healthy, reference).steps
        # Another step measures nothing; a folder of a rank by itself has no number.
        if step.candidate == step.reference or None in (step.candidate, step.reference)
        for rank, twin in step.ranks
    }
    if not parts:
        raise InvalidInputError(said("noise-without-common-step", noise, reference.path))
    return parts


def _annotations_in(layout: StrPath) -> dict[str, Annotation]:
    from msprobe.diagnose.layout.annotation import read_annotations  # who needs it is in no hurry, others start with it

    return read_annotations(layout)


def _layouts_found(annotations: dict[str, Annotation]) -> tuple[Layouts, LayoutCounts]:
    from msprobe.diagnose.layout.compare import LayoutCounts, Layouts  # a tenth of the start, which few runs need

    return Layouts(annotations), LayoutCounts()


def _layouts_differ(first: Dump, other: Dump, steps: Sequence[StepPair]) -> bool:
    """True if ranks of one number do not answer to each other, as the first step that both have says."""
    if not steps or not steps[0].ranks:
        return False  # nothing to compare, or no rank in common
    if len(first.ranks(steps[0].candidate)) == len(other.ranks(steps[0].reference)) == 1:
        return False
    left, right = _PartsInTurn(first, steps[0].candidate), _PartsInTurn(other, steps[0].reference)
    try:
        return layouts_differ(left, right)
    finally:
        left.close()
        right.close()


class _PartsInTurn(Sequence[DumpPart]):
    """The ranks of a step, of which one is open at a time: the last that was asked for."""

    def __init__(self, dump: Dump, step: Step) -> None:
        self._dump, self._step = dump, step
        self._ranks = dump.ranks(step)
        self._open: tuple[int, DumpPart] | None = None

    def __len__(self) -> int:
        return len(self._ranks)

    @overload
    def __getitem__(self, number: int) -> DumpPart: ...

    @overload
    def __getitem__(self, number: slice) -> list[DumpPart]: ...

    def __getitem__(self, number: int | slice) -> DumpPart | list[DumpPart]:
        if isinstance(number, slice):
            raise TypeError(said("one-rank-at-a-time"))
        if self._open is None or self._open[0] != number:
            rank = self._ranks[number]
            self.close()
            self._open = number, self._dump.part(self._step, rank)
        return self._open[1]

    def close(self) -> None:
        """Let go of the last one."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _compare_layouts(layouts: Layouts, ours: Dump, other: Dump, step: StepPair, first: bool) -> ComparedLayouts:
    """Compare a step of two runs of which no rank answers to another."""
    with no_collection():
        return layouts.compare(_parts(ours, step.candidate), _parts(other, step.reference), first)


def _parts(dump: Dump, step: Step) -> list[DumpPart]:
    return [dump.part(step, rank) for rank in dump.ranks(step)]


def parts_in_common(candidate: StrPath, reference: StrPath) -> list[tuple[Dump, Dump]]:
    """The steps and ranks that :func:`compare_runs` compares; each dump has one part."""
    first, other = open_dump(candidate), open_dump(reference)
    return [
        (first.only(step.candidate, rank), other.only(step.reference, twin))
        for step in in_common(first, other).steps
        for rank, twin in step.ranks
    ]


def are_one_dump(first: StrPath, other: StrPath) -> bool:
    """True if two paths lead to the same folder, or one into the other, and a part would be compared with itself."""
    here, there = Path(os.path.realpath(first)), Path(os.path.realpath(other))
    if not (here.is_relative_to(there) or there.is_relative_to(here)):
        return False
    for left, right in parts_in_common(first, other):
        parts = left.part(), right.part()
        same = os.path.samefile(parts[0].folder, parts[1].folder)
        for part in parts:
            part.close()
        if same:
            return True
    return False


def _worse(first: Status, other: Status) -> Status:
    order: list[Status] = ["agree", "harmless", "diverged", "incomparable"]
    return max(first, other, key=order.index)

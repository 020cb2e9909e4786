"""Compare two runs: all steps and ranks that both have, one verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msprobe.diagnose.calibration import MARGIN, NO_CALIBRATION, Calibration, calibrate
from msprobe.diagnose.calls import StepCalls, calls_of
from msprobe.diagnose.common import Rank, Step, StepPair, in_common
from msprobe.diagnose.differences import Comparer
from msprobe.diagnose.effect import Reach, reach_of, tolerance
from msprobe.diagnose.findings import Finding, Status, Verdict
from msprobe.diagnose.layouts import compare_layouts
from msprobe.diagnose.origin import search
from msprobe.diagnose.pairing import Pairing, pair
from msprobe.diagnose.scene import Scene, Suspect
from msprobe.diagnose.timeline import Timeline
from msprobe.paths import StrPath
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump, open_dump

Progress = Callable[[str], None]
MOST_FINDINGS = 100
#: Findings that say what is done otherwise, and findings that a result is further off than expected.
_FACTS = frozenset(("structure", "argument", "dtype", "data", "initial_weights", "mutation"))
_MEASURED = frozenset(("computation", "gradient", "parameter_gradient", "recompute"))


@dataclass(frozen=True)
class Compared:
    """What came out for one step of one rank."""

    step: int | None
    rank: Rank
    suspects: list[Suspect]
    reach: Reach
    tolerance: float
    summary: dict[str, Any]
    notes: list[str]
    collectives: list[int]
    calls: StepCalls | None = None


def compare_runs(
    candidate: StrPath,
    reference: StrPath,
    progress: Progress | None = None,
    with_calls: bool = False,
    noise: StrPath | None = None,
) -> Verdict:
    """Say where two recorded trainings part.

    ``candidate`` and ``reference`` are folders of dumps (a whole dump, a step, a rank, or a ``dump.json``).
    ``progress`` is told which part is compared next; ``with_calls`` fills :attr:`Verdict.calls`.
    ``noise`` is the dump of a second healthy run, from which it is measured what each call may differ by.
    Raises PathError or InvalidInputError if one of them cannot be read.
    """
    one, other = open_dump(candidate), open_dump(reference)
    healthy = None if noise is None else open_dump(noise)
    common = in_common(one, other)
    notes, findings = list(common.notes), list(common.findings)
    if not common.steps:
        notes.append("no step of one dump is in the other")
        return Verdict("incomparable", str(candidate), str(reference), tuple(findings), tuple(notes))
    status: Status = "agree"
    done: list[Compared] = []
    compared = False
    shown: StepCalls | None = None
    tell = _Telling(progress, sum(len(step.ranks) for step in common.steps))
    steps = _Steps(one, other, healthy, tell, with_calls)
    for number, step in enumerate(common.steps):
        if not step.ranks:
            found, remarks = _layouts(one, other, step, first=number == 0)
            findings += found
            notes += [remark for remark in remarks if remark not in notes]
            compared |= bool(remarks)
            status = _worse(status, "diverged" if found else "agree")
        else:
            results = steps.compare(step)
            done += [replace(result, calls=None) for result in results]
            shown = shown or results[0].calls
            if not any(result.summary["pairs"] for result in results):
                continue
            compared = True
            following = common.steps[number + 1] if number + 1 < len(common.steps) else None
            answer, found, rank = _conclude(results, partial(steps.reach_in, following))
            findings += found
            if found and (status == "agree" or answer == "diverged"):
                shown = next((result.calls for result in results if result.rank == rank), shown)
            status = _worse(status, answer)
        if status == "diverged":
            break
    if not compared:
        status = "incomparable"
        notes.append("no call of one dump answers to any of the other")
    notes += list(dict.fromkeys(note for result in done for note in result.notes))
    summary = _summary(done, len(common.steps))
    return Verdict(status, str(candidate), str(reference), tuple(findings), tuple(notes), summary, shown)


def _conclude(
    results: Sequence[Compared], reach_later: Callable[[], float]
) -> tuple[Status, list[Finding], Rank | None]:
    """What the suspects of a step amount to: status, findings in order, and the rank at fault."""
    found = across_ranks(results)
    if not found:
        return "agree", [], None
    clear = [suspect for suspect in found if suspect.clear]
    reach = max(result.reach.size for result in results)
    allowed = max(result.tolerance for result in results)
    if reach <= allowed:
        # What the optimizer does shows in the weights of the next step.
        reach = max(reach, reach_later())
    harmless = reach <= allowed
    quiet = [suspect for suspect in found if suspect.finding.kind == "argument" and not suspect.clear]
    if harmless and quiet and not clear:
        return "harmless", [replace(suspect.finding, harmless=True) for suspect in quiet[:10]], None
    if not clear and reach <= 10 * allowed:
        return "agree", [], None
    chosen = clear or found
    if found[0].finding.kind in _FACTS and all(suspect.finding.kind in _MEASURED for suspect in clear):
        # What was done otherwise comes before what came out of it.
        chosen = [found[0], *(suspect for suspect in clear if suspect is not found[0])]
    ordered = [*chosen, *(suspect for suspect in found if suspect not in chosen)]
    harmless = harmless and not any(suspect.matters for suspect in ordered)
    findings = [replace(suspect.finding, harmless=harmless) for suspect in ordered[:MOST_FINDINGS]]
    return "harmless" if harmless else "diverged", findings, findings[0].rank


def _layouts(one: Dump, other: Dump, step: StepPair, first: bool) -> tuple[list[Finding], list[str]]:
    """Compare a step of two runs that have no rank in common."""
    left = [one.part(step.candidate, rank) for rank in one.ranks(step.candidate)]
    right = [other.part(step.reference, rank) for rank in other.ranks(step.reference)]
    try:
        return compare_layouts(left, right, first)
    finally:
        for part in (*left, *right):
            part.close()


class _Telling:
    """Says which part is compared, where somebody wants to know."""

    def __init__(self, progress: Progress | None, parts: int) -> None:
        self._progress = progress
        self._parts = parts
        self._begun = 0

    def next(self, step: Step, rank: Rank) -> None:
        self._begun += 1
        if self._progress is not None:
            words = [f"step {step}"] if step is not None else []
            words += [f"rank {rank}"] if isinstance(rank, int) else []
            self._progress(", ".join([*words, f"{self._begun} of {self._parts}"]))


class _Steps:
    """Compares one step after the other; each knows what the one before left behind."""

    def __init__(self, one: Dump, other: Dump, healthy: Dump | None, tell: _Telling, with_calls: bool) -> None:
        self._dumps = one, other
        self._healthy = healthy
        self._tell = tell
        self._with_calls = with_calls
        self._first = True
        self._vanishing: dict[Rank, frozenset[str]] = {}

    def compare(self, step: StepPair) -> list[Compared]:
        """All ranks of a step."""
        results = []
        for rank, twin in step.ranks:
            self._tell.next(step.candidate, rank)
            results.append(self._part(step, rank, twin, self._with_calls))
        self._vanishing = {result.rank: result.reach.vanishing for result in results}
        self._first = False
        return results

    def reach_in(self, step: StepPair | None) -> float:
        """How far differences reach in the step that follows."""
        if step is None:
            return 0.0
        return max((self._part(step, rank, twin, False).reach.size for rank, twin in step.ranks), default=0.0)

    def _part(self, step: StepPair, rank: Rank, twin: Rank, with_calls: bool) -> Compared:
        vanishing = self._vanishing.get(rank, frozenset())
        places = (step.candidate, rank), (step.reference, twin)
        calibration = self._calibrate(step, twin)
        return _compare_part(*self._dumps, *places, self._first, vanishing, with_calls, calibration)

    def _calibrate(self, step: StepPair, rank: Rank) -> Calibration:
        healthy = self._healthy
        if healthy is None or step.reference not in healthy.steps or rank not in healthy.ranks(step.reference):
            return NO_CALIBRATION
        part, reference = healthy.part(step.reference, rank), self._dumps[1].part(step.reference, rank)
        try:
            return calibrate(part, reference)
        finally:
            part.close()
            reference.close()


def parts_in_common(candidate: StrPath, reference: StrPath) -> Iterator[tuple[DumpPart, DumpPart]]:
    """The steps and ranks that :func:`compare_runs` compares, each opened when its turn comes."""
    one, other = open_dump(candidate), open_dump(reference)
    for step in in_common(one, other).steps:
        for rank, twin in step.ranks:
            yield one.part(step.candidate, rank), other.part(step.reference, twin)


def across_ranks(results: Iterable[Compared]) -> list[Suspect]:
    """The suspects of all ranks: between two exchanges of data, what happened earlier on its own rank goes first."""
    found: list[tuple[int, float, Suspect]] = []
    for result in results:
        for suspect in result.suspects:
            epoch = sum(1 for place in result.collectives if place < suspect.place)
            found.append((epoch, suspect.place, suspect))
    found.sort(key=lambda item: item[:2])
    return [suspect for _, _, suspect in found]


def _compare_part(
    one: Dump,
    other: Dump,
    place: tuple[int | None, Rank],
    twin: tuple[int | None, Rank],
    first: bool,
    vanishing: frozenset[str] = frozenset(),
    with_calls: bool = False,
    calibration: Calibration = NO_CALIBRATION,
) -> Compared:
    left, right = one.part(*place), other.part(*twin)
    try:
        pairing = pair(Timeline(left), Timeline(right))
        comparer = Comparer(left, right)
        comparer.measured_noise = calibration.allowed
        scene = Scene(pairing, comparer, first)
        suspects = search(scene)
        return Compared(
            step=place[0],
            rank=place[1],
            suspects=suspects,
            reach=reach_of(pairing, scene.judged, comparer, vanishing),
            tolerance=max(tolerance(scene.judged.values()), MARGIN * calibration.reach),
            summary=_counts(pairing, scene),
            notes=_notes(pairing, scene),
            collectives=[event.index for event in pairing.candidate if event.is_collective],
            calls=calls_of(scene) if with_calls else None,
        )
    finally:
        left.close()
        right.close()


def _counts(pairing: Pairing, scene: Scene) -> dict[str, Any]:
    states = Counter(judged.status for judged in scene.judged.values())
    return {
        "pairs": len(pairing.partner),
        "candidate_only": len(pairing.candidate) - len(pairing.partner),
        "reference_only": len(pairing.reference) - len(pairing.partner),
        **{state: states[state] for state in ("same", "rounding", "victim", "guilty")},
    }


def _notes(pairing: Pairing, scene: Scene) -> list[str]:
    notes = []
    for left, right in sorted(scene.dtype_policy):
        notes.append(
            f"precision: {left.removeprefix('torch.')} in the candidate where the reference has "
            f"{right.removeprefix('torch.')}"
        )
    for timeline, side in ((pairing.candidate, "candidate"), (pairing.reference, "reference")):
        if not timeline.part.complete:
            notes.append(f"the {side} was interrupted in step {timeline.step}: what it recorded until then is compared")
    return notes


def _summary(done: list[Compared], steps: int) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for result in done:
        total.update(result.summary)
    reached = max((result.reach.size for result in done), default=0.0)
    return {
        "steps_in_common": steps,
        "steps_compared": len({result.step for result in done}),
        "ranks": len({result.rank for result in done}),
        **total,
        "largest_effect": reached if math.isfinite(reached) else "infinite",
        "rounding_tolerance": max((result.tolerance for result in done), default=0.0),
    }


def _worse(one: Status, other: Status) -> Status:
    order: list[Status] = ["agree", "harmless", "diverged", "incomparable"]
    return max(one, other, key=order.index)

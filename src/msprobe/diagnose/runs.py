"""Compare two runs: all steps and ranks that both have, one verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msprobe.diagnose.calls import StepCalls, calls_of
from msprobe.diagnose.differences import Comparer
from msprobe.diagnose.effect import Reach, reach_of, tolerance
from msprobe.diagnose.findings import Finding, Status, Verdict
from msprobe.diagnose.origin import search
from msprobe.diagnose.pairing import Pairing, pair
from msprobe.diagnose.scene import Scene, Suspect
from msprobe.diagnose.timeline import Timeline
from msprobe.paths import StrPath
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump, open_dump

Rank = int | str
Progress = Callable[[str], None]


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
    candidate: StrPath, reference: StrPath, progress: Progress | None = None, with_calls: bool = False
) -> Verdict:
    """Say where two recorded trainings part.

    ``candidate`` and ``reference`` are folders of dumps (a whole dump, a step, a rank, or a ``dump.json``).
    ``progress`` is told which part is compared next; ``with_calls`` fills :attr:`Verdict.calls`.
    Raises PathError or InvalidInputError if one of them cannot be read.
    """
    one, other = open_dump(candidate), open_dump(reference)
    steps, ranks_of, notes, findings = _common(one, other)
    if not steps:
        notes.append("no step of one dump is in the other")
        return Verdict("incomparable", str(candidate), str(reference), tuple(findings), tuple(notes))
    status: Status = "agree"
    done: list[Compared] = []
    first = True
    vanishing: dict[Rank, frozenset[str]] = {}
    shown: StepCalls | None = None
    for number, (left, right) in enumerate(steps):
        results = []
        for rank, twin in ranks_of(left, right):
            if progress is not None:
                progress(f"step {left}, rank {rank}")
            before = vanishing.get(rank, frozenset())
            results.append(_compare_part(one, other, (left, rank), (right, twin), first, before, with_calls))
        vanishing = {result.rank: result.reach.vanishing for result in results}
        first = False
        done += [replace(result, calls=None) for result in results]
        if shown is None and results:
            shown = results[0].calls
        if all(not result.summary["pairs"] for result in results):
            continue
        found = across_ranks(results)
        clear = [suspect for suspect in found if suspect.clear]
        reach = max(result.reach.size for result in results)
        allowed = max(result.tolerance for result in results)
        if found and reach <= allowed and number + 1 < len(steps):
            # What the optimizer does shows in the weights of the next step.
            later = [
                _compare_part(
                    one,
                    other,
                    (steps[number + 1][0], rank),
                    (steps[number + 1][1], twin),
                    False,
                    vanishing.get(rank, frozenset()),
                )
                for rank, twin in ranks_of(*steps[number + 1])
            ]
            reach = max([reach, *(result.reach.size for result in later)])
        harmless = reach <= allowed
        if clear or (found and reach > 10 * allowed):
            chosen = clear or found
            ordered = [*chosen, *(suspect for suspect in found if suspect not in chosen)]
            harmless = harmless and not any(suspect.matters for suspect in ordered)
            findings += [replace(suspect.finding, harmless=harmless) for suspect in ordered[:100]]
            if status == "agree" or not harmless:
                rank_at_fault = ordered[0].finding.rank
                shown = next((result.calls for result in results if result.rank == rank_at_fault), shown)
            status = _worse(status, "harmless" if harmless else "diverged")
        if status == "diverged":
            break
    if not any(result.summary["pairs"] for result in done):
        status = "incomparable"
        notes.append("no call of one dump answers to any of the other")
    notes += list(dict.fromkeys(note for result in done for note in result.notes))
    return Verdict(
        status, str(candidate), str(reference), tuple(findings), tuple(notes), _summary(done, len(steps)), shown
    )


def parts_in_common(candidate: StrPath, reference: StrPath) -> Iterator[tuple[DumpPart, DumpPart]]:
    """The steps and ranks that :func:`compare_runs` compares, each opened when its turn comes."""
    one, other = open_dump(candidate), open_dump(reference)
    steps, ranks_of, _, _ = _common(one, other)
    for left, right in steps:
        for rank, twin in ranks_of(left, right):
            yield one.part(left, rank), other.part(right, twin)


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
) -> Compared:
    left, right = one.part(*place), other.part(*twin)
    try:
        pairing = pair(Timeline(left), Timeline(right))
        comparer = Comparer(left, right)
        scene = Scene(pairing, comparer, first)
        suspects = search(scene)
        return Compared(
            step=place[0],
            rank=place[1],
            suspects=suspects,
            reach=reach_of(pairing, scene.judged, comparer, vanishing),
            tolerance=tolerance(scene.judged.values()),
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


def _steps_in_words(steps: Sequence[int | None]) -> str:
    if steps == [None]:
        return "a folder without a number of its step is"
    shown = ", ".join(map(str, steps[:10])) + (f" and {len(steps) - 10} more" if len(steps) > 10 else "")
    return f"steps {shown} are" if len(steps) > 1 else f"step {shown} is"


def _common(
    one: Dump, other: Dump
) -> tuple[
    list[tuple[int | None, int | None]],
    Callable[[int | None, int | None], list[tuple[Rank, Rank]]],
    list[str],
    list[Finding],
]:
    """Steps and ranks that both have; what only one of them has, in words and as findings."""
    notes: list[str] = []
    findings: list[Finding] = []
    steps: list[tuple[int | None, int | None]] = [(step, step) for step in one.steps if step in other.steps]
    if not steps and len(one.steps) == len(other.steps) == 1:
        steps = [(one.steps[0], other.steps[0])]
        notes.append(f"step {one.steps[0]} of the candidate is compared with step {other.steps[0]} of the reference")
    only = (
        [step for step in one.steps if step not in other.steps],
        [step for step in other.steps if step not in one.steps],
    )
    if not (steps and steps[0][0] != steps[0][1]):
        for side, missing in (("candidate", only[0]), ("reference", only[1])):
            if missing:
                text = f"{_steps_in_words(missing)} only in the {side}"
                notes.append(text)
                where = _steps_in_words(missing[:1]).removesuffix(" is")
                findings.append(Finding("step_count", text, where=where, step=missing[0], harmless=True))

    def ranks_of(left: int | None, right: int | None) -> list[tuple[Rank, Rank]]:
        mine, theirs = one.ranks(left), other.ranks(right)
        both: list[tuple[Rank, Rank]] = [(rank, rank) for rank in mine if rank in theirs]
        if not both and len(mine) == len(theirs) == 1:
            return [(mine[0], theirs[0])]
        return both

    for left, right in steps:
        mine, theirs = set(map(str, one.ranks(left))), set(map(str, other.ranks(right)))
        if mine != theirs and not (len(mine) == len(theirs) == 1):
            for side, missing_ranks in (("candidate", mine - theirs), ("reference", theirs - mine)):
                if missing_ranks:
                    text = f"rank {', '.join(sorted(missing_ranks))} only in the {side}"
                    if text not in notes:
                        notes.append(text)
                        findings.append(Finding("step_count", text, where=text, step=left, harmless=True))
    return [pair_ for pair_ in steps if ranks_of(*pair_)], ranks_of, notes, findings

"""``msprobe compare A B --second-look DIR``: first it writes configurations, then it settles what they recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.evidence import Because
from msprobe.diagnose.findings import Finding, Verdict
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.precheck.pool import Pool
from msprobe.second_look.checking import CheckedRecord, check_calls, workers
from msprobe.second_look.doubtful import Doubtful, RankOfStep, call_of, doubtful_calls, write_configurations
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings

SIDES = ("candidate", "reference")
#: A call is wrong in the candidate alone, or in the reference alone.
_ALONE = ("wrong", "reference")


@dataclass(frozen=True)
class Settled:
    """One record that both sides computed again. ``answer``: ``wrong`` (on the candidate's side alone), ``right`` (on
    both), ``reference`` (wrong there alone), ``both`` (both sides are doubtful), ``unsure`` or ``skipped``.
    """

    entry: str
    answer: str
    candidate: CheckedRecord
    reference: CheckedRecord
    #: The lines of the candidate's program that made the call, the innermost first.
    stack: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``verdict.json`` has it."""
        why = {
            side: checked.why
            for side, checked in zip(SIDES, (self.candidate, self.reference), strict=True)
            if checked.why
        }
        return {"entry": self.entry, "answer": self.answer, **why}


def second_look(
    verdict: Verdict, candidate: StrPath, reference: StrPath, folder: Path, mappings: Mappings | None = None
) -> Verdict:
    """The verdict after a second look. Where ``folder`` has no recordings yet, configurations are written there that
    make them, and a note says so; where it has, doubtful calls are settled. Raises InvalidInputError where one side
    alone was recorded, or other calls, or no call can be chosen.
    """
    recorded = [side for side in SIDES if (folder / side).is_dir()]
    doubtful = doubtful_calls(verdict, candidate, reference, mappings)
    if not recorded:
        return _with_configurations(verdict, doubtful, folder)
    if len(recorded) == 1:
        missing = next(side for side in SIDES if side not in recorded)
        raise InvalidInputError(said("second-look-one-side", folder, recorded[0], missing, f"{folder / missing}.json"))
    with workers() as pool:
        settled = settle(doubtful, folder, pool)
    if not settled:
        raise InvalidInputError(said("second-look-not-recorded", folder))
    return with_settled(verdict, settled, doubtful.candidate, {side: str(folder / side) for side in SIDES})


def _with_configurations(verdict: Verdict, doubtful: Doubtful, folder: Path) -> Verdict:
    files = write_configurations(doubtful, folder)
    note = said(
        "second-look-configurations",
        files["candidate"],
        files["reference"],
        len(doubtful.calls),
        0 if doubtful.candidate.step is None else doubtful.candidate.step,
    )
    look = {"calls": [mine for mine, _ in doubtful.calls], "configurations": {k: str(v) for k, v in files.items()}}
    return replace(verdict, notes=(*verdict.notes, note), summary={**verdict.summary, "second_look": look})


def settle(doubtful: Doubtful, folder: Path, pool: Pool) -> list[Settled]:
    """Compute the doubtful calls again on both sides. ``folder`` has the recordings ``candidate`` and ``reference``;
    ``pool``: who computes them.
    """
    sides = []
    for number, (side, place) in enumerate(zip(SIDES, (doubtful.candidate, doubtful.reference), strict=True)):
        part = _part(folder / side, place)
        try:
            path = part.path
        finally:
            part.close()
        sides.append(check_calls(path, [pair[number] for pair in doubtful.calls], pool))
    theirs = dict(doubtful.calls)
    settled = []
    part = _part(folder / SIDES[0], doubtful.candidate)
    try:
        for entry, mine in sides[0].items():
            call = call_of(entry)
            other = sides[1].get(
                theirs[call] + entry.removeprefix(call), CheckedRecord("skipped", said("call-not-recorded"))
            )
            settled.append(Settled(entry, _answer(mine, other), mine, other, tuple(part.stack(f"{call}.forward"))))
    finally:
        part.close()
    return settled


def _part(folder: Path, place: RankOfStep) -> DumpPart:
    """The recording of a step of a rank. Raises InvalidInputError if it is not there."""
    dump = open_dump(folder)
    if place.step is None and len([*dump.parts()]) == 1:
        return dump.part()
    try:
        return dump.only(place.step, place.rank).part()
    except KeyError as problem:
        raise InvalidInputError(
            said("second-look-other-step", folder, place.step, place.rank, f"{folder}.json")
        ) from problem


def _answer(mine: CheckedRecord, other: CheckedRecord) -> str:
    if "skipped" in (mine.answered, other.answered):
        return "skipped"
    if "wrong" in (mine.answered, other.answered):
        alone = {("wrong", "right"): "wrong", ("right", "wrong"): "reference"}
        return alone.get((mine.answered, other.answered), "both")
    return "unsure" if "unsure" in (mine.answered, other.answered) else "right"


def with_settled(
    verdict: Verdict, settled: list[Settled], place: RankOfStep, recordings: Mapping[str, str] | None = None
) -> Verdict:
    """The verdict with what a second look settled; ``recordings``: their folders, by side. The first call that is wrong
    on one side alone is named first, unless the call that was named comes before it: rows compare two kernels, which is
    sharper than the tolerance here.
    """
    counts = Counter(answer.answer for answer in settled)
    note = said(
        "second-look-settled",
        len(settled),
        counts["right"],
        counts["wrong"] + counts["reference"],
        counts["both"] + counts["unsure"] + counts["skipped"],
    )
    look = {"recordings": dict(recordings or {}), "results": [answer.to_json() for answer in settled]}
    summary = {**verdict.summary, "second_look": look}
    verdict = replace(verdict, notes=(*verdict.notes, note), summary=summary)
    first = verdict.findings[0].entry if verdict.status == "diverged" and verdict.findings else None
    named = None
    for answer in settled:
        if answer.answer in _ALONE:
            named = answer
            break
        if answer.entry == first:
            break  # nothing before it is wrong
    if named is None:
        return verdict
    same = next((finding for finding in verdict.findings if finding.entry == named.entry), None)
    rest = tuple(finding for finding in verdict.findings if finding is not same)
    return replace(verdict, status="diverged", findings=(_finding(named, place, same), *rest))


def _finding(wrong: Settled, place: RankOfStep, same: Finding | None) -> Finding:
    side, checked = ("candidate", wrong.candidate) if wrong.answer == "wrong" else ("reference", wrong.reference)
    message = said("kernel-wrong-on-one-side", wrong.entry, side, checked.why)
    fact = Because("wrong_alone")
    if same is not None:
        return replace(same, message=message, harmless=False, facts=(fact, *same.facts)).with_facts(message, fact)
    is_backward = wrong.entry.endswith(".backward")
    return Finding(
        "gradient" if is_backward else "computation",
        message,
        where=wrong.entry,
        entry=wrong.entry,
        rank=place.rank,
        step=place.step,
        direction="backward" if is_backward else "forward",
        evidence=fact.json(),
        stack=wrong.stack,
        facts=(fact,),
    )

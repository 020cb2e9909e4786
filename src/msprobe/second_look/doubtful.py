"""Which calls are worth a second look, and the configurations that record them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.findings import Verdict
from msprobe.diagnose.measured.judge import judge_step
from msprobe.diagnose.pairing.step import pair_timelines
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.verdict.common import Rank, Step, in_common
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath, make_folder, write_atomically
from msprobe.store.reader import open_dump

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings

#: So many calls are recorded once more.
MOST_CALLS = 20
#: What a call's record is named after its number.
_DIRECTIONS = (".forward", ".backward")


@dataclass(frozen=True)
class RankOfStep:
    """A step of a rank of one side; ``step`` is None where the dump has no steps, ``rank`` a word where it has none."""

    step: Step
    rank: Rank


@dataclass(frozen=True)
class Doubtful:
    """``calls``: names of calls of the candidate (``Functional.linear.3``) and what they answer to in the reference, in
    the order of execution of the candidate. ``level``: of their recording.
    """

    candidate: RankOfStep
    reference: RankOfStep
    calls: tuple[tuple[str, str], ...]
    level: str


def doubtful_calls(
    verdict: Verdict, candidate: StrPath, reference: StrPath, mappings: Mappings | None = None
) -> Doubtful:
    """The calls that come nearest to their limits in the step of the first finding, or in the first step where nothing
    was found; those that findings name among them. Raises InvalidInputError where no call can be chosen.
    """
    first, other = open_dump(candidate), open_dump(reference)
    steps = [step for step in in_common(first, other).steps if step.ranks]
    if not steps:
        raise InvalidInputError(said("second-look-no-step", candidate, reference))
    named = verdict.findings[0] if verdict.findings else None
    step = next((step for step in steps if named is not None and step.candidate == named.step), steps[0])
    rank, twin = next((pair for pair in step.ranks if named is not None and pair[0] == named.rank), step.ranks[0])
    places = RankOfStep(step.candidate, rank), RankOfStep(step.reference, twin)
    parts = first.only(places[0].step, rank).part(), other.only(places[1].step, twin).part()
    timelines: list[Timeline] = []
    try:
        with no_collection():
            timelines += map(Timeline, parts)
            pairing = pair_timelines(timelines[0], timelines[1], mappings, False).pairing
            nearest = judge_step(pairing, is_alone=not isinstance(rank, int)).nearest
            entries = {finding.entry for finding in verdict.findings}
            events = [event for event in pairing.candidate if event.is_call and event.name in entries]
            chosen = [event for event in dict.fromkeys((*events, *nearest)) if event in pairing.partner][:MOST_CALLS]
            chosen.sort(key=lambda event: event.index)
            calls = dict.fromkeys((call_of(event.name), call_of(pairing.partner[event].name)) for event in chosen)
        level = str(parts[0].header.get("level"))
    finally:
        for timeline in timelines:
            timeline.close()
        for part in parts:
            part.close()
    if not calls:
        number = 0 if step.candidate is None else step.candidate
        raise InvalidInputError(said("second-look-no-call", number, verdict.candidate))
    return Doubtful(*places, tuple(calls), level if level in ("L1", "mix") else "L1")


def call_of(entry: str) -> str:
    """The name of a call without the direction of its record."""
    for direction in _DIRECTIONS:
        entry = entry.removesuffix(direction)
    return entry


def write_configurations(doubtful: Doubtful, folder: Path) -> dict[str, Path]:
    """Write what records these calls with whole tensors on both sides; their files, by side."""
    sides = {"candidate": (doubtful.candidate, 0), "reference": (doubtful.reference, 1)}
    make_folder(folder)
    written = {}
    for side, (place, number) in sides.items():
        content: dict[str, Any] = {"task": "tensor", "dump_path": str((folder / side).absolute())}
        if isinstance(place.rank, int):
            content["rank"] = [place.rank]
        if place.step is not None:
            content["step"] = [place.step]
        # With the point behind it, linear.3 is not linear.30.
        names = [f"{pair[number]}." for pair in doubtful.calls]
        content |= {"level": doubtful.level, "tensor": {"scope": [], "list": names, "data_mode": ["all"]}}
        written[side] = folder / f"{side}.json"
        write_atomically(written[side], (json.dumps(content, indent=2) + "\n").encode())
    return written

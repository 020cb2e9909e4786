"""Which steps and ranks two runs have in common, and what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msprobe.diagnose.findings import Finding
from msprobe.store.reader import Dump

Rank = int | str
Step = int | None


@dataclass(frozen=True)
class StepPair:
    """A step of the candidate, the step of the reference it answers to, and the ranks that both have.

    Without ranks that answer to each other, ``ranks`` is empty: the runs have different layouts.
    """

    candidate: Step
    reference: Step
    ranks: tuple[tuple[Rank, Rank], ...]


@dataclass(frozen=True)
class Common:
    """All steps in common, in order; remarks and findings on what only one run has, and how many steps these are."""

    steps: tuple[StepPair, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    lone_steps: int = 0


def in_common(candidate: Dump, reference: Dump, by_rank: bool = True) -> Common:
    """Pair the steps and ranks of two runs, by their numbers; a single one with a single one.

    ``by_rank``: false for runs in different layouts, whose ranks do not answer to each other.
    """
    notes: list[str] = []
    findings: list[Finding] = []
    lone_steps = 0
    steps: list[tuple[Step, Step]] = [(step, step) for step in candidate.steps if step in reference.steps]
    if not steps and len(candidate.steps) == len(reference.steps) == 1:
        steps = [(candidate.steps[0], reference.steps[0])]
        notes.append(
            f"step {candidate.steps[0]} of the candidate is compared with step {reference.steps[0]} of the reference"
        )
    else:
        for side, missing in (
            ("candidate", [step for step in candidate.steps if step not in reference.steps]),
            ("reference", [step for step in reference.steps if step not in candidate.steps]),
        ):
            if missing:
                lone_steps += len(missing)
                text = f"{_in_words(missing)} only in the {side}"
                notes.append(text)
                where = _in_words(missing[:1]).removesuffix(" is")
                findings.append(Finding("step_count", text, where=where, step=missing[0], harmless=True))
    pairs = []
    for left, right in steps:
        mine, theirs = (candidate.ranks(left), reference.ranks(right)) if by_rank else ([], [])
        ranks: list[tuple[Rank, Rank]] = [(rank, rank) for rank in mine if rank in theirs]
        if not ranks and len(mine) == len(theirs) == 1:
            ranks = [(mine[0], theirs[0])]
        pairs.append(StepPair(left, right, tuple(ranks)))
        if not ranks or (len(ranks) == len(mine) == len(theirs)):
            continue
        for side, here, there in (("candidate", mine, theirs), ("reference", theirs, mine)):
            lone = [str(rank) for rank in here if rank not in there]
            if lone:
                text = f"rank {', '.join(lone)} only in the {side}"
                if text not in notes:
                    notes.append(text)
                    findings.append(Finding("step_count", text, where=text, step=left, harmless=True))
    return Common(tuple(pairs), tuple(notes), tuple(findings), lone_steps)


def _in_words(steps: Sequence[Step]) -> str:
    if list(steps) == [None]:
        return "a folder without a number of its step is"
    shown = ", ".join(map(str, steps[:10])) + (f" and {len(steps) - 10} more" if len(steps) > 10 else "")
    return f"steps {shown} are" if len(steps) > 1 else f"step {shown} is"

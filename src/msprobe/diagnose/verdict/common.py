"""Which steps and ranks two runs have in common, and what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.messages import said
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
    """All steps in common, in order; remarks and findings on what only one run has, and how much that is.

    ``lone_steps``: steps of one side alone; ``lone_ranks``: ranks of one side alone, in all steps; ``lone_parts``: how
    many ranks of single steps are missing of ranks that both have elsewhere. ``without_rank``: steps that both have,
    and no rank of them, where other steps have some.
    """

    steps: tuple[StepPair, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    lone_steps: int = 0
    lone_ranks: int = 0
    lone_parts: int = 0
    without_rank: tuple[Step, ...] = ()

    @property
    def only_on_one_side(self) -> dict[str, int]:
        """How many steps and ranks one side has alone, for the summary of a verdict; without what there is none of."""
        counts = {
            "steps_of_one_side": self.lone_steps,
            "ranks_of_one_side": self.lone_ranks,
            "parts_of_one_side": self.lone_parts,
        }
        return {name: count for name, count in counts.items() if count}


def in_common(candidate: Dump, reference: Dump, by_rank: bool = True) -> Common:
    """Pair the steps and ranks of two runs, by their numbers; a single one with a single one.

    ``by_rank``: false for runs in different layouts, whose ranks do not answer to each other.
    """
    notes: list[str] = []
    findings: list[Finding] = []
    lone_steps = 0
    own, others = set(candidate.steps), set(reference.steps)
    steps: list[tuple[Step, Step]] = [(step, step) for step in candidate.steps if step in others]
    if not steps and len(candidate.steps) == len(reference.steps) == 1:
        steps = [(candidate.steps[0], reference.steps[0])]
        notes.append(said("steps-renumbered", candidate.steps[0], reference.steps[0]))
    else:
        for side, missing in (
            ("candidate", [step for step in candidate.steps if step not in others]),
            ("reference", [step for step in reference.steps if step not in own]),
        ):
            if missing:
                lone_steps += len(missing)
                verb = "are" if len(missing) > 1 else "is"
                text = said("steps-on-one-side", _in_words(missing), verb, side)
                notes.append(text)
                where = _in_words(missing[:1])
                findings.append(Finding("step_count", text, where=where, step=missing[0], harmless=True))
    pairs = []
    lone: dict[tuple[str, Rank], list[Step]] = {}
    shared: set[Rank] = set()
    sides = [(candidate.ranks(left), reference.ranks(right)) if by_rank else ([], []) for left, right in steps]
    numbered = any(rank in theirs for mine, theirs in sides for rank in mine)
    for (left, right), (mine, theirs) in zip(steps, sides, strict=True):
        ranks: list[tuple[Rank, Rank]] = [(rank, rank) for rank in mine if rank in theirs]
        # The only rank of each side, unless it is a rank of many that has lost the others in this step.
        if not numbered and len(mine) == len(theirs) == 1:
            ranks = [(mine[0], theirs[0])]
        pairs.append(StepPair(left, right, tuple(ranks)))
        shared.update(rank for rank, _ in ranks)
        if ranks:
            for side, here, twins in (("candidate", mine, 0), ("reference", theirs, 1)):
                paired = {pair[twins] for pair in ranks}
                for rank in here:
                    if rank not in paired:
                        lone.setdefault((side, rank), []).append(left)
    without_rank: tuple[Step, ...] = ()
    if shared:
        # Of other layouts no step has a rank in common; one among others that have lacks what it should hold.
        without_rank = tuple(pair.candidate for pair in pairs if not pair.ranks)
        pairs = [pair for pair in pairs if pair.ranks]
    for note, begun in _lone_ranks(lone, len(pairs)):
        notes.append(note)
        findings.append(Finding("step_count", note, where=note, step=begun, harmless=True))
    return Common(
        tuple(pairs),
        tuple(notes),
        tuple(findings),
        lone_steps,
        len({rank for _, rank in lone if rank not in shared}),
        sum(len(places) for (_, rank), places in lone.items() if rank in shared),
        without_rank,
    )


def _lone_ranks(lone: dict[tuple[str, Rank], list[Step]], steps: int) -> list[tuple[str, Step]]:
    """What to say of ranks that one side has alone, and the first step in which it has: those of the same side and
    steps together.
    """
    alike: dict[tuple[str, tuple[Step, ...]], list[str]] = {}
    for (side, rank), missing in lone.items():
        alike.setdefault((side, tuple(missing)), []).append(str(rank))
    notes: list[tuple[str, Step]] = []
    for (side, places), ranks in alike.items():
        where = "" if len(places) == steps else said("inside", _in_words(places))
        notes.append((said("ranks-on-one-side", ", ".join(ranks), side, where), places[0]))
    return notes


def _in_words(steps: Sequence[Step]) -> str:
    if list(steps) == [None]:
        return "a folder without a number of its step"
    return said("step-numbers", listed(steps, 10)) if len(steps) > 1 else said("step", steps[0])

"""What two recordings say before any call is compared: other levels, two models, several steps in one, an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msprobe.diagnose.evidence import Because
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.errors import errors_of
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import said
from msprobe.store.part import DumpPart

#: Of the calls of the shorter side, more than this answer to one of the other if it is the same model.
_ANSWERING = 0.5
#: At this level operators are recorded, which no call of another level answers to.
_OPERATORS = "L2"


def cannot_be_compared(pairing: Pairing) -> str:
    """Why two recordings of different levels cannot be compared; empty if they can."""
    left, right = _levels(pairing)
    if not left or not right or left == right:
        return ""
    pairs, least = _answering(pairing)
    if pairs and _OPERATORS not in (left, right):
        return ""
    return said("levels-not-comparable", left, right, pairs, least)


def notes_of_recordings(pairing: Pairing) -> list[str]:
    """Remarks on levels that differ, and on recordings that have next to nothing in common."""
    if cannot_be_compared(pairing):
        return []
    moved = _recorded_with_jitter(pairing)
    levels = note_of_levels(pairing)
    if levels:
        return [*moved, levels]
    pairs, least = _answering(pairing)
    sides = pairing.candidate, pairing.reference
    if pairing.partner and pairs < _ANSWERING * least and all(side.part.complete for side in sides):
        return [*moved, _hardly_any(pairs, least)]
    return moved


def _recorded_with_jitter(pairing: Pairing) -> list[str]:
    """Which of the two recordings has results that were moved on purpose."""
    sides = {"candidate": pairing.candidate.part, "reference": pairing.reference.part}
    switches = {name: part.ours.get("precision") for name, part in sides.items()}
    return [
        said("recorded-with-jitter", name)
        for name, switch in switches.items()
        if isinstance(switch, dict) and switch.get("jitter") is True
    ]


def note_of_levels(pairing: Pairing) -> str:
    """What is to be said of levels that differ, where calls are compared all the same; empty if there is nothing."""
    left, right = _levels(pairing)
    if not left or not right or left == right or cannot_be_compared(pairing):
        return ""
    pairs, _ = _answering(pairing)
    return said("levels-differ", left, right, pairs)


def precision_apart(candidate: DumpPart, reference: DumpPart) -> tuple[tuple[str, Any, Any], ...]:
    """The switches of the framework that decide how exactly it computes, where both sides name theirs and they differ:
    name, and what the candidate and the reference have; None for a switch that one side does not know.
    """
    mine, theirs = (part.ours.get("precision") for part in (candidate, reference))
    if not (isinstance(mine, dict) and isinstance(theirs, dict)):
        return ()
    names = dict.fromkeys([*mine, *theirs])
    return tuple((name, mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name))


def _levels(pairing: Pairing) -> tuple[str, str]:
    parts = pairing.candidate.part, pairing.reference.part
    left, right = (str(part.header.get("level") or "") if part.ours else "" for part in parts)
    return left, right


def _answering(pairing: Pairing) -> tuple[int, int]:
    """How many forward calls and modules have a partner, and how many there are on the side that has less."""
    least = min(sum(map(_is_forward, side)) for side in (pairing.candidate, pairing.reference))
    return sum(map(_is_forward, pairing.partner)), least


def calls_answering(pairing: Pairing) -> dict[str, int]:
    """How many forward calls and modules answer to each other, of how many on the side that has less, and more."""
    pairs, least = _answering(pairing)
    most = max(sum(map(_is_forward, side)) for side in (pairing.candidate, pairing.reference))
    return {"pairs": pairs, "of": most, "of_fewer": least}


def is_little(answering: Mapping[str, int], of: str = "of") -> bool:
    """True if so few calls answer to each other that agreeing says little of the rest."""
    return answering["pairs"] < _ANSWERING * answering[of]


def two_models(answering: Iterable[Mapping[str, int]]) -> str:
    """That the runs are those of two models, where they part and of all ranks hardly any call answers to one of the
    other side; empty if that is not so. ``answering``: what :func:`calls_answering` gives for each rank.
    """
    total: Counter[str] = Counter()
    for counts in answering:
        total.update(counts)
    if not total or not is_little(total, "of_fewer"):
        return ""
    return _hardly_any(total["pairs"], total["of_fewer"])


def _hardly_any(pairs: int, least: int) -> str:
    return said("hardly-any-call-matches", pairs, least)


def _is_forward(event: Event) -> bool:
    return event.direction == "forward" and event.parts.kind in ("api", "module")


def look_for_errors(scene: Scene) -> None:
    """Suspect the call that ended the candidate's step by an error, where the reference's went on."""
    raised, other = (next(errors_of(side.timeline), None) for side in scene.sides)
    if raised is None or raised.goes_on:
        return
    partner = scene.pairing.partner.get(raised.event)
    if (other is not None and not other.goes_on) or (partner is not None and "error" in partner.record):
        return  # both
    at = said("at-source", raised.event.source) if raised.event.source else ""
    scene.add(raised.event, "error", said("call-raised-in-candidate", raised.event.name, raised.text, at), matters=True)


def look_for_steps_in_one(scene: Scene, steps: Sequence[int]) -> None:
    """Suspect a step that holds several: the side with fewer steps has more steps of optimizers in each. ``steps``: how
    many the candidate and the reference have.
    """
    timelines = scene.pairing.candidate, scene.pairing.reference
    counts = [sum(event.parts.kind == "optimizer" for event in timeline) for timeline in timelines]
    few = 0 if counts[0] > counts[1] else 1
    if not min(counts) or counts[few] < 2 * counts[1 - few] or steps[few] >= steps[1 - few]:
        return
    sides = ("candidate", "reference")
    event = [event for event in timelines[few] if event.parts.kind == "optimizer"][min(counts)]
    text = said(
        "step-left-out",
        sides[few],
        counts[few],
        timelines[few].step,
        sides[1 - few],
        counts[1 - few],
        steps[few],
        "s" * (steps[few] > 1),
        sides[1 - few],
        steps[1 - few],
    )
    scene.add(event, "step_count", text, facts=(Because("step_left_out"),), place=-1.0, matters=True)

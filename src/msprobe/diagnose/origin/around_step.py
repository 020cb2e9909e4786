"""A call that one side makes before the step of the optimizer, and the other side after it."""

from __future__ import annotations

from msprobe.compare.entry_names import writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said

_OVERWRITES = tuple(operators.BEGIN)


def look_at_order_around_step(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """True if a pair of calls stands on different sides of an optimizer's step, and takes a tensor that differs: an
    average of weights as they were.
    """
    if not (side := _side_of_step(scene, judged)):
        return False
    scene.say(
        ("around step", side),
        judged,
        "structure",
        said(f"{side}-the-step", judged.event.name, difference.slot, scene.how(difference)),
        # What it writes to is kept for the next step.
        matters=writes_in_place(judged.event.stem),
        difference=difference,
    )
    return True


def look_for_writes_around_step(scene: Scene) -> None:
    """Suspect the first write of both sides that one of them makes too early or too late for the optimizer, where that
    gets gradients which differ: those that are clipped after the step.
    """
    if not scene.arrival.differ:
        return
    for judged in scene.judged.values():
        stem = judged.event.stem
        if not writes_in_place(stem) or stem.endswith(_OVERWRITES) or not (side := _side_of_step(scene, judged)):
            continue
        scene.say(
            ("around step", side),
            judged,
            "structure",
            said(f"written-{side}-the-step", judged.event.name),
            place=_end_of_backward(scene.pairing.candidate) + 0.125,
        )
        return


def _side_of_step(scene: Scene, judged: Judged) -> str:
    """Where the candidate makes a call outside of all modules, ``before`` or ``after`` an optimizer's step, if the
    reference makes it on the other side of that; empty if not.
    """
    if judged.event.direction != "forward" or judged.event.module is not None:
        return ""
    candidate, reference = scene.pairing.candidate, scene.pairing.reference
    ours, theirs = _steps_before(candidate, judged.event), _steps_before(reference, judged.partner)
    if ours == theirs or len(candidate.optimizers) != len(reference.optimizers):
        return ""
    return "before" if ours < theirs else "after"


def _steps_before(timeline: Timeline, event: Event) -> int:
    """How many steps of optimizers end before a call."""
    return sum(step.index < event.index for step in timeline.optimizers)


def _end_of_backward(timeline: Timeline) -> int:
    """The index of what the backward passes in front of the first step of an optimizer end with."""
    step = timeline.optimizers[0].index
    return max(
        (event.index for event in timeline if event.index < step and event.direction in ("backward", "gradient")),
        default=-1,
    )

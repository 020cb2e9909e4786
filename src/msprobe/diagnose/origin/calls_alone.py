"""Calls that one side alone makes, and a tensor that differs by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, not_finite
from msprobe.diagnose.differences.words import named, ratio_in_words, ratio_of
from msprobe.diagnose.evidence import Cause, OneSide, because
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.broadcast import shapes_in_words
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def blame_calls(
    scene: Scene,
    judged: Judged,
    difference: Difference,
    alone: Sequence[Event],
    missing: Sequence[Event],
    is_measured: bool = False,
) -> None:
    """Calls of one side alone made a tensor that differs. ``is_measured``: by more than all that there was before."""
    # Of a gradient that comes back through them, more than moving is to blame.
    moves = judged.event.direction != "backward" and all(
        operation(call.stem) in operators.MOVES for call in [*alone, *missing]
    )
    clear = is_measured or moves or tensor.is_another(difference, "lone_calls")
    entry = most_informative(alone or missing)
    kind: FindingKind = "structure"
    born = next((call for call in alone if _bears_not_finite(call)), None)
    if born is not None and not any(_bears_not_finite(call) for call in missing):
        entry, kind = born, "overflow"
    elif alone and not missing and all(operation(call.stem) in operators.CASTS for call in alone):
        kind = "dtype"
    elif alone and not missing and writes_in_place(alone[-1].stem):
        entry, kind = alone[-1], "mutation"
    ratio = ratio_in_words(difference.left, difference.right)
    scaled = "backward" in scene.seen and scene.is_gradient(difference) and bool(ratio)
    cause: Cause | None = None
    norm = next((call for call in [*alone, *missing] if operation(call.stem) in operators.NORMS), None)
    if scaled and norm is not None and bool(alone) != bool(missing):
        # Two calls and more make one thing: it is not the last of them, which writes, that is to blame.
        kind, cause, entry = "structure", "clipping", norm
    elif scaled and not any(call.is_collective for call in [*alone, *missing]):
        kind, cause = "loss_scale", "gradient_factor"
    elif kind == "structure" and ratio and _scales_loss(judged, difference, alone, missing):
        kind, cause = "loss_scale", "loss_factor"
    keeps = cause == "loss_factor" and scene.arrival.keep(ratio_of(difference.left, difference.right) or 0.0)
    here = named(alone) + _whole_modules(alone, scene.candidate)
    there = named(missing) + _whole_modules(missing, scene.reference)
    if alone and missing:
        text = said("replaced-calls", here, there)
    elif alone:
        text = said("extra-calls", here)
    else:
        text = said("missing-calls", there)
    if cause == "loss_factor":
        text += said("so-the-loss-is", ratio, what_becomes_of_gradients(scene, keeps))
    elif cause == "clipping":
        clips = "only the candidate clips" if alone else "only the reference clips"
        text = said("clipping-on-one-side", clips, here or there, difference.slot, judged.event.name, ratio)
    elif difference.left is None and difference.right is None:
        text += said("first-visible-in", judged.event.name)
        if any(call.what == "shape" for call in judged.inputs):
            text += said("it-gets", shapes_in_words(judged))
    else:
        text += said("so-differs", difference.slot, judged.event.name, scene.how(difference))
    scene.say(
        ("calls", entry),
        judged,
        kind,
        text,
        clear=clear,
        facts=(
            OneSide(tuple(call.name for call in alone), tuple(call.name for call in missing)),
            *because(cause),
        ),
        entry=entry,
        place=min((alone[0].index if alone else scene.place_of(missing[0])), judged.event.index) - 0.5,
        # Clipping hides a factor, as long as it clips.
        matters=(scaled and not scene.arrival.undo(difference.delta))
        or is_measured
        or (scene.arrival.scaled and _updates(scene, judged))
        or keeps,
        difference=difference,
    )


def _updates(scene: Scene, judged: Judged) -> bool:
    """True for a call outside of modules behind a backward pass: it works on gradients or weights."""
    return "backward" in scene.seen and judged.event.direction == "forward" and judged.event.module is None


def _whole_modules(events: Sequence[Event], side: StepSide) -> str:
    """The modules that one side alone passes through, if all these calls run in them."""
    modules: dict[str, None] = {}
    for event in events:
        own = list(takewhile(side.is_alone, event.around()))
        if not own:
            return ""
        modules[own[-1].parts.path] = None
    paths = list(modules)
    return (
        said("whole-modules", said("modules") if len(paths) > 1 else said("module"), ", ".join(paths[:4]))
        if paths
        else ""
    )


def most_informative(events: Sequence[Event]) -> Event:
    """The first call that does more than move values; if none does, the first that does anything."""
    for quiet in (operators.MOVES | operators.IDLE, operators.IDLE):
        for event in events:
            if operation(event.stem) not in quiet:
                return event
    return events[0]


#: A factor, and what may stand around it.
_HARDLY_MORE = operators.FACTORS | operators.MOVES | operators.CASTS


def _scales_loss(judged: Judged, difference: Difference, alone: Sequence[Event], missing: Sequence[Event]) -> bool:
    """True if one side alone multiplies or divides the number that the backward pass begins with."""
    sides = (difference.left, difference.right)
    return (
        operation(judged.event.stem) == "ones_like"
        and all(is_floating(leaf) and leaf.get("shape") == [] for leaf in sides)
        and not (alone and missing)
        and all(operation(call.stem) in _HARDLY_MORE for call in [*alone, *missing])
    )


def what_becomes_of_gradients(scene: Scene, keeps: bool = False) -> str:
    """Whether a factor of the loss reaches the optimizer, as far as that was recorded. ``keeps``: it is known to."""
    arrival = scene.arrival
    if arrival.clean:
        return said("factor-undone-before")
    if arrival.factor is not None:
        ratio = ratio_in_words(arrival.differ[0].left, arrival.differ[0].right)
        return said("gradients-at-optimizer-are", ratio)
    if keeps:
        return said("gradients-at-optimizer-are", said("times-as-large", math.exp(arrival.larger)))
    if arrival.known and not arrival.differ and not scene.has_calls:
        return said("factor-undone-or-hidden")
    if arrival.known and not arrival.differ:
        return said("clipping-hides-factor")
    return ""


def _bears_not_finite(event: Event) -> bool:
    """True if a call makes what is not finite of what is, and is not reported to: a mask is filled with minus
    infinity.
    """
    return any(not_finite(leaf) for _, leaf in event.outputs()) and not any(
        not_finite(leaf) or _is_infinite(leaf) for _, leaf in event.inputs()
    )


def _is_infinite(leaf: object) -> bool:
    value = leaf.get("value") if isinstance(leaf, dict) else leaf
    if isinstance(value, str):
        return value in ("Infinity", "-Infinity", "inf", "-inf")
    return isinstance(value, float) and math.isinf(value)

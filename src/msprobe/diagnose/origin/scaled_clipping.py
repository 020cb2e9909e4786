"""Gradients that one side clips before the scale of the loss is taken from them: the limit is that of scaled ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import is_floating, numbers
from msprobe.diagnose.evidence import Because, Listed
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.public_functions import public_function
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance.judge import Judged

#: What scalers call to divide gradients by the scale.
_UNSCALE = "unscale"
#: How the functions of the framework are called that clip gradients.
_CLIP = "clip_grad"
#: So well must the factor of gradients be that of the scale.
_SAME_FACTOR = 1e-3


@dataclass(frozen=True)
class _Order:
    """The first calls after the backward pass that clip gradients and that unscale them, as far as there are any."""

    clips: tuple[Event, ...]
    unscales: Event | None

    @property
    def is_wrong(self) -> bool:
        return bool(self.clips) and self.unscales is not None and self.clips[0].index < self.unscales.index


def look_for_scaled_clipping(scene: Scene) -> None:
    """Suspect clipping before unscaling, where the other side unscales first; what follows from it is not told."""
    if scene.comparer.crossing or not scene.has_values:
        return
    orders = [_order_of(side) for side in (scene.pairing.candidate, scene.pairing.reference)]
    if orders[0].is_wrong == orders[1].is_wrong or not all(order.clips and order.unscales for order in orders):
        return
    wrong = 0 if orders[0].is_wrong else 1
    clip, unscale = orders[wrong].clips[0], orders[wrong].unscales
    assert unscale is not None
    side, other = ("candidate", "reference") if wrong == 0 else ("reference", "candidate")
    judged = next((one for one in scene.judged.values() if one.event.direction == "forward"), None)
    if judged is None:
        return
    scale = _scale_of(unscale)
    times = f": its limit is that of gradients which are {scale:.6g} times as large" if scale else ""
    scene.say(
        ("scaled clipping",),
        judged,
        "structure",
        f"the {side} clips gradients ({clip.name}) before it takes the scale of the loss from them ({unscale.name})"
        f"{times}; the {other} takes it away first",
        where=clip.name,
        clear=True,
        facts=(Because("scaled_clipping"), Listed("calls", (clip.name, unscale.name))),
        entry=clip,
        place=scene.place_of(clip) - 0.75,
        matters=True,
    )
    for order in orders:
        for one in (*order.clips, order.unscales):
            scene.ledger.close(("calls", one))
            scene.ledger.close(("gradient on its way", one))


def names_the_scale(judged: Judged, factor: float | None) -> float:
    """The scale of the loss, if it is the factor by which all gradients differ that the optimizers get: where no calls
    were recorded, that shows gradients that one side clipped before it took the scale from them. 0 if it is not.
    """
    scales = [_scale_of_step(event) for event in (judged.event, judged.partner)]
    if factor is None or factor <= 0 or not scales[0] or scales[0] != scales[1] or scales[0] == 1.0:
        return 0.0
    return scales[0] if abs(abs(math.log(factor)) - abs(math.log(scales[0]))) <= _SAME_FACTOR else 0.0


def _order_of(timeline: Timeline) -> _Order:
    after = [one for one in timeline.events[timeline.first_backward :] if one.is_call and one.direction == "forward"]
    unscales = next((one for one in after if _UNSCALE in operation(one.stem) and one.module is None), None)
    if unscales is None:
        return _Order((), None)
    clips = [one for one in after if one.module is None and _clips(timeline, one)]
    return _Order(tuple(clips), unscales)


def _clips(timeline: Timeline, event: Event) -> bool:
    if operation(event.stem) in operators.NORMS:
        return True
    return public_function(timeline.part.stack(event.name)).startswith(_CLIP)


def _scale_of(unscale: Event) -> float:
    """What a call divides gradients by: it is given the reciprocal last."""
    single = [leaf for _, leaf in unscale.inputs() if is_floating(leaf) and leaf.get("shape") == []]
    found = numbers(single[-1]) if single else None
    return 1 / found[0] if found is not None and found[0] > 0 else 0.0


def _scale_of_step(step: Event) -> float:
    scaler = step.record.get("grad_scaler")
    leaf = scaler.get("scale") if isinstance(scaler, dict) else None
    value = optimizer.value_of(leaf) if leaf is not None else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else 0.0

"""Gradients that one side clips before the scale of the loss is taken from them: the limit is that of scaled ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import is_floating, numbers
from msprobe.diagnose.effect.arrival import SAME_FACTOR
from msprobe.diagnose.evidence import Because, Listed
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.public_functions import public_function
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said

#: What scalers call to divide gradients by the scale.
_UNSCALE = "unscale"
#: How the functions of the framework are called that clip gradients.
_CLIP = "clip_grad"


@dataclass(frozen=True)
class _Order:
    """The calls after the backward pass that clip gradients and that unscale them, as far as there are any. ``scale``:
    what gradients are divided by; 0 if it is not known. ``by_hand``: by calls of the program, and not by a scaler.
    """

    clips: tuple[Event, ...] = ()
    unscales: tuple[Event, ...] = ()
    scale: float = 0.0
    by_hand: bool = False

    @property
    def is_wrong(self) -> bool:
        return bool(self.clips and self.unscales) and self.clips[0].index < self.unscales[0].index


def look_for_scaled_clipping(scene: Scene) -> None:
    """Suspect clipping before unscaling, where the other side unscales first; what follows from it is not reported."""
    if scene.comparer.crossing or not scene.has_values:
        return
    orders = [_order_of(side) for side in (scene.pairing.candidate, scene.pairing.reference)]
    if orders[0].is_wrong == orders[1].is_wrong or not all(order.clips and order.unscales for order in orders):
        return
    if any(order.by_hand for order in orders) and orders[0].scale != orders[1].scale:
        return
    wrong = 0 if orders[0].is_wrong else 1
    clip, unscale, by_hand = orders[wrong].clips[0], orders[wrong].unscales[0], orders[wrong].by_hand
    side, other = ("candidate", "reference") if wrong == 0 else ("reference", "candidate")
    judged = next((call for call in scene.judged.values() if call.event.direction == "forward"), None)
    if judged is None:
        return
    scale = orders[wrong].scale
    takes, other_takes = "unscales them", "unscales first"
    if by_hand:
        takes, other_takes = said("divides-them-by", scale), "divides first"
    times = said("limit-of-scaled-gradients", scale) if scale else ""
    calls = tuple(dict.fromkeys(call.name for order in orders for call in (*order.clips[:1], *order.unscales)))
    scene.say(
        ("scaled clipping",),
        judged,
        "structure",
        said("clipped-before-unscaled", side, clip.name, takes, unscale.name, times, other, other_takes),
        facts=(Because("scaled_clipping"), Listed("calls", calls)),
        entry=clip,
        place=scene.place_of(clip) - 0.75,
        # Where the limit is beyond both, clipping changes nothing.
        matters=not (by_hand and scene.arrival.clean),
    )
    for order in orders:
        for call in (*order.clips, *order.unscales):
            scene.ledger.close(("calls", call))
            scene.ledger.close(("passing gradient", call))


def names_the_scale(judged: Judged, factor: float | None) -> float:
    """The scale of the loss, if it is the factor by which all gradients differ that the optimizers get: where no calls
    were recorded, that shows gradients that one side clipped before it took the scale from them. 0 if it is not.
    """
    scales = [_scale_of_step(event) for event in (judged.event, judged.partner)]
    if factor is None or factor <= 0 or not scales[0] or scales[0] != scales[1] or scales[0] == 1.0:
        return 0.0
    return scales[0] if abs(abs(math.log(factor)) - abs(math.log(scales[0]))) <= SAME_FACTOR else 0.0


def _order_of(timeline: Timeline) -> _Order:
    after = [
        call for call in timeline.events[timeline.first_backward :] if call.is_call and call.direction == "forward"
    ]
    after = [call for call in after if call.module is None]
    clips = tuple(call for call in after if _clips(timeline, call))
    unscales = next((call for call in after if _UNSCALE in operation(call.stem)), None)
    if unscales is not None:
        return _Order(clips, (unscales,), _scale_of(unscales))
    divided = {call: number for call in after if call not in clips and (number := _divisor_of(call)) is not None}
    scales = set(divided.values())
    return _Order(clips, tuple(divided), scales.pop(), by_hand=True) if len(scales) == 1 else _Order(clips)


def _divisor_of(event: Event) -> float | None:
    """What a call that writes in place divides its tensors by, if that is a number and not 1."""
    word = operation(event.stem).removeprefix("_foreach_")
    given = event.inputs()
    if word not in operators.FACTORS or not writes_in_place(event.stem) or not given or is_tensor(given[-1][1]):
        return None
    value = optimizer.value_of(given[-1][1])
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value in (0, 1):
        return None
    return float(value) if word.endswith("div") else 1.0 / value


def _clips(timeline: Timeline, event: Event) -> bool:
    if operation(event.stem) in operators.NORMS:
        return True
    return public_function(timeline.part.stack(event.name)).startswith(_CLIP)


def _scale_of(unscale: Event) -> float:
    """What a call divides gradients by: it is given the reciprocal last."""
    single = [leaf for _, leaf in unscale.inputs() if is_floating(leaf) and leaf.get("shape") == []]
    statistics = numbers(single[-1]) if single else None
    return 1 / statistics[0] if statistics is not None and statistics[0] > 0 else 0.0


def _scale_of_step(step: Event) -> float:
    scaler = step.record.get("grad_scaler")
    leaf = scaler.get("scale") if isinstance(scaler, dict) else None
    value = optimizer.value_of(leaf) if leaf is not None else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else 0.0

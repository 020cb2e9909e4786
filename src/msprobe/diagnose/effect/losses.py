"""The loss: the number that a backward pass begins with, whatever call makes it."""

from __future__ import annotations

import math
from typing import Any

from msprobe.diagnose.differences.records import Comparer, is_floating
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event, Timeline


def losses_difference(pairing: Pairing, comparer: Comparer) -> float | None:
    """The largest relative difference of the losses of a step; where the two sides have different numbers of them, as
    of micro-batches, that of their sums. None where calls do not say what the losses are.
    """
    ours, theirs = losses_of(pairing.candidate), losses_of(pairing.reference)
    if not ours or not theirs:
        return None
    if len(ours) != len(theirs):
        sums = [sum(map(_number_of, losses)) for losses in (ours, theirs)]
        return abs(sums[0] - sums[1]) / abs(sums[1]) if all(map(math.isfinite, sums)) and sums[1] else None
    differences = [difference for pair in zip(ours, theirs, strict=True) for difference in comparer.leaf("", *pair)]
    # One loss may have fewer digits than the other.
    sizes = [difference.delta for difference in differences if difference.what in ("value", "not_finite")]
    return max(sizes, default=0.0)


def _number_of(scalar: dict[str, Any]) -> float:
    """The value of a recorded scalar, NaN where that is not known."""
    value = scalar.get("Max")
    return float(value) if isinstance(value, (int, float)) else math.nan


def losses_of(timeline: Timeline) -> list[dict[str, Any]]:
    """Records of the scalars that the backward passes of a step begin with, in the order of execution."""
    losses: list[dict[str, Any]] = []
    backward = False
    for event in timeline:
        if event.direction == "backward" and event.is_call:
            forward = timeline.forward_of(event)
            if not backward and forward is not None and (result := scalar_of(forward)) is not None:
                losses.append(result)
            backward = True
        elif event.direction == "forward" and event.is_call:
            backward = False
    return losses


def scalar_of(event: Event) -> dict[str, Any] | None:
    """The only result of a call, if it is a floating-point number that gradients go back through."""
    outputs = event.outputs()
    if len(outputs) != 1 or not is_floating(outputs[0][1]):
        return None
    result: dict[str, Any] = outputs[0][1]
    return result if result.get("shape") == [] and result.get("requires_grad") is True else None

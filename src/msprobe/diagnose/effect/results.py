"""The loss, which is the number that a backward pass begins with, whatever call makes it; and what a model returns:
where nothing was trained, that is all there is to have an effect on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Comparer, Difference, is_floating, is_integer
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance.judge import Judged


def changed_results(judged: Iterable[Judged]) -> list[Difference]:
    """What differs of the results of a step without gradients: those of the outermost modules, of the last call outside
    of all modules, and of the last of these that gives numbers with a fraction (behind it, tokens are chosen). Where
    rounding chose another token, what follows from that says nothing.
    """
    every = [call for call in judged if call.event.direction == "forward" and call.event.parent is None]
    outermost = [call for call in every if not call.behind]
    chosen = {id(call): call for call in outermost if call.event.is_module}
    for last in (outermost[-1:], [call for call in outermost if _is_measurable(call)][-1:]):
        chosen.update((id(call), call) for call in last)
    differences = [difference for call in chosen.values() for difference in call.changed_outputs]
    if _chooses_by_rounding(outermost):
        differences = [difference for difference in differences if not is_integer(difference.left or {})]
    return differences


def _is_measurable(judged: Judged) -> bool:
    return any(is_floating(leaf) for _, leaf in judged.event.outputs())


def _chooses_by_rounding(outermost: Sequence[Judged]) -> bool:
    """True if a call chose another of several that are about as large, from inputs that are apart by rounding: what it
    chose says nothing that its inputs do not.
    """
    return any(
        call.changed_inputs
        and call.status != "unexplained"
        and any(is_integer(d.left or {}) for d in call.changed_outputs)
        for call in outermost
        if operation(call.event.stem) in operators.CHOOSES
    )


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

"""Which parameters calls take, and whether a parameter is the same on both sides, as modules and optimizers say."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Timeline, is_tensor
from msprobe.diagnose.tolerance.judge import Judged


def equal_weights(judged: Iterable[Judged], comparer: Comparer) -> dict[str, bool]:
    """Of each parameter that both sides recorded by its name: is it the same at the beginning of the step?"""
    equal: dict[str, bool] = {}
    for call in judged:
        event = call.event
        if event.is_module and event.direction == "forward":
            differing = {difference.slot for difference in call.parameters}
            others = {slot for slot, _ in call.partner.parameters()}
            for slot, _ in event.parameters():
                name = parameter_name(event, slot)
                if slot in others:
                    equal.setdefault(name, slot not in differing)
        elif event.parts.kind == "optimizer":
            mine, theirs = optimizer.parameters_of(event), optimizer.parameters_of(call.partner)
            for name, fields in mine.items():
                left, right = fields.get("weight"), theirs.get(name, {}).get("weight")
                if is_tensor(left) and is_tensor(right):
                    equal.setdefault(name, not comparer.leaf(name, left, right))
    return equal


def weights_taken(timeline: Timeline, makers: Producers) -> set[str]:
    """The parameters that calls of the forward pass take."""
    return {
        name
        for event in timeline
        if event.is_call and event.direction == "forward"
        for _, leaf in event.inputs()
        if is_tensor(leaf)
        for name in makers.parameters(leaf)
    }

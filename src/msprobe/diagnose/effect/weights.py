"""Which parameters calls take, and whether a parameter is the same on both sides, as modules and optimizers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.differences.records import Comparer, fingerprint, numel
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.parameter_names import parameter_name, plain_name
from msprobe.diagnose.steps.timeline import Timeline, is_tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.store.rows import number_of


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


def weights_in_order(judged: Iterable[Judged]) -> frozenset[str]:
    """The parameters of which both sides recorded at the beginning of the step, by a digest or a row, in which order
    their elements are.
    """
    return frozenset(
        parameter_name(call.event, slot)
        for call in judged
        if call.event.is_module and call.event.direction == "forward"
        for slot, leaf in call.event.parameters()
        if _shows_order(leaf) and _shows_order(dict(call.partner.parameters()).get(slot))
    )


def _shows_order(leaf: Any) -> bool:
    return is_tensor(leaf) and ("digest" in leaf or "md5" in leaf or number_of(leaf) >= 0)


def recorded_parameters(timeline: Timeline) -> frozenset[str]:
    """The names of the parameters of modules, where these were recorded."""
    return frozenset(
        plain_name(event, slot)
        for event in timeline
        for slot, _ in event.parameters()
        if slot.startswith("parameters.")
    )


def are_arranged_otherwise(pairing: Pairing, ours: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if the parameters that one side's optimizer alone has are those of the other's under other names, or put
    together otherwise: neither model has those of the other, as far as modules or calls say, and they have as many
    elements.
    """
    more, gone = (
        {name: fields.get("weight") or {} for name, fields in side.items() if name not in others}
        for side, others in ((ours, other), (other, ours))
    )
    if not (more and gone) or sum(map(numel, more.values())) != sum(map(numel, gone.values())):
        return False
    return not (_has_some(pairing.candidate, gone) or _has_some(pairing.reference, more))


def _has_some(timeline: Timeline, weights: Mapping[str, Any]) -> bool:
    """True if a model has one of these parameters, by its name where modules were recorded, else by what calls take."""
    if recorded := recorded_parameters(timeline):
        return not recorded.isdisjoint(map(plain_path, weights))
    looks = {(str(leaf.get("shape")), mark) for leaf in weights.values() if (mark := fingerprint(leaf)) is not None}
    return any(
        (str(leaf.get("shape")), fingerprint(leaf)) in looks
        for event in timeline
        if event.is_call and event.direction == "forward"
        for _, leaf in event.inputs()
        if is_tensor(leaf)
    )


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

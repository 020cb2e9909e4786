"""What the weights are in each step, of which the next one says how far an optimizer moved them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msprobe.diagnose.differences.records import is_floating
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import said

Pairs = Iterable[tuple[Event, Event]]


def weights_of(pairs: Pairs, makers: Producers) -> dict[str, tuple[Any, Any]]:
    """The parameters of modules on both sides, by name; where modules were not recorded, what calls take that no call
    made (``makers``: of the candidate), by its place. ``pairs``: events of the candidate and what answers to them.
    """
    weights: dict[str, tuple[Any, Any]] = {}
    for event, partner in pairs:
        for name, pair in places_of_weights(event, partner, makers).items():
            weights.setdefault(name, pair)
    return weights


def places_of_weights(event: Event, partner: Event, makers: Producers) -> dict[str, tuple[Any, Any]]:
    """What one pair takes that may be weights."""
    if event.direction != "forward":
        return {}
    if event.is_module:
        pairs = _in_both(event.parameters(), partner.parameters())
        return {parameter_name(event, slot): pair for slot, pair in pairs if slot.startswith("parameters.")}
    if event.parts.kind != "api" or makers.knows_parameters:
        return {}
    pairs = _in_both(event.inputs(), partner.inputs())
    return {place_of_weight(event, slot): pair for slot, pair in pairs if makers.of(pair[0], event) is None}


def place_of_weight(event: Event, slot: str) -> str:
    """How what a call takes is called where modules were not recorded."""
    return said("of-call", slot, event.name)


def _in_both(left: Iterable[tuple[str, Any]], right: Iterable[tuple[str, Any]]) -> list[tuple[str, tuple[Any, Any]]]:
    others = dict(right)
    return [(slot, (leaf, others[slot])) for slot, leaf in left if is_floating(leaf) and is_floating(others.get(slot))]

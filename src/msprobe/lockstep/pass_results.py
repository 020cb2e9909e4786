"""What passes of modules return beside what the reference has: a region that began inside of a module ends there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msprobe.lockstep import pairing
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.reference import Slots
from msprobe.lockstep.regions import Regions


def judged(
    name: str,
    results: Iterable[tuple[str, Any]],
    slots: Slots,
    regions: Regions,
    beside: Beside,
    values: pairing.Values,
) -> dict[str, Any]:
    """Judge the own values among the results of a pass. By path, what takes their places: the recorded values,
    linked to the own value where that agrees, else to what was put right.
    """
    given: dict[str, Any] = {}
    for path, tensor in results if slots else ():
        own, slot = regions.own(tensor), slots.get(path)
        if own is None or slot is None or name not in own.region.root.passes:
            continue
        regions.take(tensor)
        value = tensor if own.value is None else own.value
        if slot.shape != values.shape(value):
            continue
        other, root = beside.other(value, slot), own.region.root
        agrees = other is None or beside.agrees(value, other, slot, root)
        root.end(name, agrees)
        primary = None if own.value is None else beside.other(tensor, slot)
        if agrees and primary is not None:
            root.compensates |= not beside.agrees(tensor, primary, slot, root)
        regions.drop(tensor)
        if agrees and (other is not None or own.value is not None):
            given[path] = value if other is None else values.linked(value, other)
        elif not agrees and (other := beside.other(tensor, slot)) is not None:
            given[path] = values.linked(tensor, other)
    return given


def recorded(
    results: Iterable[tuple[str, Any]], slots: Slots, beside: Beside, values: pairing.Values
) -> dict[str, Any]:
    """By path, the recorded values in the places of the results that differ."""
    linked = ((path, tensor, beside.other(tensor, slots.get(path))) for path, tensor in results)
    return {path: values.linked(tensor, other) for path, tensor, other in linked if other is not None}

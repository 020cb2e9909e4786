"""What the steps of optimizers take and leave behind: gradients, weights and moments beside the recorded ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msprobe.capture.events import OptimizerStep
from msprobe.diagnose.tolerance import noise
from msprobe.diagnose.tolerance.roundings import rounding_count_limit
from msprobe.lockstep import pairing
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.reference import RecordedStep, Slot, Slots, find_slots
from msprobe.lockstep.regions import Region, Regions

#: The part of a record about what is before the step, and what is after it.
Part = Literal["input_kwargs", "output"]


#: So many roundings make a new weight or moment.
_CALLS_OF_STEP = 8


@dataclass(frozen=True)
class Beyond:
    """A tensor of a parameter that an optimizer works on: ``field`` is ``.weight``, ``.grad`` or the like, ``slot``
    where it was recorded.
    """

    name: str
    field: str
    weight: Any
    tensor: Any
    slot: Slot


def differing(
    event: OptimizerStep, record: Mapping[str, Any] | None, part: Part, beside: Beside
) -> list[tuple[Any, Any]]:
    """Weights and moments before and after a step that differ, and gradients before it, with what the reference has
    instead, as far as they were recorded whole. Where a closure computes the gradients, those before it do not count.
    """
    pairs: list[tuple[Any, Any]] = []
    for recorded_field in _beside_recorded(event, record, part, beside):
        other = (
            None
            if recorded_field.field == ".grad" and event.has_closure
            else beside.other(recorded_field.tensor, recorded_field.slot)
        )
        if other is not None:
            pairs.append((recorded_field.tensor, other))
    return pairs


def is_rewritten(event: OptimizerStep | None, recorded: RecordedStep | None) -> bool:
    """True for an optimizer of another class than the reference's: what it calls answers to nothing, and what it comes
    to is judged.
    """
    return (
        event is not None
        and recorded is not None
        and event.name not in recorded.optimizers
        and recorded.optimizer_like(event.name) in recorded.optimizers
    )


def comes_to_the_same(event: OptimizerStep, record: Mapping[str, Any] | None, beside: Beside) -> bool:
    """True if weights after a step, and moments that both sides have, are the reference's but for rounding."""
    beside_recorded = list(_beside_recorded(event, record, "output", beside))
    others = (
        (recorded_field, beside.other(recorded_field.tensor, recorded_field.slot)) for recorded_field in beside_recorded
    )
    return any(recorded_field.field == ".weight" for recorded_field in beside_recorded) and all(
        other is None
        or beside.apart(recorded_field.tensor, other) <= rounding_count_limit(_CALLS_OF_STEP, recorded_field.slot.unit)
        for recorded_field, other in others
    )


def _beside_recorded(
    event: OptimizerStep, record: Mapping[str, Any] | None, part: Part, beside: Beside
) -> Iterator[Beyond]:
    """The tensors of each parameter that have a recorded partner of their shape."""
    content = record.get(part) if record is not None else None
    if part == "output" and isinstance(content, list):
        content = content[0] if content else None
    if not isinstance(content, Mapping):
        return
    for name, parameter in event.parameters.items():
        slots: Slots = {}
        find_slots("", content.get(name), slots)
        live = {".weight": parameter.weight, ".grad": parameter.gradient}
        live |= {f".{word}": value for word, value in parameter.moments.items()}
        for path, tensor in live.items():
            slot = slots.get(path)
            if slot is not None and hasattr(tensor, "shape") and beside.has_shape(tensor, slot):
                yield Beyond(name, path, parameter.weight, tensor, slot)


def judge_gradients(
    event: OptimizerStep, record: Mapping[str, Any] | None, beside: Beside, regions: Regions, values: pairing.Values
) -> dict[str, bool]:
    """Whether each gradient that a step takes is the reference's but for the rounding of its sum, by the name of its
    parameter. The own values count, whatever was put in their place on the way. Regions that have made these gradients,
    and those that nothing else has ended, are judged by them.
    """
    taken = [
        recorded_field
        for recorded_field in _beside_recorded(event, record, "input_kwargs", beside)
        if recorded_field.field == ".grad"
    ]
    owned = [regions.own(field_taken.tensor) for field_taken in taken]
    mine = [
        field_taken.tensor if own is None or own.value is None else own.value
        for field_taken, own in zip(taken, owned, strict=True)
    ]
    others = [beside.other(own, field_taken.slot) for field_taken, own in zip(taken, mine, strict=True)]
    sizes = [
        values.size(own if other is None else other) if own.numel() else 0.0
        for own, other in zip(mine, others, strict=True)
    ]
    # One that is zero but for rounding says nothing.
    least = noise.SMALL_GRADIENT * max(filter(math.isfinite, sizes), default=0.0)
    apart = [_apart(own, other, max(size, least), values) for own, other, size in zip(mine, others, sizes, strict=True)]
    agree: dict[str, bool] = {}
    for field_taken, own, off in zip(taken, owned, apart, strict=True):
        around = [*regions.taking(field_taken.weight), *([own.region.root] if own is not None else [])]
        agree[field_taken.name] = off <= max(
            region.allowed(field_taken.slot.unit, gradient=True) for region in around or [Region(())]
        )
        if own is not None:
            own.region.root.end(event.name, agree[field_taken.name])
    for region in regions:
        if not region.ends and region.has_gradient and region.decides_by_gradients:
            limits = (region.allowed(field_taken.slot.unit, gradient=True) for field_taken in taken)
            region.end(event.name, all(off <= limit for off, limit in zip(apart, limits, strict=True)))
    return agree


def _apart(own: Any, other: Any, size: float, values: pairing.Values) -> float:
    """How far a gradient is apart from the reference's, relative to a size; infinite where it is not finite."""
    if other is None:
        return 0.0
    relative = values.apart(own, other)
    if not math.isfinite(relative) and values.size(other):
        return math.inf
    distance = values.size(own - other)
    return distance / size if math.isfinite(distance) and size else math.inf

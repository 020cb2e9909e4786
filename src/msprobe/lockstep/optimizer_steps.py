"""What the steps of optimizers take and leave behind: gradients, weights and moments beside the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msprobe.capture.events import OptimizerStep
from msprobe.diagnose.tolerance import noise
from msprobe.lockstep import pairing
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.reference import Slot, Slots, find_slots
from msprobe.lockstep.regions import Regions

#: The part of a record that tells of before the step, and of after it.
Part = Literal["input_kwargs", "output"]
#: A gradient, what the reference has instead (None where that is the same), and where it was recorded.
Beyond = tuple[Any, Any, Slot]


def differing(
    event: OptimizerStep, record: Mapping[str, Any] | None, part: Part, beside: Beside
) -> list[tuple[Any, Any]]:
    """Weights and moments before and after a step that differ, and gradients before it, with what the reference has
    instead, as far as they were recorded whole. Where a closure computes the gradients, those before it do not count.
    """
    pairs: list[tuple[Any, Any]] = []
    for path, tensor, slot in _beside_recorded(event, record, part, beside):
        other = None if path == ".grad" and event.has_closure else beside.other(tensor, slot)
        if other is not None:
            pairs.append((tensor, other))
    return pairs


def gradients(event: OptimizerStep, record: Mapping[str, Any] | None, beside: Beside) -> list[Beyond]:
    """The gradients that a step takes: before it, with a closure after it."""
    return [
        (tensor, beside.other(tensor, slot), slot)
        for path, tensor, slot in _beside_recorded(event, record, "input_kwargs", beside)
        if path == ".grad"
    ]


def _beside_recorded(
    event: OptimizerStep, record: Mapping[str, Any] | None, part: Part, beside: Beside
) -> Iterator[tuple[str, Any, Slot]]:
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
                yield path, tensor, slot


def end_at_gradients(
    event: OptimizerStep, record: Mapping[str, Any] | None, beside: Beside, regions: Regions, values: pairing.Values
) -> None:
    """Judge the regions that nothing else has ended by the gradients of all parameters. One that is zero but for
    rounding tells nothing.
    """
    unended = [one for one in regions if not one.ends and one.has_gradient and one.tells_by_gradients]
    if not unended:
        return
    found = gradients(event, record, beside)
    sizes = [values.size(tensor) for tensor, _, _ in found]
    least = noise.SMALL_GRADIENT * max(sizes, default=0.0)
    for region in unended:
        agrees = all(
            other is None
            or values.apart(tensor, other) * min(1.0, size / least if least else 1.0)
            <= region.allowed(slot.unit, gradient=True)
            for (tensor, other, slot), size in zip(found, sizes, strict=True)
        )
        region.end(event.name, agrees)

"""A gradient that leaves a region and is nothing but rounding is judged beside the others that leave it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from support.row_by_row import for_each

from msprobe.capture.events import Gradient
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.gradients import Gradients
from msprobe.lockstep.regions import Region, Regions
from msprobe.lockstep.torch.values import TorchValues

UNIT = 2.0**-7
KEYS, VALUES = ("Tensor.transpose", 0), ("Tensor.transpose", 1)


class _Recorded(Beside):
    """Slots that hold their values."""

    def has_shape(self, tensor: Any, slot: Any) -> bool:
        return True

    def other(self, tensor: Any, slot: Any) -> Any:
        return None if torch.equal(tensor, slot.held) else slot.held

    def recorded(self, tensor: Any, slot: Any) -> Any:
        return slot.held


def slot(held: torch.Tensor) -> Any:
    return SimpleNamespace(held=held, unit=UNIT)


def judged(own: float, recorded: float, of_values: float) -> bool:
    """Whether a region agrees whose gradient for keys is ``own`` and was ``recorded``, beside that for values."""
    ones = torch.ones(4, 4)
    regions = Regions()
    region = regions.join("Functional.scaled_dot_product_attention.0.forward", (), (), begins=True)
    region.note_gradient(None, is_own=True)
    found = {
        mark: SimpleNamespace(outputs={"output.0": slot(ones)}, gradient=slot(ones * size))
        for mark, size in ((KEYS, recorded), (VALUES, of_values))
    }
    for mark in found:
        tensor = ones.clone()
        regions.note_made(tensor, mark)
        regions.join("Functional.scaled_dot_product_attention.0.forward", _in(region), [tensor], begins=False)
    step = SimpleNamespace(gradients_of=lambda one: ({"output.0": one.gradient}, {}))
    pairs: Any = SimpleNamespace(partner=found, step=step, has_unmade=lambda _: False)
    gradients = Gradients(pairs, regions, _Recorded(TorchValues()), has_modules=False)
    for (key, number), size in ((KEYS, own), (VALUES, of_values)):
        name = f"{key}.{number}.backward"
        gradients.other(Gradient(name, 0, None, key, number, "result", "output.0", ones * size))
    gradients.look_for_missed()
    return all(region.root.ends.values()) and len(region.root.ends) == 2


def _in(region: Region) -> list[Any]:
    return [SimpleNamespace(region=region, call="")]


@for_each(
    "own, recorded, of_values, agrees",
    [
        # Scores whose values are all the same: one way gives nothing, the other what rounding leaves.
        (0.0, 4e-6, 0.03, True),
        (4e-6, -3e-6, 0.03, True),
        # A gradient that is cut off, in a type that could tell.
        (0.0, 4e-3, 0.03, False),
        (0.0, 4e-4, 0.03, False),
        # All of them are small: then nothing says that it is rounding.
        (0.0, 4e-6, 4e-6, False),
        (0.0, 4e-6, 0.0, False),
        (float("nan"), 4e-6, 0.03, False),
    ],
)
def test_what_cancels_out_is_no_difference(own: float, recorded: float, of_values: float, agrees: bool) -> None:
    assert judged(own, recorded, of_values) is agrees

"""An own tensor beside what the reference has in its place."""

from __future__ import annotations

import math
from typing import Any

from msprobe.lockstep import pairing
from msprobe.lockstep.reference import RecordedStep, Slot
from msprobe.lockstep.regions import Region


class Beside:
    """The recorded values of one step of one rank, beside tensors of the candidate; ``recorded``: None where the step
    was not recorded.
    """

    def __init__(self, values: pairing.Values, recorded: RecordedStep | None = None) -> None:
        self._values = values
        self._recorded = recorded

    def has_shape(self, tensor: Any, slot: Slot) -> bool:
        """True if a tensor has the recorded shape."""
        return slot.shape == self._values.shape(tensor)

    def other(self, tensor: Any, slot: Slot | None) -> Any:
        """The recorded values, if there are any, and the tensor has others; else None."""
        if slot is None or self._recorded is None or not self.has_shape(tensor, slot):
            return None
        array = self._recorded.array(slot)
        if array is None or self._values.equals(tensor, array):
            return None
        other = self._values.like(tensor, array)
        return other if self._values.fits(tensor, other) else None

    def recorded(self, tensor: Any, slot: Slot) -> Any:
        """The recorded values in the form of a tensor; None if there are none, or they do not fit."""
        array = self._recorded.array(slot) if self._recorded is not None and self.has_shape(tensor, slot) else None
        other = None if array is None else self._values.like(tensor, array)
        return other if other is not None and self._values.fits(tensor, other) else None

    def factor(self, tensor: Any, slot: Slot) -> float:
        """By what the recorded number is multiplied where a tensor of one element is; 1 where that is no factor."""
        other = self.recorded(tensor, slot)
        if other is None:
            return 1.0
        own, recorded = float(tensor), float(other)
        return own / recorded if recorded and math.isfinite(own / recorded) and own else 1.0

    def apart(self, tensor: Any, other: Any) -> float:
        return self._values.apart(tensor, other)

    def moves(self, gradient: Any, value: Any) -> float:
        """By how much at most a loss changes with a tensor, relative to the change of that tensor; 0 where that is not
        finite. ``value``: what the tensor holds.
        """
        product = self._values.size(gradient) * self._values.size(value) * gradient.numel() if gradient.numel() else 0.0
        return product if math.isfinite(product) else 0.0

    def agrees(self, tensor: Any, other: Any, slot: Slot | None, region: Region, gradient: bool = False) -> bool:
        """True if an own tensor is what the reference has in its place, but for the rounding of its region."""
        return self._values.apart(tensor, other) <= region.allowed(slot.unit if slot is not None else 0.0, gradient)

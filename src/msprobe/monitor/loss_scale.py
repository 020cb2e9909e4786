"""Two runs that scale their losses by different factors, and take the factor away before the step.

Unreduced gradients are then apart by one factor, all of them, and what the optimizer gets is not: that is no fault, and
they are compared without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from msprobe.monitor.sketch import Sketch

_BACKWARD, _STEP = "grad_unreduced", "grad_reduced"
# What two healthy runs are apart by is no factor, and no factor takes them further apart than this.
_LEAST = 1e-2
_ALIKE = 1e-2
_SHARE = 0.9
_LEAST_TENSORS = 3


def without_loss_scale(pairs: Sequence[tuple[Sketch, Sketch]]) -> list[tuple[Sketch, Sketch]]:
    """The pairs of a run and another, in whose second one the scale of the loss is that of the first."""
    return [(ours, _on_scale_of(ours, theirs)) for ours, theirs in pairs]


def _on_scale_of(ours: Sketch, theirs: Sketch) -> Sketch:
    scaled, stepped = _log_ratios(ours, theirs, _BACKWARD), _log_ratios(ours, theirs, _STEP)
    if min(len(scaled), len(stepped)) < _LEAST_TENSORS:
        return theirs
    factor = float(np.median(scaled))
    if abs(factor) < _LEAST or np.mean(np.abs(scaled - factor) < _ALIKE) < _SHARE:
        return theirs
    if np.mean(np.abs(stepped) < _ALIKE) < _SHARE:
        return theirs
    numbers = theirs.numbers.copy()
    numbers[[group.quantity == _BACKWARD for group in theirs.groups]] *= np.float32(np.exp(-factor))
    return replace(theirs, numbers=numbers)


def _log_ratios(ours: Sketch, theirs: Sketch, quantity: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of the tensors of a quantity: the logarithm of the norm in the second over that in the first."""
    places = {group: at for at, group in enumerate(theirs.groups)}
    pairs = [
        (float(ours.numbers[at, 0]), float(theirs.numbers[places[group], 0]))
        for at, group in enumerate(ours.groups)
        if group.quantity == quantity and group in places
    ]
    return np.array([np.log(b / a) for a, b in pairs if 0 < a < np.inf and 0 < b < np.inf])

"""Which gradients of a step have no direction worth comparing: those that are NaN, and those that are rounding alone.

The gradient of a bias in front of a batch normalization is zero but for rounding, and its signs are those of noise: two
healthy runs agree in half of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from msprobe.grad_probe.reading import StepRows, shape_of

#: Elements this much smaller, as a root of the mean of squares, than those of the median parameter of the step are made
#: of rounding: float32 distinguishes 1e-7; a sum of n elements rounds by the root of n times that.
NOISE = 1e-5


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one run and step. ``elements``: name -> root mean square of the gradient's elements; NaN of a gradient with a
    NaN. ``usual``: the median of all.
    """

    elements: Mapping[str, float]
    usual: float

    def is_nan(self, name: str) -> bool:
        """True if the gradient has a NaN."""
        return math.isnan(self.elements.get(name, 0.0))

    def is_noise(self, name: str) -> bool:
        """True if the gradient is that much smaller than usual; not known of one without a norm."""
        return self.elements.get(name, math.inf) < NOISE * self.usual


Verdict = Literal["", "noise", "nan-in-both", "nan-in-first", "nan-in-second"]


def sizes_of(rows: StepRows) -> Sizes:
    """Read them of the columns ``norm`` and ``shape``."""
    elements = {}
    for name, row in rows.rows.items():
        shape = shape_of(row)
        count = math.prod(shape) if shape is not None else 0
        try:
            norm = float(row.get("norm", ""))
        except ValueError:
            continue
        if count:
            elements[name] = norm / math.sqrt(count)
    known = [size for size in elements.values() if math.isfinite(size) and size > 0]
    return Sizes(elements, float(np.median(known)) if known else 0.0)


def verdict_of(first_sizes: Sizes, name: str, other: Sizes, other_name: str) -> Verdict:
    """What forbids to judge the directions of a parameter in two runs; "" if nothing does."""
    first, second = first_sizes.is_nan(name), other.is_nan(other_name)
    if first or second:
        if first and second:
            return "nan-in-both"
        return "nan-in-first" if first else "nan-in-second"
    return "noise" if first_sizes.is_noise(name) and other.is_noise(other_name) else ""

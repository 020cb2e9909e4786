"""What is computed of a tensor in a monitored step: the operators, and what each makes of the numbers of a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Numbers = Mapping[str, Any]
Value = float | int | bool | None

# In the words of the configuration. norm: L2, in double. mean: in double. min, max: NaN where an element is. nans: how
# many. zeros: share of elements whose magnitude is below eps; NaN is not. id: the value of a tensor without dimensions.
# projection: the product with random signs, the same in every run (torch; nan in MindSpore).
OPERATORS = ("norm", "min", "max", "mean", "nans", "zeros", "id", "projection")

NAN = float("nan")


def _norm(numbers: Numbers) -> Value:
    return numbers["norm"] if numbers["count"] else 0.0


def _mean(numbers: Numbers) -> Value:
    return numbers["mean"] if numbers["count"] else NAN


def _least(numbers: Numbers) -> Value:
    return numbers["min"] if numbers["count"] and not numbers["nan"] else NAN


def _greatest(numbers: Numbers) -> Value:
    return numbers["max"] if numbers["count"] and not numbers["nan"] else NAN


def _nans(numbers: Numbers) -> Value:
    return numbers["nan"] if numbers["count"] else 0


def _zeros(numbers: Numbers) -> Value:
    below = numbers.get("below")
    return NAN if below is None or not numbers["count"] else below / numbers["count"]


def _id(numbers: Numbers) -> Value:
    return numbers["max"] if numbers["single"] and not numbers["nan"] else NAN


def _projection(numbers: Numbers) -> Value:
    return numbers.get("projection", NAN)  # type: ignore[no-any-return]


_MAKERS: dict[str, Callable[[Numbers], Value]] = {
    "norm": _norm,
    "min": _least,
    "max": _greatest,
    "mean": _mean,
    "nans": _nans,
    "zeros": _zeros,
    "id": _id,
    "projection": _projection,
}


class Operators:
    """The operators of a configuration, in its order."""

    def __init__(self, names: Sequence[str], eps: float) -> None:
        """``eps``: below this magnitude an element counts as zero."""
        self.names = tuple(names)
        self.eps = eps
        self.makers = tuple(_MAKERS[name] for name in self.names)
        self.needs_zeros = "zeros" in self.names
        self.needs_projection = "projection" in self.names
        # What most users watch, and what has to cost least.
        self.is_norm_alone = self.names == ("norm",)
        self.nothing = (None,) * len(self.names)

    def values(self, numbers: Numbers) -> tuple[Value, ...]:
        """One value for each operator. ``numbers``: those of :data:`msprobe.statistics_table.NUMBERS`, mean and norm
        not rounded, and ``below``: how many elements are below eps (None where that has no meaning).
        """
        if self.is_norm_alone:
            return (numbers["norm"] if numbers["count"] else 0.0,)
        return tuple([make(numbers) for make in self.makers])


def combined(norms: Sequence[float]) -> float:
    """The norm of several tensors taken together: the root of the sum of squares."""
    return math.sqrt(math.fsum(norm * norm for norm in norms))

"""What is known of a tensor in full precision: a row of numbers, whoever computed it.

Sums are of float64 values. What is not finite, and what is larger than :data:`FILL`, is counted and summed nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

#: Larger values fill what a mask hides (the least number of bfloat16 and float32 is 3.4e38); beside one, the sum of
#: squares of all others is lost: (1e18)**2 is 1e36, and 1e36 + 1e18 is 1e36 in float64.
FILL = 1e18
#: Seeded signed sums in a row, and blocks of consecutive elements.
SIGNED, BLOCKS = 8, 8
FIELDS = (
    "count",
    "zero",
    "left_out",
    "largest",
    "least",
    "total",
    "squares",
    *(f"signed{number}" for number in range(SIGNED)),
    *(f"block{number}" for number in range(BLOCKS)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers of one tensor of ``count`` elements, of which ``zero`` are zero. ``left_out``: what is not finite or
    beyond :data:`FILL` is in none of the others: ``largest``, ``least``, ``total``, ``squares`` (their sum);
    ``signed``: sums with signs drawn for each element, in units of the elements; ``blocks``: the squares
    of each eighth of them, in their order.
    """

    count: int
    zero: int
    left_out: int
    largest: float
    least: float
    total: float
    squares: float
    signed: tuple[float, ...]
    blocks: tuple[float, ...]

    @classmethod
    def read(cls, numbers: Sequence[float]) -> Row:
        """A row from its numbers, in the order of :data:`FIELDS`."""
        count, zero, left_out = (int(one) for one in numbers[:3])
        values = [float(one) for one in numbers[3:]]
        signed, blocks = tuple(values[4 : 4 + SIGNED]), tuple(values[4 + SIGNED :])
        return cls(count, zero, left_out, values[0], values[1], values[2], values[3], signed, blocks)

    @property
    def summed(self) -> int:
        """How many elements are in the sums."""
        return self.count - self.left_out

    @property
    def norm(self) -> float:
        """The root of the sum of squares."""
        return math.sqrt(max(self.squares, 0.0))


def row_of(values: Any) -> list[float]:
    """The numbers of an array of numpy, in the order of :data:`FIELDS`; nothing but zeros for None."""
    import numpy as np

    if values is None:
        return [0.0] * len(FIELDS)
    flat = np.asarray(values).ravel()
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    x = flat.astype(np.float64)
    taken = np.abs(x) <= FILL
    kept = x if taken.all() else x[taken]
    found = [float(x.size), float(np.count_nonzero(x == 0.0)), float(x.size - kept.size)]
    found += [float(kept.max()), float(kept.min())] if kept.size else [0.0, 0.0]
    y = x if kept is x else np.where(taken, x, 0.0)
    found += [float(y.sum()), float(y @ y)]
    found += (_signs(x.size) @ y).tolist()
    edges = [x.size * number // BLOCKS for number in range(BLOCKS + 1)]
    found += [float(y[at:end] @ y[at:end]) for at, end in pairwise(edges)]
    return found


@lru_cache(64)
def _signs(count: int) -> Any:
    import numpy as np

    drawn = np.random.Generator(np.random.PCG64(count)).integers(0, 2, (SIGNED, count), dtype=np.int8)
    return drawn * 2.0 - 1.0

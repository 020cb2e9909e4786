"""How far two tensors of a pair are apart, by their rows, and what that number is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msprobe.store.row_format import block_of
from msprobe.store.rows import BLOCKS, SUMS

if TYPE_CHECKING:
    from msprobe.store.rows import StructuredArray

#: ``exact``: all numbers are the same, or the tensors cannot hold the same. ``estimate``: the root mean square is known
#: but for a factor (the signed sums are eight draws: a quarter, one deviation of the root of a chi-square of eight).
#: ``lower``: the tensors differ in what is in no sum. ``unknown``: a side has no row, or another number of elements.
Kind = Literal["exact", "estimate", "lower", "unknown"]


#: No norm of what is in a row is larger: its elements are at most 1e18.
_LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Deviation:
    """``distance``: the norm of the difference. ``coherent``: what differs in the sums themselves (norm, sum, norms of
    blocks), each over its own standard deviation for errors of norm 1 that know nothing of each other: these give about
    ``distance`` over the root of ``count``, and a scale, an offset or a lost block far more. Both in units of elements.
    ``norm`` is the larger of both sides'; ``largest`` and ``least`` its elements, with their signs.
    """

    kind: Kind
    distance: float = 0.0
    coherent: float = 0.0
    norm: float = 0.0
    count: int = 0
    largest: float = 0.0
    least: float = 0.0
    #: As many elements of one size would have the sums of squares that the blocks have: fewer than ``count`` where a
    #: few blocks hold most of it, and errors average out less.
    alike: float = 0.0

    @property
    def is_known(self) -> bool:
        """True if it says how far the tensors are apart."""
        return self.kind in ("exact", "estimate")


UNKNOWN = Deviation("unknown")


def between(
    ones: StructuredArray, others: StructuredArray, counts: Sequence[int], alike_otherwise: Sequence[bool]
) -> list[Deviation]:
    """How far tensors are apart, pair by pair: ``ones`` and ``others`` are their rows
    (:meth:`msprobe.store.rows.Rows.take`), ``counts`` how many elements each pair has. ``alike_otherwise``: what is in
    no row is the same, as the number of NaN.
    """
    import numpy as np  # costs more than to compare what has no rows

    with np.errstate(all="ignore"):
        return _between(ones, others, counts, alike_otherwise)


def _between(
    ones: StructuredArray, others: StructuredArray, counts: Sequence[int], alike_otherwise: Sequence[bool]
) -> list[Deviation]:
    import numpy as np

    count = np.asarray(counts, np.float64)
    blank = np.isnan(ones["signed"]).any(1) | np.isnan(others["signed"]).any(1)
    same = np.asarray(alike_otherwise, np.bool_)
    for name in ones.dtype.names or ():
        equal = (ones[name] == others[name]) | (np.isnan(ones[name]) & np.isnan(others[name]))
        same &= equal.all(1) if equal.ndim > 1 else equal
    summed = np.maximum(count - np.maximum(ones["left_out"], others["left_out"]), 0.0)
    norms = np.sqrt(ones["squares"]), np.sqrt(others["squares"])
    norm = np.maximum(*norms)
    largest = np.where(summed > 0, np.maximum(ones["max"], others["max"]), 0.0)
    least = np.where(summed > 0, np.minimum(ones["min"], others["min"]), 0.0)
    block = np.array([block_of(one) for one in counts], np.float64)
    sizes = np.clip(count[:, None] - np.arange(BLOCKS) * block[:, None], 0.0, block[:, None])
    fourth = np.maximum(ones["blocks"], others["blocks"]) ** 4
    held = (np.divide(fourth, sizes, out=np.zeros_like(fourth), where=sizes > 0)).sum(1)
    alike = np.minimum(np.divide(norm**4, held, out=summed.copy(), where=held > 0), summed)
    apart = np.column_stack(
        [
            norms[0] - norms[1],
            (ones["sum"] - others["sum"]) / np.sqrt(np.maximum(summed, 1.0)),
            np.where(sizes > 0, ones["blocks"] - others["blocks"], 0.0),
        ]
    )
    coherent = np.sqrt((apart**2).sum(1) / (2 + (sizes > 0).sum(1)))
    distance = np.sqrt(((ones["signed"] - others["signed"]) ** 2).sum(1) / SUMS)
    lower = ones["left_out"] != others["left_out"]
    columns = (blank, same, lower, distance, coherent, norm, summed, largest, least, alike)
    return [_deviation(*values) for values in zip(*(one.tolist() for one in columns), strict=True)]


def _deviation(
    blank: bool, same: bool, lower: bool, distance: float, coherent: float, norm: float, summed: float, *rest: float
) -> Deviation:
    if blank or not max(distance, coherent, norm) < _LARGEST or not norm >= 0.0:
        return UNKNOWN  # also what no recorder writes: a file of rows may be anybody's
    if same:
        return Deviation("exact", 0.0, 0.0, norm, int(summed), *rest)
    if lower:
        return Deviation("lower", math.inf, math.inf, norm, int(summed), *rest)
    return Deviation("estimate", distance, coherent, norm, int(summed), *rest)

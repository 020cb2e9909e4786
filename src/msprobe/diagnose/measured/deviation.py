"""How far two tensors of a pair are apart, by their rows, and what that number is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from msprobe.store.row_format import block_of
from msprobe.store.rows import BLOCKS, SUMS, Numbers

#: ``exact``: all numbers are the same, or the tensors cannot hold the same. ``estimate``: the root mean square is known
#: but for a factor (the signed sums are eight draws: a quarter, one deviation of the root of a chi-square of eight).
#: ``lower``: the tensors differ in what is in no sum. ``unknown``: a side has no row, or another number of elements.
DeviationKind = Literal["exact", "estimate", "lower", "unknown"]


#: No norm of what is in a row is larger: its elements are at most 1e18.
_LARGEST = 1e30
_ROOT_OF_SUMS = math.sqrt(SUMS)
#: Of seven differences of norms that know nothing of each other the middle one is within so much of their standard
#: deviation once in some hundred tensors.
_REPEATED = 0.125


@dataclass(frozen=True, slots=True)
class Deviation:
    """``distance``: the norm of the difference. ``coherent``: what differs in the sums themselves (norm, sum, norms of
    blocks), each over its own standard deviation for errors of norm 1 that know nothing of each other: these give about
    ``distance`` over the root of ``count``, and a scale, an offset or a lost block far more. Both in units of elements.
    ``norm`` is the larger of both sides'; ``largest`` and ``least`` its elements, with their signs.
    """

    kind: DeviationKind
    distance: float = 0.0
    coherent: float = 0.0
    norm: float = 0.0
    count: int = 0
    largest: float = 0.0
    least: float = 0.0
    #: As many elements of one size would have the sums of squares that the blocks have: fewer than ``count`` where a
    #: few blocks hold most of it, and errors average out less. ``count`` where there are no errors, 1 where blocks
    #: repeat each other.
    alike: float = 0.0
    #: So many elements are zero, at least, on both sides.
    zeros: int = 0
    #: The norm of what is left where the mean is taken off.
    spread: float = 0.0

    @property
    def is_known(self) -> bool:
        """True if it says how far the tensors are apart."""
        return self.kind in ("exact", "estimate")


UNKNOWN = Deviation("unknown")


def between(ours: Numbers | None, other: Numbers | None, count: int, alike_otherwise: bool) -> Deviation:
    """How far two tensors of ``count`` elements are apart, by the numbers of their rows
    (:meth:`msprobe.store.rows.StoredRows.numbers`); None: there is none. ``alike_otherwise``: what is in no row is the
    same, as the number of NaN.
    """
    # One by one: most pairs are few, and a package of arrays takes longer to import than a thousand of them.
    if ours is None or other is None:
        return UNKNOWN
    total, squares, signed, blocks, most, least, zeros, out = ours
    their_total, their_squares, their_signed, their_blocks, their_most, their_least, their_zeros, their_out = other
    if not (0.0 <= squares < _LARGEST**2 and 0.0 <= their_squares < _LARGEST**2):
        return UNKNOWN  # also what no recorder writes: a file of rows may be anybody's
    norm, its_norm = math.sqrt(squares), math.sqrt(their_squares)
    larger = norm if norm >= its_norm else its_norm
    summed = max(count - max(out, their_out), 0)
    mean_squares = (total * total if norm >= its_norm else their_total * their_total) / max(summed, 1)
    spread = math.sqrt(max(max(squares, their_squares) - mean_squares, 0.0)) if mean_squares < _LARGEST**2 else larger
    bounds = (_larger(most, their_most), -_larger(-least, -their_least)) if summed else (0.0, 0.0)
    if alike_otherwise and squares == their_squares and (ours == other or _same(ours, other)):
        return Deviation("exact", 0.0, 0.0, larger, summed, *bounds, summed, min(zeros, their_zeros), spread)
    distance = math.dist(signed, their_signed) / _ROOT_OF_SUMS
    roots, filled = _blocks_of(count)
    fourth = [size * size / root for size, root in zip(map(max, blocks, their_blocks), roots, strict=True)]
    held = math.hypot(*fourth) ** 2
    alike = min(larger**4 / held, summed) if held > 0.0 else summed
    if filled == BLOCKS and _repeats(blocks if norm >= its_norm else their_blocks, summed):
        alike = 1.0
    if out != their_out:
        return (
            Deviation("lower", math.inf, math.inf, larger, summed, *bounds, alike) if distance < _LARGEST else UNKNOWN
        )
    sum_difference = (total - their_total) / math.sqrt(max(summed, 1))
    coherent = math.hypot(norm - its_norm, sum_difference, math.dist(blocks, their_blocks)) / math.sqrt(2 + filled)
    if not (distance < _LARGEST and coherent < _LARGEST):
        return UNKNOWN
    zeros = min(zeros, their_zeros)
    return Deviation("estimate", distance, coherent, larger, summed, *bounds, alike, zeros, spread)


def _repeats(blocks: Sequence[float], count: int) -> bool:
    """True if most neighbouring blocks have one norm, as rows that are alike have: their errors are alike, too. Norms
    of so many elements that know nothing of each other are apart by one over the root of their number.
    """
    apart = sorted(abs(first - next_one) for first, next_one in pairwise(blocks))
    return apart[len(apart) // 2] * math.sqrt(count / BLOCKS) < _REPEATED * max(blocks)


@lru_cache(4096)
def _blocks_of(count: int) -> tuple[tuple[float, ...], int]:
    """The roots of the sizes of the blocks of so many elements (infinite for an empty one), and how many are filled."""
    size = block_of(count)
    sizes = [min(max(count - place * size, 0), size) for place in range(BLOCKS)]
    return tuple(math.sqrt(size) if size else math.inf for size in sizes), BLOCKS - sizes.count(0)


def _larger(first: float, other: float) -> float:
    """NaN where one of them is."""
    return first if first > other or first != first else other


def _same(ours: Numbers, other: Numbers) -> bool:
    """Whether the numbers are the same, NaN for NaN."""

    if ours[0] == other[0] and ours[1] != other[1]:
        return False  # most of those that differ

    def flat(numbers: Numbers) -> list[float]:
        total, squares, signed, blocks, *rest = numbers
        return [total, squares, *signed, *blocks, *rest]

    return all(a == b or (a != a and b != b) for a, b in zip(flat(ours), flat(other), strict=True))

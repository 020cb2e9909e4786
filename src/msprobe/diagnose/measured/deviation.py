"""How far two tensors of a pair are apart, by their rows, and what that number is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from msprobe.store.rows import BLOCKS, Row, distance

#: ``exact``: all numbers are the same, or the tensors cannot hold the same. ``estimate``: the root mean square is known
#: but for a factor (the signed sums are eight draws: a quarter, one deviation of the root of a chi-square of eight).
#: ``lower``: the tensors differ in what is in no sum. ``unknown``: a side has no row, or another number of elements.
Kind = Literal["exact", "estimate", "lower", "unknown"]

#: Blocks of a row are so many elements, or a multiple of that (:class:`msprobe.store.rows.Row`).
BLOCK_PIECE = 64


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


def between(one: Row | None, other: Row | None, count: int) -> Deviation:
    """How far two tensors of ``count`` elements are apart."""
    if one is None or other is None or math.isnan(one.signed[0]) or math.isnan(other.signed[0]):
        return UNKNOWN
    summed = max(count - max(one.left_out, other.left_out), 0)
    norm = max(one.norm, other.norm)
    largest, least = (0.0, 0.0) if not summed else (max(one.max, other.max), min(one.min, other.min))
    blocks = [(size, a, b) for size, a, b in zip(_sizes(count), one.blocks, other.blocks, strict=True) if size]
    parts = math.fsum(max(a, b) ** 4 / size for size, a, b in blocks)
    alike = min(norm**4 / parts, float(summed)) if parts else float(summed)
    if one == other:
        return Deviation("exact", 0.0, 0.0, norm, summed, largest, least, alike)
    if one.left_out != other.left_out:
        return Deviation("lower", math.inf, math.inf, norm, summed, largest, least, alike)
    differences = [one.norm - other.norm, (one.sum - other.sum) / math.sqrt(max(summed, 1))]
    differences += [a - b for _, a, b in blocks]
    return Deviation("estimate", distance(one, other), _rms(differences), norm, summed, largest, least, alike)


def _sizes(count: int) -> list[int]:
    """How many elements each block of a row has."""
    size = BLOCK_PIECE * math.ceil(count / (BLOCK_PIECE * BLOCKS))
    return [max(0, min(size, count - number * size)) for number in range(BLOCKS)]


def _rms(values: list[float]) -> float:
    return math.sqrt(math.fsum(one * one for one in values) / len(values))

"""How far two tensors of a pair are apart, by their rows, and what that number is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from msprobe.diagnose.measured.rows import Row

#: ``exact``: all numbers are the same, or the tensors cannot hold the same. ``estimate``: the root mean square is known
#: but for a factor (the signed sums are eight draws: a quarter, one deviation of the root of a chi-square of eight).
#: ``lower``: the tensors differ in what is in no sum. ``unknown``: a side has no row, or another number of elements.
Kind = Literal["exact", "estimate", "lower", "unknown"]


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


def between(one: Row | None, other: Row | None) -> Deviation:
    """How far two tensors are apart."""
    if one is None or other is None or one.count != other.count:
        return UNKNOWN
    norm, largest = max(one.norm, other.norm), max(one.largest, other.largest)
    least = min(one.least, other.least)
    if one == other:
        return Deviation("exact", 0.0, 0.0, norm, one.summed, largest, least)
    if one.left_out != other.left_out:
        return Deviation("lower", math.inf, math.inf, norm, one.count, largest, least)
    count = max(one.summed, 1)
    distance = _rms([a - b for a, b in zip(one.signed, other.signed, strict=True)])
    differences = [one.norm - other.norm, (one.total - other.total) / math.sqrt(count)]
    differences += [math.sqrt(a) - math.sqrt(b) for a, b in zip(one.blocks, other.blocks, strict=True)]
    whole, parts = math.fsum(one.blocks), math.fsum(block * block for block in one.blocks)
    alike = count * whole * whole / (len(one.blocks) * parts) if parts else float(count)
    return Deviation("estimate", distance, _rms(differences), norm, count, largest, least, alike)


def _rms(values: list[float]) -> float:
    return math.sqrt(math.fsum(one * one for one in values) / len(values))

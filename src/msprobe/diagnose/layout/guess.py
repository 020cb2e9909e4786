"""How a tensor may lie on the ranks of two runs, where neither placements nor an annotation say it.

What is possible follows from the shapes: what the ranks of one run hold must become a tensor of the same shape as what
those of the other hold. Where several ways are, the one counts by which the two agree; if by none, the one by which
tensors of other layers in this place agreed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Literal

from msprobe.diagnose.layout.blocks import (
    Rank,
    TensorBlock,
    arrange,
    combine,
    copies_apart,
    distance,
    nearness,
    same_parts,
    spread,
)
from msprobe.diagnose.layout.placements import REPLICATE, Placement
from msprobe.diagnose.tolerance import layouts, units

#: ``activation``: goes into a module or comes out; ``gradient``: of one; ``parameter``: a weight, its gradient at the
#: optimizer or a state; ``parameter_gradient``: the share that one backward pass on one rank brought.
Sort = Literal["activation", "gradient", "parameter", "parameter_gradient"]

_MOST_RANKS = 256
_SUM = Placement("sum")
_MEAN = Placement("mean")
_DIGITS = re.compile(r"\d+")
#: Two ways that fit about equally well: then the simpler one counts.
_AS_WELL = 10.0
#: Statistics that are further apart are those of other tensors.
_NEAR = 0.01


@dataclass(frozen=True)
class TensorSpread:
    """One way to put a tensor together: ranks on a mesh, a placement for each axis; several passes of a module before
    (``passes_first``) or after that.
    """

    sizes: tuple[int, ...] = ()
    placements: tuple[Placement, ...] = ()
    over_passes: Placement | None = None
    passes_first: bool = False

    def apply(self, passes: Sequence[Sequence[TensorBlock]]) -> TensorBlock | None:
        """``passes``: for each pass of a module what each rank (or each mesh of a DTensor) holds."""
        if self.over_passes is None:
            return arrange(passes[0], self.sizes, self.placements)
        if self.passes_first:
            of_ranks = [combine(list(one), self.over_passes) for one in zip(*passes, strict=True)]
            whole = [one for one in of_ranks if one is not None]
            return arrange(whole, self.sizes, self.placements) if len(whole) == len(of_ranks) else None
        of_passes = [arrange(one, self.sizes, self.placements) for one in passes]
        done = [one for one in of_passes if one is not None]
        return combine(done, self.over_passes) if len(done) == len(of_passes) else None

    def shape(self, passes: Sequence[Sequence[TensorBlock]]) -> tuple[int, ...] | None:
        """The shape of what :meth:`apply` makes, without making it where all parts are of one shape."""
        shapes = {block.shape for one in passes for block in one}
        if len(shapes) > 1:
            whole = self.apply(passes)
            return None if whole is None else whole.shape
        (shape,) = shapes
        found = list(shape)
        dims = [(one, size) for one, size in zip(self.placements, self.sizes, strict=True)]
        dims += [(self.over_passes, len(passes))] if self.over_passes is not None else []
        for placement, size in dims:
            if placement.way in ("shard", "interleave"):
                if not -len(found) <= placement.dim < len(found):
                    return None
                found[placement.dim] *= size
        return tuple(found)

    @property
    def is_sum(self) -> bool:
        """True if ranks hold terms of a sum."""
        return any(one.way in ("sum", "mean") for one in self.placements)


@dataclass(frozen=True)
class Held:
    """What one run holds of a tensor: for each pass, what each rank has (``DTensor``s are put together already).

    ``sizes`` and ``fixed``: the mesh of these ranks and what is known of its axes, where an annotation says.
    """

    passes: tuple[tuple[TensorBlock, ...], ...]
    sizes: tuple[int, ...] | None = None
    fixed: tuple[Placement | None, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what the first rank has."""
        return self.passes[0][0].shape


@dataclass(frozen=True)
class Fit:
    """Both tensors whole, by which way, how far they are apart, and of what that was measured.

    ``copies``: ranks of the candidate whose copies are not the same: (rank, rank it is compared with, distance);
    ``torn`` is true if those of the reference are not.
    """

    left: TensorBlock
    right: TensorBlock
    ways: tuple[TensorSpread, TensorSpread]
    apart: float
    how: str
    copies: tuple[tuple[Rank, Rank, float], ...] = ()
    torn: bool = False

    @property
    def misfit(self) -> float:
        """How far apart they are, and the copies of them: copies that differ may be no copies."""
        return max([math.inf if self.torn else self.apart, self.apart, *(apart for _, _, apart in self.copies)])


class Guesses:
    """Remembers how tensors lay in earlier layers, passes and steps. ``settled``: what is remembered is not doubted.
    ``in_pieces``: both sides take a batch in as many pieces, but not in the same; None: not known yet.
    """

    def __init__(self, in_pieces: bool | None = None) -> None:
        self.in_pieces = in_pieces
        self.settled = False
        self._remembered: dict[Hashable, tuple[TensorSpread, TensorSpread]] = {}

    def fit(
        self,
        place: str,
        sort: Sort,
        left: Held,
        right: Held,
        accepted: float,
        factor: float = 1.0,
        settled: bool = True,
    ) -> Fit | None:
        """Put both together; None if no way makes them tensors of one shape.

        ``place``: which tensor it is (numbers in it do not count); ``accepted``: what healthy tensors may be apart;
        ``factor``: what the candidate is multiplied with.
        """
        key = (_DIGITS.sub("#", place), sort, *((len(held.passes[0]), held.shape) for held in (left, right)))
        known = self._remembered.get(key)
        again = _fit(known, left, right, accepted, factor) if known is not None else None
        if again is not None and (self.settled or again.misfit <= accepted):
            return again
        fits = _all(sort, left, right, accepted, factor)
        if not (_is_known(left) and _is_known(right)):
            return again or next(iter(fits), None)
        # A sum that nobody took is no result, unless nothing else explains it; and a mean that any terms have is none.
        fitting = [fit for fit in fits if sort != "activation" or not _is_any_sum(fit)]
        for choice in ([fit for fit in fitting if sort != "activation" or not fit.ways[0].is_sum], fitting):
            best = _simplest(choice)
            if best is not None and best.misfit <= accepted:
                self._remembered[key] = best.ways
                return best
        if again is not None:
            return again
        whole = [fit for fit in fits if not fit.torn and not fit.ways[0].is_sum]
        return min(whole or fits, key=lambda fit: fit.apart, default=None)


def _is_known(held: Held) -> bool:
    """True if anything was recorded that distinguishes one tensor from another."""
    leaf = held.passes[0][0]
    return leaf.numbers[2] is not None or leaf.digest is not None or leaf.values() is not None


def _simplest(fits: Sequence[Fit]) -> Fit | None:
    """Of those that fit about as well as the best, the first whose parts are not all the same."""
    least = min((fit.misfit for fit in fits), default=0.0)
    found = [fit for fit in fits if fit.misfit <= max(_AS_WELL * least, 1e-6)]
    # Copies of one tensor have the same bits, unless something is wrong.
    found.sort(key=lambda fit: any(apart > 0.0 for _, _, apart in fit.copies))
    several = len(found) > 1
    return next((fit for fit in found if not (several and (same_parts(fit.left) or same_parts(fit.right)))), None) or (
        found[0] if found else None
    )


def _all(sort: Sort, left: Held, right: Held, accepted: float, factor: float) -> list[Fit]:
    """All ways that make tensors of one shape. Values are read where the statistics are near each other, or of the
    nearest where none are.
    """
    mine = [(way, way.shape(left.passes)) for way in _ways(sort, left)]
    theirs = [(way, way.shape(right.passes)) for way in _ways(sort, right)]
    wholes: dict[tuple[int, TensorSpread], TensorBlock | None] = {}

    def whole(side: int, way: TensorSpread) -> TensorBlock | None:
        if (side, way) not in wholes:
            wholes[side, way] = way.apply((left, right)[side].passes)
        return wholes[side, way]

    found: list[tuple[float, tuple[TensorSpread, TensorSpread]]] = []
    for (way, shape), (other_way, other_shape) in product(mine, theirs):
        if shape != other_shape or shape is None:
            continue
        one, other = whole(0, way), whole(1, other_way)
        if one is None or other is None or one.shape != other.shape:
            continue
        if sort != "parameter_gradient" and any(
            held.sizes is None and _are_copies(block) for held, block in ((left, one), (right, other))
        ):
            continue
        found.append((nearness(one.scaled(factor), other), (way, other_way)))
    near = [ways for apart, ways in found if apart <= max(_AS_WELL * accepted, _NEAR)]
    others = [(apart, ways) for apart, ways in found if not ways[0].is_sum] or found
    if others and not any(not ways[0].is_sum for ways in near):
        near += [min(others, key=lambda item: item[0])[1]]
        # Copies on both sides, where that is possible: what else they could be is not known.
        near += [ways for _, ways in found if all(_only_copies(way) for way in ways)][:1]
    fits = [_fit(ways, left, right, accepted, factor) for ways in near]
    return [fit for fit in fits if fit is not None]


def _is_any_sum(fit: Fit) -> bool:
    """True for a sum of which nothing but the mean is known, if that is the mean of a single term as well."""
    if fit.how != "mean":
        return False
    for whole, other in ((fit.left, fit.right), (fit.right, fit.left)):
        means = [part.numbers[2] for part in whole.parts] if whole.way in ("sum", "mean") else []
        size = max((spread(part) for part in (*whole.parts, other)), default=0.0)
        if means and size and other.numbers[2] is not None:
            alone = max(abs(one - other.numbers[2]) / size for one in means if one is not None)
            unit = max(units.eps_of(block.described()) for block in (fit.left, fit.right))
            return not layouts.mean_decides(alone, fit.apart, unit, other.size)
    return False


def _are_copies(block: TensorBlock) -> bool:
    """True if what would be the terms of a sum is the same on all ranks: ranks have copies of it."""
    if block.way in ("sum", "mean") and len(block.parts) > 1:
        first = block.parts[0]
        if first.numbers[3] and all(one.numbers == first.numbers and one.digest == first.digest for one in block.parts):
            return True
    return any(map(_are_copies, block.parts))


def _only_copies(way: TensorSpread) -> bool:
    return all(one == REPLICATE for one in way.placements)


def _fit(
    ways: tuple[TensorSpread, TensorSpread], left: Held, right: Held, accepted: float, factor: float
) -> Fit | None:
    if any((way.over_passes is None) != (len(held.passes) == 1) for way, held in zip(ways, (left, right), strict=True)):
        return None
    mine, theirs = ways[0].apply(left.passes), ways[1].apply(right.passes)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return None
    copies = tuple(copies_apart(mine))
    torn = any(apart > accepted for _, _, apart in copies_apart(theirs))
    scaled = mine.scaled(factor)
    apart, how = distance(scaled, theirs)
    return Fit(scaled, theirs, ways, apart, how, copies, torn)


def _ways(sort: Sort, held: Held) -> list[TensorSpread]:
    count, dimensions = len(held.passes[0]), len(held.shape)
    if held.sizes is not None:
        found = _on_mesh(held.sizes, held.fixed, sort, dimensions)
    else:
        found = list(_free(count, sort, dimensions))
    if len(held.passes) == 1:
        return found
    over = _SUM if sort == "parameter_gradient" else Placement("shard", 0) if dimensions else _MEAN
    both = (False, True) if count > 1 else (False,)
    return [TensorSpread(way.sizes, way.placements, over, first) for way in found for first in both]


@lru_cache(1024)
def _free(count: int, sort: Sort, dimensions: int) -> tuple[TensorSpread, ...]:
    """All ways on all meshes of so many ranks, the simplest first."""
    found: list[TensorSpread] = []
    for sizes in _meshes(count):
        found += _on_mesh(sizes, (None,) * len(sizes), sort, dimensions)
    return tuple(sorted(found, key=lambda way: (any(one.way == "sum" for one in way.placements), len(way.sizes))))


@lru_cache(256)
def _meshes(count: int) -> tuple[tuple[int, ...], ...]:
    """Products that make ``count``, of one or two sizes (three for few ranks)."""
    if count == 1:
        return ((),)
    found: list[tuple[int, ...]] = [(count,)]
    divisors = [n for n in range(2, min(count, _MOST_RANKS)) if count % n == 0]
    found += [(n, count // n) for n in divisors]
    if count <= 16:
        found += [(n, m, count // n // m) for n in divisors for m in divisors if count % (n * m) == 0 and n * m < count]
    return tuple(found)


def _on_mesh(
    sizes: Sequence[int], fixed: Sequence[Placement | None], sort: Sort, dimensions: int
) -> list[TensorSpread]:
    choices = [(one,) if one is not None else _choices(sort, dimensions) for one in fixed]
    known = any(one is not None for one in fixed)
    found = []
    for placements in product(*choices):
        if not known and any(a == b for a, b in pairwise(placements)):
            continue  # the same as one axis of the product
        found.append(TensorSpread(tuple(sizes), tuple(placements)))
    return found


@lru_cache(256)
def _choices(sort: Sort, dimensions: int) -> tuple[Placement, ...]:
    if not dimensions:
        return (REPLICATE, _MEAN, _SUM) if sort != "parameter" else (REPLICATE,)
    parts = [Placement("shard", dim) for dim in range(dimensions)]
    if sort in ("activation", "gradient"):
        return (REPLICATE, *parts, Placement("interleave", 0), _SUM)
    return (REPLICATE, *parts, _SUM) if sort == "parameter_gradient" else (REPLICATE, *parts)

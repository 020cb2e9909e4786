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
            combined = [combine(list(blocks), self.over_passes) for blocks in zip(*passes, strict=True)]
            whole = [block for block in combined if block is not None]
            return arrange(whole, self.sizes, self.placements) if len(whole) == len(combined) else None
        arranged = [arrange(blocks, self.sizes, self.placements) for blocks in passes]
        done = [block for block in arranged if block is not None]
        return combine(done, self.over_passes) if len(done) == len(arranged) else None

    def shape(self, passes: Sequence[Sequence[TensorBlock]]) -> tuple[int, ...] | None:
        """The shape of what :meth:`apply` makes, without making it where all parts are of one shape."""
        shapes = {block.shape for blocks in passes for block in blocks}
        if len(shapes) > 1:
            whole = self.apply(passes)
            return None if whole is None else whole.shape
        (shape,) = shapes
        sizes = list(shape)
        dims = [(placement, size) for placement, size in zip(self.placements, self.sizes, strict=True)]
        dims += [(self.over_passes, len(passes))] if self.over_passes is not None else []
        for placement, size in dims:
            if placement.kind in ("shard", "interleave"):
                if not -len(sizes) <= placement.dim < len(sizes):
                    return None
                sizes[placement.dim] *= size
        return tuple(sizes)

    @property
    def is_sum(self) -> bool:
        """True if ranks hold terms of a sum."""
        return any(placement.kind in ("sum", "mean") for placement in self.placements)


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
    spreads: tuple[TensorSpread, TensorSpread]
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
        for choice in ([fit for fit in fitting if sort != "activation" or not fit.spreads[0].is_sum], fitting):
            best = _simplest(choice)
            if best is not None and best.misfit <= accepted:
                self._remembered[key] = best.spreads
                return best
        if again is not None:
            return again
        whole = [fit for fit in fits if not fit.torn and not fit.spreads[0].is_sum]
        return min(whole or fits, key=lambda fit: fit.apart, default=None)


def _is_known(held: Held) -> bool:
    """True if anything was recorded that distinguishes one tensor from another."""
    leaf = held.passes[0][0]
    return leaf.numbers[2] is not None or leaf.digest is not None or leaf.values() is not None


def _simplest(fits: Sequence[Fit]) -> Fit | None:
    """Of those that fit about as well as the best, the first whose parts are not all the same."""
    least = min((fit.misfit for fit in fits), default=0.0)
    good = [fit for fit in fits if fit.misfit <= max(_AS_WELL * least, 1e-6)]
    # Copies of one tensor have the same bits, unless something is wrong.
    good.sort(key=lambda fit: any(apart > 0.0 for _, _, apart in fit.copies))
    several = len(good) > 1
    return next((fit for fit in good if not (several and (same_parts(fit.left) or same_parts(fit.right)))), None) or (
        good[0] if good else None
    )


def _all(sort: Sort, left: Held, right: Held, accepted: float, factor: float) -> list[Fit]:
    """All ways that make tensors of one shape. Values are read where the statistics are near each other, or of the
    nearest where none are.
    """
    mine = [(tensor_spread, tensor_spread.shape(left.passes)) for tensor_spread in _spreads(sort, left)]
    theirs = [(tensor_spread, tensor_spread.shape(right.passes)) for tensor_spread in _spreads(sort, right)]
    wholes: dict[tuple[int, TensorSpread], TensorBlock | None] = {}

    def whole(side: int, tensor_spread: TensorSpread) -> TensorBlock | None:
        if (side, tensor_spread) not in wholes:
            wholes[side, tensor_spread] = tensor_spread.apply((left, right)[side].passes)
        return wholes[side, tensor_spread]

    by_nearness: list[tuple[float, tuple[TensorSpread, TensorSpread]]] = []
    for (tensor_spread, shape), (other_way, other_shape) in product(mine, theirs):
        if shape != other_shape or shape is None:
            continue
        whole_of_mine, other = whole(0, tensor_spread), whole(1, other_way)
        if whole_of_mine is None or other is None or whole_of_mine.shape != other.shape:
            continue
        if sort != "parameter_gradient" and any(
            held.sizes is None and _are_copies(block) for held, block in ((left, whole_of_mine), (right, other))
        ):
            continue
        by_nearness.append((nearness(whole_of_mine.scaled(factor), other), (tensor_spread, other_way)))
    near = [spreads for apart, spreads in by_nearness if apart <= max(_AS_WELL * accepted, _NEAR)]
    others = [(apart, spreads) for apart, spreads in by_nearness if not spreads[0].is_sum] or by_nearness
    if others and not any(not spreads[0].is_sum for spreads in near):
        near += [min(others, key=lambda item: item[0])[1]]
        # Copies on both sides, where that is possible: what else they could be is not known.
        near += [
            spreads for _, spreads in by_nearness if all(_only_copies(tensor_spread) for tensor_spread in spreads)
        ][:1]
    fits = [_fit(spreads, left, right, accepted, factor) for spreads in near]
    return [fit for fit in fits if fit is not None]


def _is_any_sum(fit: Fit) -> bool:
    """True for a sum of which nothing but the mean is known, if that is the mean of a single term as well."""
    if fit.how != "mean":
        return False
    for whole, other in ((fit.left, fit.right), (fit.right, fit.left)):
        means = [part.numbers[2] for part in whole.parts] if whole.kind in ("sum", "mean") else []
        size = max((spread(part) for part in (*whole.parts, other)), default=0.0)
        if means and size and other.numbers[2] is not None:
            alone = max(abs(mean - other.numbers[2]) / size for mean in means if mean is not None)
            unit = max(units.eps_of(block.described()) for block in (fit.left, fit.right))
            return not layouts.mean_decides(alone, fit.apart, unit, other.size)
    return False


def _are_copies(block: TensorBlock) -> bool:
    """True if what would be the terms of a sum is the same on all ranks: ranks have copies of it."""
    if block.kind in ("sum", "mean") and len(block.parts) > 1:
        first = block.parts[0]
        if first.numbers[3] and all(
            part.numbers == first.numbers and part.digest == first.digest for part in block.parts
        ):
            return True
    return any(map(_are_copies, block.parts))


def _only_copies(tensor_spread: TensorSpread) -> bool:
    return all(placement == REPLICATE for placement in tensor_spread.placements)


def _fit(
    spreads: tuple[TensorSpread, TensorSpread], left: Held, right: Held, accepted: float, factor: float
) -> Fit | None:
    if any(
        (tensor_spread.over_passes is None) != (len(held.passes) == 1)
        for tensor_spread, held in zip(spreads, (left, right), strict=True)
    ):
        return None
    mine, theirs = spreads[0].apply(left.passes), spreads[1].apply(right.passes)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return None
    copies = tuple(copies_apart(mine))
    torn = any(apart > accepted for _, _, apart in copies_apart(theirs))
    scaled = mine.scaled(factor)
    apart, how = distance(scaled, theirs)
    return Fit(scaled, theirs, spreads, apart, how, copies, torn)


def _spreads(sort: Sort, held: Held) -> list[TensorSpread]:
    count, dimensions = len(held.passes[0]), len(held.shape)
    if held.sizes is not None:
        spreads = _on_mesh(held.sizes, held.fixed, sort, dimensions)
    else:
        spreads = list(_free(count, sort, dimensions))
    if len(held.passes) == 1:
        return spreads
    over = _SUM if sort == "parameter_gradient" else Placement("shard", 0) if dimensions else _MEAN
    both = (False, True) if count > 1 else (False,)
    return [
        TensorSpread(tensor_spread.sizes, tensor_spread.placements, over, first)
        for tensor_spread in spreads
        for first in both
    ]


@lru_cache(1024)
def _free(count: int, sort: Sort, dimensions: int) -> tuple[TensorSpread, ...]:
    """All ways on all meshes of so many ranks, the simplest first."""
    spreads: list[TensorSpread] = []
    for sizes in _meshes(count):
        spreads += _on_mesh(sizes, (None,) * len(sizes), sort, dimensions)
    return tuple(
        sorted(
            spreads,
            key=lambda tensor_spread: (
                any(placement.kind == "sum" for placement in tensor_spread.placements),
                len(tensor_spread.sizes),
            ),
        )
    )


@lru_cache(256)
def _meshes(count: int) -> tuple[tuple[int, ...], ...]:
    """Products that make ``count``, of one or two sizes (three for few ranks)."""
    if count == 1:
        return ((),)
    meshes: list[tuple[int, ...]] = [(count,)]
    divisors = [n for n in range(2, min(count, _MOST_RANKS)) if count % n == 0]
    meshes += [(n, count // n) for n in divisors]
    if count <= 16:
        meshes += [
            (n, m, count // n // m) for n in divisors for m in divisors if count % (n * m) == 0 and n * m < count
        ]
    return tuple(meshes)


def _on_mesh(
    sizes: Sequence[int], fixed: Sequence[Placement | None], sort: Sort, dimensions: int
) -> list[TensorSpread]:
    choices = [(placement,) if placement is not None else _choices(sort, dimensions) for placement in fixed]
    known = any(placement is not None for placement in fixed)
    spreads = []
    for placements in product(*choices):
        if not known and any(a == b for a, b in pairwise(placements)):
            continue  # the same as one axis of the product
        spreads.append(TensorSpread(tuple(sizes), tuple(placements)))
    return spreads


@lru_cache(256)
def _choices(sort: Sort, dimensions: int) -> tuple[Placement, ...]:
    if not dimensions:
        return (REPLICATE, _MEAN, _SUM) if sort != "parameter" else (REPLICATE,)
    parts = [Placement("shard", dim) for dim in range(dimensions)]
    if sort in ("activation", "gradient"):
        return (REPLICATE, *parts, Placement("interleave", 0), _SUM)
    return (REPLICATE, *parts, _SUM) if sort == "parameter_gradient" else (REPLICATE, *parts)

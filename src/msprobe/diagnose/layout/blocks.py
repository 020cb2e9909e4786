"""A tensor, or a part of one, as ranks hold it, and what parts become when they are put together.

A block has values where they were recorded. Its statistics are always there, as far as they follow from those of its
parts: of parts along a dimension the largest maximum, the least minimum, the mean weighted by size and the root of the
sum of the squared norms; of the terms of a sum nothing but the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe.diagnose.differences.records import is_integer, statistics, statistics_difference
from msprobe.diagnose.differences.tensor_files import values_difference
from msprobe.diagnose.layout.placements import Placement
from msprobe.statistics_table import USUAL_KEYS
from msprobe.store.part import DumpPart

Rank = int | str
Leaf = dict[str, Any]
Numbers = tuple[float | None, float | None, float | None, float | None]
_NOTHING: Numbers = (None, None, None, None)


@dataclass(eq=False)
class TensorBlock:
    """``ranks``: who holds it, or a part of it. ``leaf``: the description that a rank gave of it, or of a part.

    ``kind`` says what its ``parts`` are: none (one rank has it), ``shard`` or ``interleave`` along ``dim``, copies
    (``replicate``), or terms (``sum`` and so on).
    """

    ranks: tuple[Rank, ...]
    dtype: str
    shape: tuple[int, ...]
    numbers: Numbers
    leaf: Leaf
    read: Callable[[], Any]
    kind: str = "one"
    dim: int = 0
    parts: tuple[TensorBlock, ...] = ()
    _values: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def digest(self) -> Any:
        """What gives its bits, where that is known: of what one rank has whole."""
        if self.kind == "replicate":
            return self.parts[0].digest
        return (self.leaf.get("digest") or self.leaf.get("md5")) if self.kind == "one" else None

    def values(self) -> Any:
        """Its values as an array; None if they were not recorded."""
        if not self._values:
            self._values.append(self.read())
        return self._values[0]

    def forget(self) -> None:
        """Let go of the values; they are read again where they are asked for."""
        self._values.clear()
        for part in self.parts:
            part.forget()

    def described(self) -> Leaf:
        """It as a description of a tensor."""
        leaf: Leaf = {"type": "torch.Tensor", "dtype": self.dtype, "shape": list(self.shape)}
        leaf |= dict(zip(USUAL_KEYS, self.numbers, strict=True))
        return leaf | {key: self.leaf[key] for key in ("requires_grad", "nan", "inf") if key in self.leaf}

    def scaled(self, factor: float) -> TensorBlock:
        """It times a positive number."""
        if factor == 1.0:
            return self

        def read() -> Any:
            values = self.values()
            return None if values is None else values * factor

        first, second, third, fourth = (None if number is None else number * factor for number in self.numbers)
        parts = tuple(part.scaled(factor) for part in self.parts)
        leaf = {key: value for key, value in self.leaf.items() if key not in ("digest", "md5")}
        return replace(
            self, numbers=(first, second, third, fourth), read=read, parts=parts, leaf=leaf, _values=[]
        )  # fmt: skip


def block_of_leaf(leaf: Leaf, part: DumpPart, rank: Rank) -> TensorBlock:
    """What one rank holds of a tensor."""
    local = leaf.get("local_shape")
    recorded = local if isinstance(local, list) else leaf.get("shape")
    shape = tuple(n for n in recorded if isinstance(n, int)) if isinstance(recorded, list) else ()
    first, second, third, fourth = (_number(statistic) for statistic in statistics(leaf))

    def read() -> Any:
        name = leaf.get("data_name")
        values_read = part.array(name) if isinstance(name, str) else None
        return values_read if values_read is not None and values_read.shape == shape else None

    return TensorBlock((rank,), str(leaf["dtype"]), shape, (first, second, third, fourth), leaf, read)


def combine(parts: Sequence[TensorBlock], placement: Placement) -> TensorBlock | None:
    """What blocks are together; None if their shapes do not fit."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    ranks = tuple(dict.fromkeys(rank for part in parts for rank in part.ranks))
    kind, dim, shape = placement.kind, placement.dim, first.shape
    if kind in ("shard", "interleave"):
        dim = dim + len(shape) if dim < 0 else dim
        others = {part.shape[:dim] + part.shape[dim + 1 :] for part in parts}
        if not 0 <= dim < len(shape) or len(others) > 1 or len({len(part.shape) for part in parts}) > 1:
            return None
        if kind == "interleave" and len({part.shape for part in parts}) > 1:
            return None
        shape = (*shape[:dim], sum(part.shape[dim] for part in parts), *shape[dim + 1 :])
        numbers = _numbers_of_parts(parts)
    elif len({part.shape for part in parts}) > 1:
        return None
    else:
        numbers = first.numbers if kind == "replicate" else _numbers_of_terms(parts, kind)
    leaf = next((part.leaf for part in parts if part.size), first.leaf)

    def read() -> Any:
        if kind == "replicate":
            return first.values()
        arrays = [part.values() for part in parts]
        if any(array is None for array in arrays):
            return None
        return _joined(arrays, kind, dim)

    return TensorBlock(ranks, first.dtype, shape, numbers, leaf, read, kind, dim, tuple(parts))


def arrange(blocks: Sequence[TensorBlock], sizes: Sequence[int], placements: Sequence[Placement]) -> TensorBlock | None:
    """Put blocks together that lie on a mesh of ``sizes``, the last axis fastest, with a placement for each axis.

    Where several axes divide one dimension, those further left divide it first, unless they are strided.
    """
    if math.prod(sizes) != len(blocks):
        return None
    for axis in range(len(sizes) - 1):
        if placements[axis].strided:
            order = [number for number in range(len(sizes)) if number != axis] + [axis]
            moved = _transposed(list(blocks), list(sizes), order)
            plain = replace(placements[axis], strided=False)
            rest = [*(placements[number] for number in order[:-1]), plain]
            return arrange(moved, [sizes[number] for number in order], rest)
    if not sizes:
        return blocks[0]
    step = len(blocks) // sizes[0]
    inner = [arrange(blocks[place * step : (place + 1) * step], sizes[1:], placements[1:]) for place in range(sizes[0])]
    whole = [block for block in inner if block is not None]
    return combine(whole, placements[0]) if len(whole) == len(inner) else None


def distance(left: TensorBlock, right: TensorBlock) -> tuple[float, str]:
    """The relative distance of two blocks of one shape, and of what: ``values``, ``statistics`` or ``mean``; nothing
    where neither is known.
    """
    ours, other = left.values(), right.values()
    if ours is not None and other is not None:
        import numpy as np

        return values_difference(np.ravel(ours), np.ravel(other)), "values"
    return _numbers_distance(left, right)


def nearness(left: TensorBlock, right: TensorBlock) -> float:
    """The distance as far as statistics say, without reading values."""
    return _numbers_distance(left, right)[0]


def _numbers_distance(left: TensorBlock, right: TensorBlock) -> tuple[float, str]:
    if left.digest is not None and left.digest == right.digest:
        return 0.0, "statistics"
    known = [a is not None and b is not None for a, b in zip(left.numbers, right.numbers, strict=True)]
    mine, theirs = left.described(), right.described()
    if all(known):
        if is_integer(mine) and is_integer(theirs):
            return _integers_distance(left.numbers, right.numbers), "statistics"
        return statistics_difference(mine, theirs), "statistics"
    if known[2] and left.numbers[2] is not None and right.numbers[2] is not None:
        size = max(spread(left), spread(right), abs(left.numbers[2]), abs(right.numbers[2]))
        apart = abs(left.numbers[2] - right.numbers[2])
        return (apart / size if size else 0.0) if math.isfinite(apart) else math.inf, "mean"
    return 0.0, "" if known.count(True) == 0 else "statistics"


def spread(block: TensorBlock) -> float:
    """The root mean square of its elements; of a sum of which it is not known that of its terms."""
    norm = block.numbers[3]
    if norm is not None:
        return norm / math.sqrt(max(block.size, 1))
    return max(map(spread, block.parts), default=0.0)


def copies_apart(block: TensorBlock) -> list[tuple[Rank, Rank, float]]:
    """Copies that are not the same: (rank, first rank, distance), wherever in the block they stand."""
    pairs: list[tuple[Rank, Rank, float]] = []
    if block.kind == "replicate":
        first = block.parts[0]
        for part in block.parts[1:]:
            if part.digest == first.digest and part.numbers == first.numbers and part.numbers[3] is not None:
                continue  # values need not be read
            apart, _ = distance(part, first)
            if apart > 0.0:
                pairs.append((part.ranks[0], first.ranks[0], apart))
    for part in block.parts:
        pairs += copies_apart(part)
    return pairs


def apart_by_rank(block: TensorBlock, other: TensorBlock) -> dict[Rank, float]:
    """How far what each rank holds is apart from its part of ``other``; without values, ranks that hold parts are left
    out, as it is not known which of them differs.
    """
    apart_by_rank_found: dict[Rank, float] = {}
    _apart(block, other, other.values(), apart_by_rank_found)
    return apart_by_rank_found


def same_parts(block: TensorBlock) -> list[tuple[Rank, Rank]]:
    """Ranks that hold the same where each should have a part of its own."""
    pairs: list[tuple[Rank, Rank]] = []
    if block.kind in ("shard", "interleave"):
        for place, part in enumerate(block.parts):
            for before in block.parts[:place]:
                if (
                    part.shape == before.shape
                    and part.size > 1
                    and _distinct(part)
                    and distance(part, before)[0] == 0.0
                ):
                    pairs.append((part.ranks[0], before.ranks[0]))
                    break
    for part in block.parts:
        pairs += same_parts(part)
    return pairs


def _apart(block: TensorBlock, other: TensorBlock | None, values: Any, apart_of_rank: dict[Rank, float]) -> None:
    if block.kind == "replicate":
        for part in block.parts:
            _apart(part, other, values, apart_of_rank)
        return
    if block.kind in ("shard", "interleave"):
        if values is None:
            return
        import numpy as np

        begin = 0
        for number, part in enumerate(block.parts):
            if block.kind == "shard":
                own = np.take(values, range(begin, begin + part.shape[block.dim]), block.dim)
                begin += part.shape[block.dim]
            else:
                own = np.take(values, range(number, values.shape[block.dim], len(block.parts)), block.dim)
            _apart(part, None, own, apart_of_rank)
        return
    own = block.values()
    if own is not None and values is not None and own.shape == values.shape:
        import numpy as np

        apart = values_difference(np.ravel(own), np.ravel(values))
    elif other is not None:
        apart, _ = distance(block, other)
    else:
        return
    for rank in block.ranks:
        apart_of_rank[rank] = max(apart_of_rank.get(rank, 0.0), apart)


def _distinct(block: TensorBlock) -> bool:
    """True if its elements are not all the same: zeros and ones are the same everywhere."""
    return block.numbers[0] is not None and block.numbers[0] != block.numbers[1]


def _transposed(blocks: list[TensorBlock], sizes: list[int], order: list[int]) -> list[TensorBlock]:
    import numpy as np

    places = np.arange(len(blocks)).reshape(sizes).transpose(order).ravel()
    return [blocks[int(place)] for place in places]


def _joined(arrays: list[Any], kind: str, dim: int) -> Any:
    import numpy as np

    if kind == "shard":
        return np.concatenate(arrays, axis=dim)
    if kind == "interleave":
        stacked = np.stack(arrays, axis=dim + 1)
        shape = list(arrays[0].shape)
        shape[dim] *= len(arrays)
        return stacked.reshape(shape)
    if kind == "max":
        return np.maximum.reduce(arrays)
    if kind == "min":
        return np.minimum.reduce(arrays)
    total = np.sum([array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) for array in arrays], axis=0)
    return total / len(arrays) if kind == "mean" else total


def _numbers_of_parts(parts: Sequence[TensorBlock]) -> Numbers:
    filled = [part for part in parts if part.size]
    if not filled:
        return _NOTHING
    largest, least, mean, norm = zip(*(part.numbers for part in filled), strict=True)
    size = sum(part.size for part in filled)
    return (
        None if None in largest else max(number for number in largest if number is not None),
        None if None in least else min(number for number in least if number is not None),
        None
        if None in mean
        else sum(number * part.size for number, part in zip(mean, filled, strict=True) if number is not None) / size,
        None if None in norm else math.sqrt(sum(number * number for number in norm if number is not None)),
    )


def _numbers_of_terms(parts: Sequence[TensorBlock], kind: str) -> Numbers:
    if kind in ("max", "min"):
        place, choose = (0, max) if kind == "max" else (1, min)
        values = [part.numbers[place] for part in parts]
        extreme = None if None in values else choose(number for number in values if number is not None)
        return (extreme, None, None, None) if kind == "max" else (None, extreme, None, None)
    means = [part.numbers[2] for part in parts]
    if None in means:
        return _NOTHING
    total = sum(mean for mean in means if mean is not None)
    return (None, None, total / len(parts) if kind == "mean" else total, None)


def _integers_distance(left: Numbers, right: Numbers) -> float:
    """Extremes are exact; mean and norm are rounded, and put together from rounded ones."""
    if left[:2] != right[:2]:
        return 1.0
    near = all(
        a is not None and b is not None and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9)
        for a, b in zip(left[2:], right[2:], strict=True)
    )
    return 0.0 if near else 1.0


def _number(value: Any) -> float | None:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) else None

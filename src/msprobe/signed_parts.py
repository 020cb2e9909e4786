"""How a result is divided into parts that may have an error of their own, for :mod:`msprobe.signed_errors`.

Arrays are of numpy or of torch: only what both spell alike is used, and nothing is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Of parts with fewer elements nothing is said.
LEAST_ELEMENTS = 32
# The parts of one grouping that are looked at closely: those that stand out most.
_CLOSELY = 4
# Pairs of dimensions of results of fewer are not worth a look.
_LEAST_OF_PAIRS = 1024
_TILES = 8


def axes_of(shape: tuple[int, ...]) -> list[int]:
    return [place for place, length in enumerate(shape) if length > 1]


class Division(NamedTuple):
    """Parts of a result: ``kept`` are the dimensions whose indices distinguish one from the others, ``blocks`` how many
    neighbours along each of them are one part.
    """

    kept: tuple[int, ...]
    blocks: tuple[int, ...]


def divisions_of(shape: tuple[int, ...]) -> Iterator[Division]:
    """How a result is divided: along each dimension, alone or in blocks of neighbours, and along each two."""
    count, lengths = math.prod(shape), tuple(int(n) for n in shape)
    axes = axes_of(lengths)
    for place in axes:
        each = count // lengths[place]
        block = 1
        while block < lengths[place]:
            if each * block >= LEAST_ELEMENTS:
                yield Division((place,), (block,))
            block *= 2
    if count < _LEAST_OF_PAIRS:
        return
    for number, first in enumerate(axes):
        for second in axes[number + 1 :]:
            # As they are where they are large enough, as heads of each image; else tiles.
            each = count // (lengths[first] * lengths[second])
            blocks = (1, 1)
            if each < LEAST_ELEMENTS:
                blocks = (max(1, lengths[first] // _TILES), max(1, lengths[second] // _TILES))
            if each * blocks[0] * blocks[1] >= LEAST_ELEMENTS:
                yield Division((first, second), blocks)


def summed(values: Any, group: Division) -> Any:
    """The sum over each part of a group; what is too little for a last block is left out."""
    others = tuple(place for place in range(len(values.shape)) if place not in group.kept)
    sums = values.sum(axis=others) if others else values
    for axis, block in enumerate(group.blocks):
        if block > 1:
            many = int(sums.shape[axis]) // block
            whole = sums[(slice(None),) * axis + (slice(0, many * block),)]
            shape = [int(n) for n in whole.shape]
            sums = whole.reshape([*shape[:axis], many, block, *shape[axis + 1 :]]).sum(axis=axis + 1)
    return sums


def outstanding(sizes: Any, least: float, ranks: Any) -> list[tuple[int, ...]]:
    """The places of the few largest ranks among the parts whose size is above ``least``."""
    over = sizes > least
    if not bool(over.any()):
        return []
    ranks = (ranks * over).reshape(-1)
    shape = [int(n) for n in sizes.shape]
    places = []
    for _ in range(_CLOSELY):
        flat = int(ranks.argmax())
        if not float(ranks[flat]) > 0:
            break
        ranks[flat] = 0.0
        place = []
        for length in reversed(shape):
            flat, index = divmod(flat, length)
            place.append(index)
        places.append(tuple(reversed(place)))
    return places


def part_at(group: Division, place: tuple[int, ...]) -> tuple[slice, ...]:
    """The part at one place of a group, as an index."""
    parts = [slice(None)] * (max(group.kept) + 1)
    for axis, block, index in zip(group.kept, group.blocks, place, strict=True):
        parts[axis] = slice(index * block, (index + 1) * block)
    return tuple(parts)


def name_of(group: Division, part: tuple[slice, ...]) -> str:
    """A part in the words of indexing: ``[:, 5]``, ``[8:16]``."""
    words = []
    for place, section in enumerate(part):
        if place not in group.kept:
            words.append(":")
        else:
            words.append(str(section.start) if section.stop == section.start + 1 else f"{section.start}:{section.stop}")
    return f"[{', '.join(words)}]"

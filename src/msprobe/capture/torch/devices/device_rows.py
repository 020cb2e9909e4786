"""The numbers of a large tensor on an accelerator, by the framework's own reductions and without waiting for it.

What is computed of a tensor is ``NUMBERS`` doubles, in the order of :class:`Cell`: all that its row and its statistics
are made of. A device that has a kernel of its own (``row_kernels``) fills them in with one
launch; the reductions here take nine at most, of more than ``MOST_MATRIX`` elements sixteen, and that for each
``SEGMENT`` of them, so that what they need of the device's memory is bounded.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from msprobe.capture.tensor_rows import pack
from msprobe.capture.torch.devices.device_chunks import DeviceTables, is_capturing
from msprobe.capture.torch.tensors.digest import is_float8
from msprobe.capture.torch.tensors.statistics_framework import widest
from msprobe.store import row_format, row_signs

# Up to so many elements signed sums are one product with a matrix of signs.
MOST_MATRIX = 1 << 17
SEGMENT = 1 << 22
# How many numbers there is room for.
NUMBERS = 32
BLOCKS = 8
_NAN = float("nan")

Floats = np.ndarray[Any, np.dtype[np.float64]]
# Keeps a result on the device; where it will be found on the host: a list of results, and the index in it.
Keep = Callable[[torch.Tensor], tuple[Any, int]]


class Cell(enum.IntEnum):
    """Where a number stands. What is kept are elements of at most ``row_format.LARGEST``; all others count as zero in
    what is said of kept ones.
    """

    SUM = 0
    SQUARES = 1
    # Of all elements; NaN left out or not.
    MAX = 2
    MIN = 3
    NAN = 4
    INF = 5
    ZERO = 6
    LEFT_OUT = 7
    KEPT_SUM = 8
    # Neither of which is known where the first is not the greater one.
    KEPT_MAX = 9
    KEPT_MIN = 10
    SIGNED = 11
    # The sums of the squares of kept elements in each block.
    BLOCK = 19


def numbers_of(numbers: Sequence[float], count: int) -> dict[str, Any]:
    """The numbers of :data:`msprobe.statistics_table.NUMBERS` of a tensor with dimensions and ``count`` elements, mean
    and norm not rounded to its type yet.
    """
    squares = numbers[Cell.SQUARES]
    return {
        "count": count,
        "single": False,
        "max": numbers[Cell.MAX],
        "min": numbers[Cell.MIN],
        "mean": numbers[Cell.SUM] / count,
        "norm": math.sqrt(squares) if squares >= 0 else _NAN,
        "nan": int(numbers[Cell.NAN]),
        "inf": int(numbers[Cell.INF]),
        "zero": int(numbers[Cell.ZERO]),
    }


def row_of(numbers: Sequence[float]) -> bytes:
    """The row of a tensor."""
    squares = numbers[Cell.BLOCK : Cell.BLOCK + BLOCKS]
    extremes = numbers[Cell.KEPT_MAX], numbers[Cell.KEPT_MIN]
    return pack(
        numbers[Cell.KEPT_SUM],
        sum(squares),
        numbers[Cell.SIGNED : Cell.SIGNED + row_signs.SUMS],
        [math.sqrt(square) for square in squares],
        extremes if extremes[0] >= extremes[1] else (_NAN, _NAN),
        int(numbers[Cell.ZERO]),
        int(numbers[Cell.LEFT_OUT]),
    )


class Signs:
    """What the reductions of one process need on each device: signs, limits, a zero."""

    def __init__(self) -> None:
        self._tables = DeviceTables()

    def matrix(self, device: torch.device, count: int) -> torch.Tensor:
        """The signs of so many elements, at most ``MOST_MATRIX``, in each sum and, in a last row, ones; in the type in
        which sums are taken.
        """
        width = min(max(1 << (count - 1).bit_length(), 1 << 12), MOST_MATRIX)

        def make() -> torch.Tensor:
            signs = np.ones((row_signs.SUMS + 1, width), np.int8)
            signs[:-1] = row_signs.signs(width)
            return torch.from_numpy(signs)

        return self._tables.of(device, "matrix", width, make, widest(device))[:, :count]

    def prepare(self, device: torch.device) -> None:
        """Make what tensors of any size in a graph need. Waits for it."""
        self.matrix(device, MOST_MATRIX)
        self.constants(device)
        self._tables.settle()

    def words(self, device: torch.device, first: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of so many words of 64 elements from ``first`` on: their hashes, and by how many lanes (an eighth of it) they
        are shifted. While a graph is captured they are computed in it, so no table need be there.
        """
        if is_capturing(device):
            return _words_on(device, first, words)
        width = 1 << max((first + words - 1).bit_length(), 12)
        table = self._tables.of(device, "words", width, lambda: torch.from_numpy(_words(width)))
        part = table[:, first : first + words]
        return part[0], part[1]

    def constants(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The limits that magnitudes are compared with, a zero, the bits of a word, and the numbers of shifts."""
        wide = widest(device)
        limits = [0.0, row_format.LARGEST, torch.finfo(wide).max, math.inf, 0.0]
        bits = [-(1 << 63) if bit == 63 else 1 << bit for bit in range(64)] + list(range(8))
        of = self._tables.of
        floats = of(device, "limits", 0, lambda: torch.tensor(limits, dtype=wide, device="cpu"))
        whole = of(device, "bits", 0, lambda: torch.tensor(bits, dtype=torch.int64, device="cpu"))
        return floats[:4, None], floats[4], whole[:64], whole[64:, None]


def _words_on(device: torch.device, first: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """See :meth:`Signs.words`: the functions of ``row_signs``, by operations of the device alone."""
    step, second, third = (number - (1 << 64) for number in row_signs.FACTORS)
    numbers = torch.arange(first, first + words, dtype=torch.int64, device=device)
    mixed = (numbers + 1) * step
    mixed = (mixed ^ _shifted(mixed, 30)) * second
    mixed = (mixed ^ _shifted(mixed, 27)) * third
    return mixed ^ _shifted(mixed, 31), _shifted(numbers * step, 61)


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """The 64 bits of each number, shifted to the right, with zeros in their place."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


def _words(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = np.arange(count, dtype=np.uint64)
    return np.stack([row_signs.hashes(numbers), row_signs.shifts(numbers)]).view(np.int64)


class Elements(NamedTuple):
    """Some elements, and where what was computed of them will be. ``block``: in which they all are, or -1: they are all
    elements, in blocks. ``padded``: so many zeros are counted with them.
    """

    block: int
    elements: int
    padded: int
    places: dict[str, tuple[Any, int]]


def launch(values: torch.Tensor, signs: Signs, keep: Keep) -> list[Elements]:
    """Start the reductions of a plain tensor of real floats, more than none, inside of ``OwnWork``. Raises what torch
    raises.
    """
    if is_float8(values.dtype):
        values = values.to(torch.float32)
    flat = values.reshape(-1)
    return [
        _launch_part(flat[start : start + count], signs, keep, block, start // row_signs.WORD)
        for block, start, count in _parts(flat.numel())
    ]


def _parts(count: int) -> Iterator[tuple[int, int, int]]:
    """Block, first element and count of what is reduced at once."""
    if count <= SEGMENT:
        yield -1, 0, count
        return
    block = row_format.block_of(count)
    for number, first in enumerate(range(0, count, block)):
        end = min(first + block, count)
        for start in range(first, end, SEGMENT):
            yield number, start, min(SEGMENT, end - start)


def _launch_part(part: torch.Tensor, signs: Signs, keep: Keep, block: int, word: int) -> Elements:
    device, count = part.device, part.numel()
    whole = block < 0
    width = BLOCKS * row_format.block_of(count) if whole else -(-count // row_signs.WORD) * row_signs.WORD
    limits, zero, bits, shifts = signs.constants(device)
    # All elements, and below them those that are kept.
    both = torch.empty((2, width), dtype=widest(device), device=device)
    if width > count:
        both[:, count:].zero_()
    both[0, :count].copy_(part)
    below = both[0].abs() <= limits
    torch.where(below[1], both[0], zero, out=both[1])
    least, greatest = torch.aminmax(part)
    places = {
        "least": keep(least),
        "greatest": keep(greatest),
        "below": keep(torch.count_nonzero(below, dim=1)),
        "norms": keep(torch.linalg.vector_norm(both.view(2, BLOCKS if whole else 1, -1), dim=2)),
    }
    del below
    if whole and count <= MOST_MATRIX:
        places["products"] = keep(both @ signs.matrix(device, width).T)
    else:
        places["sums"] = keep(both.sum(dim=1))
        hashes, word_signs = signs.words(device, word, width // row_signs.WORD)
        kept = both[1].view(-1, row_signs.WORD)
        signed = torch.where((hashes[:, None] & bits) == 0, kept, -kept)
        places["lanes"] = keep((word_signs == shifts).to(signed.dtype) @ signed)
    return Elements(block, count, width - count, places)


def gather(parts: Sequence[Elements], here: dict[int, list[Any]]) -> list[float]:
    """The numbers of a tensor, of results that are on the host: those of each list by its id."""
    numbers = [0.0] * NUMBERS
    numbers[Cell.MAX], numbers[Cell.MIN] = -math.inf, math.inf
    lanes: Floats = np.zeros(row_signs.LANES)
    for part in parts:
        got = {name: here[id(results)][place] for name, (results, place) in part.places.items()}
        least, greatest = got["least"], got["greatest"]
        numbers[Cell.MAX] = max(numbers[Cell.MAX], greatest)
        numbers[Cell.MIN] = min(numbers[Cell.MIN], least)
        zero, kept, finite, known = (number - part.padded for number in got["below"])
        numbers[Cell.ZERO] += zero
        numbers[Cell.LEFT_OUT] += part.elements - kept
        numbers[Cell.INF] += known - finite
        numbers[Cell.NAN] += part.elements - known
        every, kept_norms = got["norms"]
        numbers[Cell.SQUARES] += sum(norm * norm for norm in every)
        for number, norm in enumerate(kept_norms, max(part.block, 0)):
            numbers[Cell.BLOCK + number] += norm * norm
        sums = got["sums"] if "sums" in got else [products[-1] for products in got["products"]]
        numbers[Cell.SUM] += sums[0]
        numbers[Cell.KEPT_SUM] += sums[1]
        if "products" in got:
            numbers[Cell.SIGNED : Cell.BLOCK] = got["products"][1][:-1]
        else:
            for number, lane_sums in enumerate(got["lanes"]):
                lanes[8 * number : 8 * number + row_signs.WORD] += lane_sums
    if lanes.any():
        numbers[Cell.SIGNED : Cell.BLOCK] = row_signs.signed_sums(lanes).tolist()
    extremes = (_NAN, _NAN) if numbers[Cell.LEFT_OUT] else (numbers[Cell.MAX], numbers[Cell.MIN])
    numbers[Cell.KEPT_MAX], numbers[Cell.KEPT_MIN] = extremes
    return numbers

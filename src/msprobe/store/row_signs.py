"""The signs of the signed sums of a row: what a recorder without the C extension, and a test, go by.

The sign of element ``i`` (in row-major order) in sum ``k`` depends on ``i`` and ``k`` alone, so the sums of two tensors
of one shape can be subtracted. With ``h`` the mixing function of splitmix64 seeded with 0::

    word  = i // 64
    shift = 8 * (word * 0x9E3779B97F4A7C15 mod 2**64 >> 61)
    lane  = shift + i % 64                                       0 to 119
    bit   = (h(word) >> i % 64 & 1) ^ (h(2**63 + lane) >> k & 1)
    sign  = -1 if bit else 1

So one hash serves 64 elements, and an element is added once, to its lane; the lanes are added to the eight sums at the
end. The shift spreads what lies in one column of a matrix over eight lanes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

SUMS = 8
LANES = 128
WORD = 64
#: What ``h`` multiplies by, one after the other; words by the first.
FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP, _SECOND, _THIRD = map(np.uint64, FACTORS)

Floats = npt.NDArray[np.float64]


def hashes(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """``h`` of each number."""
    with np.errstate(over="ignore"):
        mixed = (numbers + np.uint64(1)) * _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _SECOND
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _THIRD
        return mixed ^ (mixed >> np.uint64(31))


def shifts(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """An eighth of the lanes by which each of these words is shifted."""
    with np.errstate(over="ignore"):
        return (words * _STEP) >> np.uint64(61)


@functools.cache
def lane_signs() -> Floats:
    """The sign of each lane in each sum: ``LANES`` times ``SUMS`` of 1 and -1."""
    bits = hashes(np.uint64(1 << 63) + np.arange(LANES, dtype=np.uint64))
    return 1.0 - 2.0 * ((bits[:, None] >> np.arange(SUMS, dtype=np.uint64)) & np.uint64(1)).astype(np.float64)


def word_signs(first: int, words: int) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Of so many words from ``first`` on: the sign of each of their elements before the lane's, and the shift."""
    numbers = np.arange(first, first + words, dtype=np.uint64)
    bits = np.unpackbits(hashes(numbers).astype("<u8").view(np.uint8), bitorder="little")
    return 1.0 - 2.0 * bits.astype(np.float64), (8 * shifts(numbers)).astype(np.intp)


def signs(count: int) -> npt.NDArray[np.int8]:
    """The sign of each of the first ``count`` elements in each sum: ``SUMS`` times ``count`` of 1 and -1."""
    words = -(-count // WORD)
    own, word_rows = word_signs(0, words)
    lanes = (word_rows[:, None] + np.arange(WORD)).reshape(-1)
    whole: npt.NDArray[Any] = own.astype(np.int8)[:, None] * lane_signs().astype(np.int8)[lanes]
    return np.ascontiguousarray(whole[:count].T)


def add_to_lanes(lanes: Floats, values: Floats, first: int) -> None:
    """Add values, of which the first is element ``first`` (a multiple of ``WORD``), to the lanes."""
    words = -(-len(values) // WORD)
    own, word_rows = word_signs(first // WORD, words)
    signed = np.zeros(words * WORD)
    signed[: len(values)] = values
    signed *= own
    table = signed.reshape(words, WORD)
    for shift in range(0, 64, 8):
        lanes[shift : shift + WORD] += table[word_rows == shift].sum(axis=0)


def signed_sums(lanes: Floats) -> Floats:
    """The eight sums of the lanes."""
    return np.asarray(lanes @ lane_signs())

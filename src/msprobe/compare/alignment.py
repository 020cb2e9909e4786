"""Which elements of two sequences answer to each other, when some are there on one side only.

The matched pairs keep the order of both sequences. Where both have the same elements in the same order, all
match; an extra element shifts nothing.

Source: patience diff (unique common elements first, by their longest increasing run), with the bit-parallel
longest common subsequence of Hyyrö (2004) where no element is unique.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence

# A block is aligned exactly as long as the bits to remember, one for each pair of elements, are not more than this.
_MOST_BITS = 1 << 28
# Larger blocks are cut at runs of so many elements that occur once on each side.
_RUNS = (4, 16, 64)
# Its square must not exceed _MOST_BITS.
_PIECE = 10_000


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of positions ``(in a, in b)`` of equal elements, increasing in both.

    The pairs are as many as can be, except that elements that are unique on both sides are matched first.
    The cost is about linear for sequences that mostly agree.
    """
    numbers: dict[Hashable, int] = {}
    left = [numbers.setdefault(item, len(numbers)) for item in a]
    right = [numbers.setdefault(item, len(numbers)) for item in b]
    pairs: list[tuple[int, int]] = []
    todo = [(0, len(left), 0, len(right))]
    while todo:
        a0, a1, b0, b1 = todo.pop()
        while a0 < a1 and b0 < b1 and left[a0] == right[b0]:
            pairs.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and left[a1 - 1] == right[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            pairs.append((a1, b1))
        if a0 == a1 or b0 == b1:
            continue
        anchors = _unique_anchors(left, right, (a0, a1, b0, b1), 1)
        if not anchors and (a1 - a0) * (b1 - b0) <= _MOST_BITS:
            pairs += [(a0 + i, b0 + j) for i, j in _common_subsequence(left[a0:a1], right[b0:b1])]
            continue
        for run in _RUNS:
            if anchors:
                break
            anchors = _unique_anchors(left, right, (a0, a1, b0, b1), run)
        if not anchors:
            # Two long sequences without landmark: piece by piece.
            a2, b2 = min(a0 + _PIECE, a1), min(b0 + _PIECE, b1)
            todo += [(a0, a2, b0, b2), (a2, a1, b2, b1)]
            continue
        for i, j in anchors:
            todo.append((a0, i, b0, j))
            pairs.append((i, j))
            a0, b0 = i + 1, j + 1
        todo.append((a0, a1, b0, b1))
    pairs.sort()
    return pairs


def _unique_anchors(a: list[int], b: list[int], block: tuple[int, int, int, int], run: int) -> list[tuple[int, int]]:
    """Elements (the first of ``run`` in a row) that occur once on each side, in the same order on both."""
    a0, a1, b0, b1 = block
    if run == 1:
        left: list[Hashable] = list(a[a0:a1])
        right: list[Hashable] = list(b[b0:b1])
    else:
        left = [tuple(a[i : i + run]) for i in range(a0, a1 - run + 1)]
        right = [tuple(b[i : i + run]) for i in range(b0, b1 - run + 1)]
    count_left, count_right = Counter(left), Counter(right)
    places = {item: j for j, item in enumerate(right) if count_right[item] == 1}
    pairs = [(i, places[item]) for i, item in enumerate(left) if count_left[item] == 1 and item in places]
    return [(a0 + i, b0 + j) for i, j in _increasing(pairs)]


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, sorted by their first, that also increases in the second."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        place = bisect_left(ends, j)
        before.append(last[place - 1] if place else -1)
        ends[place : place + 1] = [j]
        last[place : place + 1] = [index]
    chosen: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _common_subsequence(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """A longest common subsequence; among equal ones, that whose pairs come first in ``a``."""
    where: dict[int, int] = {}
    for i, item in enumerate(a):
        where[item] = where.get(item, 0) | (1 << i)
    full = (1 << len(a)) - 1
    rows = [full]
    row = full
    for item in b:
        hit = row & where.get(item, 0)
        row = ((row + hit) | (row - hit)) & full
        rows.append(row)
    # Bit i of row j is 0 where a[:i + 1] has one common element more with b[:j] than a[:i].
    pairs: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        elif not rows[j - 1] >> (i - 1) & 1:
            j -= 1
        else:
            pairs.append((i - 1, j - 1))
            i, j = i - 1, j - 1
    return pairs[::-1]

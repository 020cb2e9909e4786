from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from msprobe.compare import alignment
from msprobe.compare.alignment import align

SEQUENCES = st.lists(st.integers(0, 5), max_size=25)


def longest(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(SEQUENCES, SEQUENCES)
def test_pairs_are_equal_elements_in_order(a: list[int], b: list[int]) -> None:
    pairs = align(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in itertools.pairwise(pairs))


@given(SEQUENCES, SEQUENCES)
def test_the_exact_part_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    assert len(alignment._common_subsequence(a, b)) == longest(a, b)


@given(st.lists(st.integers(0, 3), max_size=40), st.data())
def test_removing_elements_leaves_all_others_matched(a: list[int], data: st.DataObject) -> None:
    keep = [data.draw(st.booleans()) for _ in a]
    b = [item for item, kept in zip(a, keep, strict=True) if kept]
    if len(set(a)) <= 1:
        assert len(align(a, b)) == len(b)
    assert len(alignment._common_subsequence(a, b)) == len(b)


def test_one_extra_element_shifts_nothing() -> None:
    layer = ["norm", "linear", "view", "view", "matmul", "softmax", "matmul", "linear", "add"]
    reference = layer * 6
    candidate = [*reference[:25], "mul", *reference[25:]]
    pairs = align(candidate, reference)
    assert pairs == [(i, i) for i in range(25)] + [(i + 1, i) for i in range(25, len(reference))]


def test_long_sequences_take_about_linear_work(monkeypatch) -> None:
    rng = random.Random(0)
    reference = [rng.randrange(40) for _ in range(60_000)]
    candidate = list(reference)
    for place in (50_000, 30_000, 700):
        candidate.insert(place, 99)
    del candidate[10_000]
    monkeypatch.setattr(alignment, "_MOST_BITS", 1 << 20)
    pairs = align(candidate, reference)
    assert len(pairs) == len(reference) - 1


def test_repeated_blocks_without_landmark_are_cut(monkeypatch) -> None:
    monkeypatch.setattr(alignment, "_MOST_BITS", 1 << 10)
    monkeypatch.setattr(alignment, "_PIECE", 30)
    a, b = [0, 1] * 200, [1, 0] * 200
    pairs = align(a, b)
    assert len(pairs) > 300
    assert all(a[i] == b[j] for i, j in pairs)

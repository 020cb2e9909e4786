"""Parts of tensors and what they become together: values where they are there, and what follows from statistics."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.diagnose.dumps import drawn
from unit.diagnose.layout.made import block, blocks

from msprobe.diagnose.layout.blocks import (
    TensorBlock,
    apart_by_rank,
    arrange,
    combine,
    copies_apart,
    distance,
    nearness,
    same_parts,
)
from msprobe.diagnose.layout.placements import REPLICATE, Placement

SUM, MEAN = Placement("sum"), Placement("mean")


def whole(found: TensorBlock | None) -> TensorBlock:
    assert found is not None
    return found


@given(
    dim=st.integers(0, 2),
    parts=st.integers(2, 5),
    seed=st.integers(0, 1000),
    uneven=st.booleans(),
    values=st.booleans(),
)
def test_parts_along_a_dimension_become_the_tensor(dim: int, parts: int, seed: int, uneven: bool, values: bool) -> None:
    shape = [3, 4, 5]
    shape[dim] = 7 if uneven else 2 * parts
    array = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    found = whole(combine(blocks(np.array_split(array, parts, dim), values), Placement("shard", dim)))
    assert found.shape == tuple(shape)
    assert found.ranks == tuple(range(parts))
    for one, other in zip(found.numbers, block(array).numbers, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    apart, how = distance(found, block(array))
    assert apart < 1e-5
    assert how == ("values" if values else "statistics")
    if values:
        assert np.array_equal(found.values(), array)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_places_dealt_out_in_turns(dim: int) -> None:
    array = drawn("turns", 6, 6)
    arrays = [np.take(array, range(rank, 6, 3), dim) for rank in range(3)]
    assert np.array_equal(whole(combine(blocks(arrays), Placement("interleave", dim))).values(), array)


def test_of_terms_without_values_the_mean_alone_is_known() -> None:
    arrays = [drawn(f"term {rank}", 4, 4) for rank in range(3)]
    total = whole(combine(blocks(arrays, values=False), SUM))
    assert total.numbers[:2] == (None, None)
    assert total.numbers[2] == pytest.approx(float(sum(arrays).mean()), rel=1e-5)
    apart, how = distance(total, block(sum(arrays), values=False))
    assert (how, apart < 1e-6) == ("mean", True)
    assert distance(total, block(arrays[0], values=False))[0] > 0.01
    assert whole(combine(blocks(arrays, values=False), MEAN)).numbers[2] == pytest.approx(total.numbers[2] / 3)


def test_a_sum_is_measured_by_its_values_where_they_are_there() -> None:
    arrays = [drawn(f"term {rank}", 4, 4) for rank in range(2)]
    total = whole(combine(blocks(arrays), SUM))
    assert distance(total, block(sum(arrays)))[0] < 1e-6
    assert distance(total, block(2 * arrays[0]))[0] > 0.1


@pytest.mark.parametrize(("way", "choose"), [("max", np.maximum), ("min", np.minimum)])
def test_the_largest_or_least_of_what_ranks_have(way: str, choose: np.ufunc) -> None:
    arrays = [drawn(f"{way} {rank}", 3, 3) for rank in range(2)]
    found = whole(combine(blocks(arrays), Placement(way)))  # type: ignore[arg-type]
    assert np.array_equal(found.values(), choose(*arrays))


def test_an_empty_part_has_no_statistics_and_spoils_none() -> None:
    array = drawn("few", 2, 3)
    found = whole(combine(blocks([array[:1], array[1:], array[2:]], values=False), Placement("shard", 0)))
    assert found.shape == (2, 3)
    assert distance(found, block(array, values=False))[0] < 1e-6


def test_shapes_that_do_not_fit_are_none() -> None:
    assert combine(blocks([drawn("a", 2, 3), drawn("b", 2, 4)]), Placement("shard", 0)) is None
    assert combine(blocks([drawn("a", 2), drawn("b", 3)]), REPLICATE) is None
    assert combine(blocks([drawn("a", 2), drawn("b", 2)]), Placement("shard", 1)) is None
    assert arrange(blocks([drawn("a", 2)] * 3), (2, 2), (REPLICATE, REPLICATE)) is None


def test_a_mesh_divides_two_dimensions() -> None:
    array = drawn("mesh", 4, 6)
    arrays = [array[row * 2 : row * 2 + 2, column * 3 : column * 3 + 3] for row, column in product(range(2), range(2))]
    found = whole(arrange(blocks(arrays), (2, 2), (Placement("shard", 0), Placement("shard", 1))))
    assert np.array_equal(found.values(), array)
    turned = whole(
        arrange(
            blocks([arrays[0], arrays[2], arrays[1], arrays[3]]), (2, 2), (Placement("shard", 1), Placement("shard", 0))
        )
    )
    assert np.array_equal(turned.values(), array)


def test_a_strided_axis_divides_what_the_other_has_divided() -> None:
    """FSDP over tensor parallel: the mesh is (data, tensor), and tensor divides first."""
    array = np.arange(8.0)
    # Of tensor rank t the half t, of which data rank d has the part d.
    arrays = [np.split(np.split(array, 2)[t], 2)[d] for d, t in product(range(2), range(2))]
    placements = (Placement("shard", 0, strided=True), Placement("shard", 0))
    assert whole(arrange(blocks(arrays), (2, 2), placements)).values().tolist() == array.tolist()
    plain = (Placement("shard", 0), Placement("shard", 0))
    assert whole(arrange(blocks(arrays), (2, 2), plain)).values().tolist() != array.tolist()


class TestWhichRank:
    """Whose share is not that of the other side."""

    array = drawn("shares", 4, 4)

    def test_of_parts_with_values(self) -> None:
        arrays = np.split(self.array.copy(), 4)
        arrays[2] = arrays[2] * 1.1
        found = apart_by_rank(whole(combine(blocks(arrays), Placement("shard", 0))), block(self.array))
        assert [rank for rank, apart in found.items() if apart > 1e-6] == [2]

    def test_of_parts_without_values_it_is_not_known(self) -> None:
        found = whole(combine(blocks(np.split(self.array, 4), values=False), Placement("shard", 0)))
        assert apart_by_rank(found, block(self.array, values=False)) == {}

    @pytest.mark.parametrize("values", [True, False])
    def test_of_copies(self, values: bool) -> None:
        copies = [self.array, self.array, self.array * np.float32(2)]
        found = whole(combine(blocks(copies, values), REPLICATE))
        apart = apart_by_rank(found, block(self.array, values=values))
        assert [rank for rank, size in apart.items() if size > 1e-6] == [2]
        ((rank, first, size),) = copies_apart(found)
        assert (rank, first) == (2, 0)
        assert size == pytest.approx(0.5)

    @pytest.mark.parametrize("values", [True, False])
    def test_a_part_that_two_ranks_hold(self, values: bool) -> None:
        halves = np.split(self.array, 2)
        assert same_parts(whole(combine(blocks(halves, values), Placement("shard", 0)))) == []
        assert same_parts(whole(combine(blocks([halves[0], halves[0]], values), Placement("shard", 0)))) == [(1, 0)]

    def test_parts_of_a_constant_are_the_same_and_tell_nothing(self) -> None:
        assert same_parts(whole(combine(blocks([np.ones(4), np.ones(4)]), Placement("shard", 0)))) == []


@given(factor=st.sampled_from([0.25, 2.0, 3.0]), values=st.booleans())
def test_a_tensor_times_a_number(factor: float, values: bool) -> None:
    array = drawn("scaled", 5, 5)
    scaled = whole(combine(blocks(np.split(array, 5), values), Placement("shard", 0))).scaled(factor)
    assert distance(scaled, block(array * np.float32(factor), values=values))[0] < 1e-6
    assert len(scaled.parts) == 5


def test_whole_numbers_agree_or_do_not() -> None:
    tokens = np.arange(12).reshape(4, 3)
    for values in (True, False):
        found = whole(combine(blocks(np.split(tokens, 2), values), Placement("shard", 0)))
        assert distance(found, block(tokens, values=values))[0] == 0.0
        assert distance(found, block(tokens + 1, values=values))[0] > 0.01


def test_equal_digests_need_no_values() -> None:
    one, other = block(drawn("a", 3)), block(drawn("b", 3), values=False)
    one.leaf["digest"] = other.leaf["digest"] = "xxh3:1"
    assert nearness(one, other) == 0.0


def test_what_is_not_finite_on_one_side_is_infinitely_far() -> None:
    array = drawn("nan", 4)
    broken = array.copy()
    broken[1] = np.nan
    assert math.isinf(distance(block(broken), block(array))[0])

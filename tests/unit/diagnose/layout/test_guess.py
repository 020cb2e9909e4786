"""How tensors may lie on ranks where only their shapes and values tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.row_by_row import for_each
from unit.diagnose.dumps import drawn
from unit.diagnose.layout.made import blocks

from msprobe.diagnose.layout.guess import Fit, Guesses, Held, Sort
from msprobe.diagnose.layout.placements import REPLICATE, Placement

ACCEPTED = 1e-3
BATCH = Placement("shard", 0)


def held(arrays: Sequence[np.ndarray], values: bool = True) -> Held:
    return Held((tuple(blocks(arrays, values)),))


def fit(sort: Sort, left: Held, right: Held, factor: float = 1.0, guesses: Guesses | None = None) -> Fit:
    found = (guesses or Guesses()).fit("blocks.0.up output.0", sort, left, right, ACCEPTED, factor)
    assert found is not None
    return found


@for_each("values", [True, False])
@for_each("dim", [0, 1, 2])
@for_each("ranks", [2, 4])
def test_parts_along_each_dimension(dim: int, ranks: int, values: bool) -> None:
    array = drawn("whole", 4, 8, 4)
    found = fit("activation", held(np.split(array, ranks, dim), values), held([array], values))
    assert found.spreads[0].placements == (Placement("shard", dim),)
    assert found.apart < 1e-6
    assert found.how == ("values" if values else "statistics")


def test_copies() -> None:
    array = drawn("whole", 4, 4)
    found = fit("activation", held([array] * 4), held([array]))
    assert (found.spreads[0].sizes, found.spreads[0].placements) == ((4,), (REPLICATE,))


@pytest.mark.parametrize("turned", [False, True])
def test_batch_and_features_on_a_mesh(turned: bool) -> None:
    array = drawn("whole", 4, 8)
    rows = [np.split(part, 2, 1) for part in np.split(array, 2, 0)]
    arrays = [rows[0][0], rows[1][0], rows[0][1], rows[1][1]] if turned else [*rows[0], *rows[1]]
    found = fit("activation", held(arrays), held([array]))
    wanted = (Placement("shard", 1), BATCH) if turned else (BATCH, Placement("shard", 1))
    assert (found.spreads[0].sizes, found.spreads[0].placements) == ((2, 2), wanted)


def test_copies_of_parts_on_a_mesh() -> None:
    array = drawn("whole", 6, 4)
    first, second = np.split(array, 2)
    found = fit("parameter", held([first, second, first, second]), held([array]))
    assert found.spreads[0].placements == (REPLICATE, BATCH)
    found = fit("parameter", held([first, first, second, second]), held([array]))
    assert found.spreads[0].placements == (BATCH, REPLICATE)


def test_a_batch_dealt_out_in_turns() -> None:
    array = drawn("whole", 6, 4)
    found = fit("activation", held([array[rank::3] for rank in range(3)]), held([array]))
    assert found.spreads[0].placements == (Placement("interleave", 0),)


def test_ranks_of_both_sides_may_hold_parts() -> None:
    array = drawn("whole", 4, 6, 8)
    found = fit("activation", held(np.split(array, 2, 2)), held(np.split(array, 2, 0)))
    assert [spread.placements for spread in found.spreads] == [(Placement("shard", 2),), (BATCH,)]


def test_terms_of_a_gradient_and_the_factor_of_the_candidate() -> None:
    arrays = [drawn(f"term {rank}", 4, 4) for rank in range(2)]
    mean = sum(arrays) / np.float32(2)
    found = fit("parameter_gradient", held(arrays), held([mean]), factor=0.5)
    assert found.spreads[0].is_sum
    assert found.apart < 1e-6
    assert fit("parameter_gradient", held(arrays), held([mean])).apart > 0.1


def test_a_weight_is_no_sum() -> None:
    arrays = [drawn(f"term {rank}", 4, 4) for rank in range(2)]
    found = fit("parameter", held(arrays), held([sum(arrays)]))
    assert found.spreads[0].placements == (REPLICATE,)
    assert found.apart > 0.1
    assert [(rank, first) for rank, first, _ in found.copies] == [(1, 0)]


def test_a_result_is_a_sum_only_if_nothing_else_explains_it() -> None:
    arrays = [drawn(f"term {rank}", 4, 4) for rank in range(2)]
    assert fit("activation", held(arrays), held([sum(arrays)])).spreads[0].is_sum
    # With one rank right and one wrong they are copies that are not the same.
    found = fit("activation", held([sum(arrays), arrays[1]]), held([sum(arrays)]))
    assert found.spreads[0].placements == (REPLICATE,)
    assert found.copies


def test_a_wrong_tensor_is_taken_as_the_same_place_of_other_layers_was() -> None:
    guesses = Guesses()
    array, other = drawn("one", 8, 8), drawn("other", 8, 8)
    both = held(np.split(array, 2)), held(np.split(array, 2))
    # Between two ranks and two, parts along 0 and along 1 are both possible; the first layer knows nothing.
    columns = held(np.split(other, 2, 1)), held(np.split(array, 2, 1))
    assert guesses.fit("blocks.0.up output.0", "activation", *both, ACCEPTED) is not None
    right = guesses.fit("blocks.0.down output.0", "activation", held(np.split(array, 2, 1)), columns[1], ACCEPTED)
    wrong = guesses.fit("blocks.1.down output.0", "activation", *columns, ACCEPTED)
    assert right is not None
    assert wrong is not None
    assert wrong.spreads == right.spreads
    assert wrong.apart > 0.1


def test_shapes_that_make_no_tensor() -> None:
    guesses = Guesses()
    assert guesses.fit("x", "activation", held([drawn("a", 3)] * 2), held([drawn("b", 4)]), ACCEPTED) is None
    assert guesses.fit("x", "activation", held([drawn("a", 3, 3)]), held([drawn("b", 3)]), ACCEPTED) is None


@pytest.mark.parametrize("order", ["by rank", "by pass"])
def test_passes_are_put_together_in_either_order(order: str) -> None:
    """Two ranks, two pieces each: rank by rank, or piece by piece."""
    array = drawn("whole", 8, 4)
    pieces = np.split(array, 4)
    passes = ((0, 2), (1, 3)) if order == "by rank" else ((0, 1), (2, 3))
    left = Held(tuple(tuple(blocks([pieces[number] for number in one])) for one in passes))
    found = fit("activation", left, held([array]))
    assert found.apart < 1e-6
    assert found.spreads[0].over_passes == BATCH


def test_gradients_of_several_passes_add_up() -> None:
    arrays = [drawn(f"pass {number}", 4) for number in range(3)]
    left = Held(tuple(tuple(blocks([one])) for one in arrays))
    assert fit("parameter_gradient", left, held([sum(arrays)])).apart < 1e-6


def test_what_is_annotated_is_not_guessed() -> None:
    array = drawn("whole", 4, 4)
    arrays = np.split(array, 2)
    told = Held((tuple(blocks(arrays)),), (2,), (BATCH,))
    assert fit("activation", told, held([array])).apart < 1e-6
    wrong = Held((tuple(blocks([array, array])),), (2,), (Placement("sum"),))
    assert fit("activation", wrong, held([array])).apart > 0.1


def test_a_single_number_may_be_a_mean() -> None:
    losses = [np.array(1.0, np.float32), np.array(2.0, np.float32)]
    assert fit("activation", held(losses), held([np.array(1.5, np.float32)])).spreads[0].placements == (
        Placement("mean"),
    )

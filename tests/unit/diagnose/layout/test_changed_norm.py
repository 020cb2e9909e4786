"""What a tensor's mean near zero proves of how it lies on the ranks: nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from unit.diagnose.dumps import drawn
from unit.diagnose.layout.made import blocks

from msprobe.diagnose.layout.guess import Fit, Guesses, Held
from msprobe.diagnose.layout.placements import REPLICATE, Placement

ACCEPTED = 1e-3
SUM = Placement("sum")


def held(arrays: Sequence[np.ndarray]) -> Held:
    """What ranks have of a tensor, statistics alone."""
    return Held((tuple(blocks(arrays, False)),))


def fit(left: Sequence[np.ndarray], right: np.ndarray) -> Fit:
    found = Guesses().fit("blocks.0.norm output.0", "activation", held(left), held([right]), ACCEPTED)
    assert found is not None
    return found


def normed(name: str) -> np.ndarray:
    """A tensor as a norm leaves it: its mean is nothing but rounding."""
    array = drawn(name, 32, 16)
    return (array - array.mean(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_norm_that_is_changed_on_all_ranks_is_no_sum(ranks: int) -> None:
    """The ranks have the same, so it is copies; and these are not those of the reference."""
    array = normed("norm")
    found = fit([array * np.float32(0.8)] * ranks, array)
    assert found.spreads[0].placements == (REPLICATE,)
    assert found.apart == pytest.approx(0.2, abs=0.05)


def test_a_norm_that_is_changed_on_one_rank_is_no_sum() -> None:
    """Two tensors whose means are zero have the mean of their sum, whatever they are."""
    array = normed("norm")
    found = fit([array, array * np.float32(0.8)], array)
    assert found.spreads[0].placements == (REPLICATE,)
    assert found.misfit > ACCEPTED


def test_terms_of_a_sum_are_known_by_their_mean() -> None:
    array, term = drawn("whole", 32, 16) + 0.2, drawn("term", 32, 16)
    found = fit([term, array - term], array)
    assert found.spreads[0].placements == (SUM,)
    assert found.misfit <= ACCEPTED

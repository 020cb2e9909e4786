"""What rounding may do in one run alone: the limits hold where everything is right, and are not far above."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose.tolerance import check_limits, units

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def leaf(tensor: torch.Tensor) -> dict[str, Any]:
    values = tensor.double()
    return {
        "type": "torch.Tensor",
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "Max": values.max().item(),
        "Min": values.min().item(),
        "Mean": values.mean().item(),
        "Norm": values.norm().item(),
    }


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_of_a_sound_softmax_sum_to_one_within_what_is_allowed(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for length in (2, 3, 7, 64, 1000, 4096):
        for size in (0.0, 1.0, 30.0):
            given = (torch.randn(20, length, generator=generator) * size).to(dtype)
            made = torch.softmax(given, -1)
            assert abs(made.float().mean().item() * length - 1) < check_limits.sum_of_one_limit(leaf(made), leaf(given))
    limit = check_limits.sum_of_one_limit(leaf(made), leaf(given))
    assert limit == units.BY_CALL * 0.5 * epsilon_of(str(dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rounding_of_a_sum_of_gradients_never_counts_as_a_mean(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for count in (1, 4, 64, 1024, 65536):
        for _ in range(10):
            one, other = ((torch.randn(count, generator=generator) + 1).to(dtype) for _ in range(2))
            both = one + other
            size = one.double().square().mean().sqrt() + other.double().square().mean().sqrt()
            left = both.double().mean() - one.double().mean() - other.double().mean()
            assert not check_limits.counts_in_a_sum(float(left), float(size), leaf(both))
            assert dtype is not torch.float32 or check_limits.counts_in_a_sum(0.1, float(size), leaf(both))


def test_a_step_that_a_weight_can_hold_is_not_lost() -> None:
    weight, gradient = leaf(torch.tensor([1.0, 1.0])), leaf(torch.tensor([0.5, -0.5]))
    assert check_limits.is_lost_in_rounding(weight, gradient, 1e-8)
    assert not check_limits.is_lost_in_rounding(weight, gradient, 1e-6)


def test_a_sum_is_explained_by_a_term_only_if_it_is_not_without() -> None:
    assert check_limits.is_explained(0.5, 0.001)
    assert not check_limits.is_explained(0.1, 0.001)
    assert not check_limits.is_explained(0.5, 0.1)
    assert check_limits.is_explained_closely(0.05, 1e-5)
    assert not check_limits.is_explained_closely(0.05, 1e-3)


def test_one_factor_is_the_same_for_all_and_not_one() -> None:
    assert check_limits.is_one_factor([0.5, 0.5 + 1e-6])
    assert not check_limits.is_one_factor([0.5, 0.6])
    assert not check_limits.is_one_factor([1.0, 1.0])
    assert not check_limits.is_one_factor([0.5])
    assert check_limits.undoes(1 / 1024, 1024.0)
    assert not check_limits.undoes(1 / 512, 1024.0)


@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-4])
def test_a_norm_after_one_step_of_adam_may_have_two_values(rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for count in (8, 16, 256, 4096):
        signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
        assert check_limits.may_have_two_values(leaf(1 + rate * signs))
        assert check_limits.may_have_two_values(leaf(rate * signs.float()))
        assert not check_limits.may_have_two_values(leaf(torch.randn(count, generator=generator)))
    assert check_limits.may_have_two_values(leaf(torch.ones(8)))

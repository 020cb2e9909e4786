"""Calls that draw random numbers are compared by how these are spread."""

from __future__ import annotations

import warnings

import pytest
import torch

from msprobe.precheck.torch.spread import judge_spread


def draws(seed: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(500, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_two_draws_of_one_distribution_pass_without_a_warning(dtype: torch.dtype) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = judge_spread("name", draws(1, dtype), draws(2, dtype))
    assert row.status == "pass"
    assert row.scaled is not None


@pytest.mark.parametrize("shift", [1.0, 1j, 1 - 1j])
def test_a_shift_of_either_part_of_complex_numbers_is_found(shift: complex) -> None:
    assert judge_spread("name", draws(1), draws(2) + shift).status == "error"
    assert judge_spread("name", draws(1), (draws(2) + shift).conj()).status == "error"


def test_an_imaginary_part_that_is_missing_is_found() -> None:
    assert judge_spread("name", draws(1), torch.complex(draws(2).real, torch.zeros(500))).status == "error"


def test_a_nan_in_the_imaginary_part_of_the_candidate_is_an_error() -> None:
    wrong = draws(2)
    wrong[3] = complex(0, float("nan"))
    assert "NaN" in judge_spread("name", draws(1), wrong).message

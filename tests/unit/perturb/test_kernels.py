"""Perturbations and ratios of single tensors, as the tables of mindstudio-probe have them."""

from __future__ import annotations

import math

import pytest
import torch
from support.row_by_row import for_each

from msprobe.perturb.framework import ErrorLimits
from msprobe.perturb.thresholds import MEAN_LIMIT, equal_ratio, floor_of
from msprobe.perturb.torch import comparing, copies, kernels


def limits(own: torch.dtype, other: torch.dtype, mode: str = "bit_noise") -> ErrorLimits:
    names = [str(one).removeprefix("torch.") for one in (own, other)]
    return ErrorLimits(floor_of(names[1], False), equal_ratio(names[0], mode))


def compared(own: float | list[float], other: float | list[float], dtype=torch.float32, other_dtype=None):
    other_dtype = other_dtype or dtype
    one, two = torch.tensor(own, dtype=dtype), torch.tensor(other, dtype=other_dtype)
    return comparing.compare(one, two, limits(dtype, other_dtype))


@pytest.mark.parametrize(
    ("dtype", "change"), [(torch.float32, 1.19e-7), (torch.float16, 9.77e-4), (torch.bfloat16, 7.8e-3)]
)
def test_bit_noise_flips_the_lowest_bit_and_leaves_zero(dtype: torch.dtype, change: float) -> None:
    own = torch.tensor([1.0, 0.0], dtype=dtype)
    found = kernels.perturbed("bit_noise", own, "ulp", 1)
    assert (found - own)[0].item() == pytest.approx(change, rel=0.01)
    assert found[1] == 0
    assert own.tolist() == [1.0, 0.0]


@for_each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@for_each("scale", [1, 4])
def test_noise_moves_every_element_by_units_in_its_last_place(dtype: torch.dtype, scale: int) -> None:
    own = torch.linspace(-900, 900, 9001, dtype=torch.float64).to(dtype)
    found = kernels.perturbed("add_noise", own, "ulp", scale)
    magnitude = own.abs() > torch.finfo(dtype).smallest_normal
    step = torch.nextafter(own.abs(), torch.full_like(own, math.inf)) - own.abs()
    moved = ((found - own).abs().double() / step.double())[magnitude]
    # Around a power of two the step changes to half or twice as much.
    assert bool(((moved >= scale / 2) & (moved <= 2 * scale)).all())
    up = ((found.abs() > own.abs())[magnitude]).double().mean()
    assert 0.45 < up < 0.55
    assert torch.equal(found, kernels.perturbed("add_noise", own, "ulp", scale))


def test_noise_keeps_the_greatest_number_infinity_and_nan() -> None:
    own = torch.tensor([torch.finfo(torch.float16).max, math.inf, -math.inf, math.nan, 1.0], dtype=torch.float16)
    found = kernels._bits(own, 1024)
    assert not torch.isinf(found[0])
    assert found[1] == math.inf
    assert found[2] == -math.inf
    assert math.isnan(found[3])


def test_classic_noise_adds_the_number_of_the_table() -> None:
    own = torch.tensor([1.0, 1e-5, -0.01])
    found = kernels.perturbed("add_noise", own, "absolute", 1)
    assert torch.equal(found, torch.where(own.abs() > 1e-4, own + 1e-8, own))


def test_noise_of_a_complex_tensor_reaches_both_parts() -> None:
    own = torch.tensor([1 + 2j, 3 - 4j])
    found = kernels.perturbed("bit_noise", own, "ulp", 1)
    assert found.dtype == own.dtype
    assert bool((found.real != own.real).all())
    assert bool((found.imag != own.imag).all())


@for_each(
    ("own", "reason"),
    [
        (torch.ones(3, dtype=torch.int64), "dtype unsupported"),
        (torch.ones(0), "tensor shape must > 0"),
        (torch.zeros(3), "maximum value is less than the minimum threshold"),
    ],
)
@for_each("mode", ["add_noise", "bit_noise"])
def test_what_is_not_perturbed_says_why(mode, own: torch.Tensor, reason: str) -> None:
    assert kernels.perturbed(mode, own, "ulp", 1) == reason


def test_exchanging_takes_the_ends() -> None:
    assert kernels.exchanged(torch.tensor([0.0, 1, 2]), None).tolist() == [2, 1, 0]
    assert kernels.exchanged(torch.arange(6.0).view(2, 3), None).tolist() == [[5, 1, 2], [3, 4, 0]]
    assert kernels.exchanged(torch.arange(6.0).view(2, 3), 1).tolist() == [[2, 1, 0], [5, 4, 3]]


@pytest.mark.parametrize("own", [torch.tensor(1.0), torch.ones(1), torch.ones(2, 0), torch.ones(1, 1), torch.arange(3)])
def test_what_has_no_two_ends_is_not_exchanged(own: torch.Tensor) -> None:
    assert isinstance(kernels.exchanged(own, None), str)


def test_ratios() -> None:
    assert compared(0.0, -0.0).is_equal
    assert compared(1e-5, -1e-5).is_equal
    flipped = compared(1e-3, -1e-3)
    assert flipped.max_rel == "symbol_flipping"
    assert not flipped.is_equal
    assert compared(1.0, 1.003, torch.bfloat16, torch.float32).is_equal
    assert not compared(1.0, 1.005, torch.bfloat16, torch.float32).is_equal
    assert not compared(1.0, 1.0003, torch.float64).is_equal
    assert compared([], []).is_equal
    assert compared(2.0, 2.1).max_rel == pytest.approx(0.05)
    assert compared(1.0, 1.0).is_equal


@pytest.mark.parametrize("other", [math.nan, math.inf])
def test_a_number_against_none_is_a_mismatch(other: float) -> None:
    assert compared([1.0, 1.0], [1.0, other]).max_rel == "nan_mismatch"
    assert compared([other, 1.0], [other, 1.0]).is_equal


def test_infinities_of_two_signs_differ() -> None:
    assert not compared(math.inf, -math.inf).is_equal


def test_a_large_tensor_is_looked_at_whole() -> None:
    own = torch.ones(9 << 20)
    other = own.clone()
    other[0] = 1.5
    assert comparing.compare(own, other, limits(torch.float32, torch.float32)).max_rel == pytest.approx(0.5)
    other[0], other[-1] = 1.0, 1.25
    assert comparing.compare(own, other, limits(torch.float32, torch.float32)).max_rel == pytest.approx(0.25)


def test_against_the_cpu_small_elements_count_with_their_absolute_error() -> None:
    own = torch.tensor([1.0, 1e-9])
    assert comparing.compare_with_cpu(own, torch.tensor([1.0, 3e-9]), 2**-14, 1e-4).is_equal
    found = comparing.compare_with_cpu(own, torch.tensor([1.1, 1e-9]), 2**-14, 1e-4)
    assert not found.is_equal
    assert found.max_rel == pytest.approx(0.1 / 1.1, rel=1e-4)


def test_against_the_cpu_a_mean_error_counts_that_no_element_shows() -> None:
    golden, error = torch.full((8,), 0.5), torch.full((8,), 2e-4)
    alternating = error * torch.tensor([1, -1] * 4)
    assert comparing.compare_with_cpu(golden + error / 4, golden, 2**-8, 1e-4).is_equal
    assert comparing.compare_with_cpu(golden + alternating, golden, 2**-8, 1e-4).is_equal
    found = comparing.compare_with_cpu(golden + error, golden, 2**-8, 1e-4)
    assert not found.is_equal
    assert found.bad_ratio == 0


def test_a_result_off_by_its_mean_alone_is_reported_with_the_limit_of_the_tables() -> None:
    assert MEAN_LIMIT == 1e-4


@for_each(
    "make",
    [
        lambda: torch.randn(8, 6),
        lambda: torch.randn(8, 6).t(),
        lambda: torch.randn(8, 6)[:, 1:4],
        lambda: torch.randn(1, 6).expand(4, 6),
        lambda: torch.randn(20).unfold(0, 5, 2),
        lambda: torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(33)[1:],
        lambda: torch.randn(7, dtype=torch.complex64).conj(),
        lambda: torch.randn(0, 3),
        lambda: torch.tensor(3.0),
        lambda: torch.randn(64, 512)[:, 0],
    ],
)
def test_a_twin_has_the_same_values_strides_and_alignment(make) -> None:
    own = make()
    found = copies.twin(own)
    assert torch.equal(found, own)
    if own.numel() and not own.is_conj() and own.stride() != (512,):
        assert found.stride() == own.stride()
        assert found.data_ptr() % 64 == own.data_ptr() % 64
    assert found.numel() == 0 or found.data_ptr() != own.data_ptr()

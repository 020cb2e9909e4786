"""What the deviations of calls are measured against: relations of their arguments to their results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.rows_made import apart, row_of

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.measured import scales
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.steps.timeline import Event

_RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    _RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


def _apart(values: np.ndarray, error: float = 0.0) -> Deviation:
    moved = values + error * _RANDOM.standard_normal(values.shape)
    return apart(row_of(moved), row_of(values), values.size)


def test_a_bias_gradient_that_cancels_is_measured_by_what_is_summed() -> None:
    arriving = _RANDOM.standard_normal((512, 16))
    arriving -= arriving.mean(0)
    summed = _apart(arriving.sum(0))
    assert summed.norm < 1e-9
    scale = scales.result_scale("linear", "backward", summed, [_apart(arriving)])
    assert scale == pytest.approx(float(np.linalg.norm(arriving)))


def test_the_gradient_of_a_factor_that_no_record_names_is_measured_by_the_terms_of_one_of_its_size() -> None:
    """A convolution's weight, and the bias behind it: what arrives has a mean of nothing in each channel."""
    arriving = _RANDOM.standard_normal((512, 8))
    arriving -= arriving.mean(0)
    taken, weight, bias = (_RANDOM.standard_normal(size) for size in (1024, 72, 8))
    given = [_apart(values) for values in (arriving, taken, weight, bias)]
    nothing_of_bias, nothing_of_weight = _apart(arriving.sum(0)), _apart(np.full(72, 1e-9))
    assert scales.result_scale("conv2d", "backward", nothing_of_bias, given) == pytest.approx(given[0].norm)
    terms = scales.norm_of_product(given[0], given[1], nothing_of_weight)
    assert scales.result_scale("conv2d", "backward", nothing_of_weight, given) == pytest.approx(terms)


def test_the_gradient_of_a_broadcast_factor_is_measured_by_the_terms_that_are_summed() -> None:
    arriving, x = _RANDOM.standard_normal((64, 48)), 5.0 * _RANDOM.standard_normal((64, 48))
    terms = float(np.linalg.norm(arriving * x))
    result, factor = _apart(np.zeros((64, 1))), _apart(np.ones((64, 1)))
    given = [_apart(arriving), _apart(x), factor]
    assert scales.result_scale("mul", "backward", result, given) == pytest.approx(terms, rel=0.1)


def test_a_product_that_cancels_is_measured_by_its_factors() -> None:
    x, w = _RANDOM.standard_normal((64, 128)), _RANDOM.standard_normal((128, 32))
    scale = scales.result_scale("matmul", "forward", _apart(np.zeros((64, 32))), [_apart(x), _apart(w)])
    assert scale == pytest.approx(float(np.linalg.norm(x @ w)), rel=0.1)


def test_a_difference_of_equal_terms_is_as_far_apart_as_these_in_its_own_size() -> None:
    x = _apart(1000.0 + _RANDOM.standard_normal(256), 1e-3)
    result = _apart(_RANDOM.standard_normal(256))
    size = scales.argument_scale("sub", "forward", 0, x, result, result.norm)
    assert x.distance / size == pytest.approx(x.distance / result.norm)


def test_softmax_follows_the_absolute_difference_of_its_exponents() -> None:
    x = _apart(100.0 * _RANDOM.standard_normal(4096), 0.01)
    size = scales.argument_scale("softmax", "forward", 0, x, _apart(np.ones(4096)), 64.0)
    assert x.distance / size == pytest.approx(0.01, rel=1.0)


def test_a_part_is_no_further_apart_than_the_whole() -> None:
    whole, part = _apart(_RANDOM.standard_normal(1024), 1e-3), _apart(_RANDOM.standard_normal(128))
    assert scales.argument_scale("chunk", "forward", 0, whole, part, part.norm) == part.norm


def test_a_quotient_is_as_far_apart_as_its_smallest_divisor() -> None:
    divisor = np.ones(256)
    divisor[0] = 1e-6
    found = _apart(divisor)
    assert scales.argument_scale("div", "forward", 1, found, found, found.norm) == pytest.approx(1e-6 * 16)
    assert scales.argument_scale("div", "forward", 0, found, found, found.norm) == pytest.approx(found.norm)


def test_where_elements_change_sides_a_share_of_the_gradient_goes_elsewhere() -> None:
    taken = _apart(_RANDOM.standard_normal(4096), 1e-4)
    arriving = _apart(_RANDOM.standard_normal(4096))
    flips = scales.chosen_otherwise("relu", "backward", [arriving, taken])
    assert flips == pytest.approx(math.sqrt(taken.distance / taken.norm))
    assert scales.chosen_otherwise("gelu", "backward", [arriving, taken]) == 0.0
    assert scales.chosen_otherwise("relu", "forward", [taken]) == 0.0
    # The one element that holds most of the gradient may be among them, where they are not few.
    alone = _RANDOM.standard_normal(4096)
    alone[7] = 100.0
    coarse, fine = (_apart(_RANDOM.standard_normal(4096), size) for size in (1e-2, 1e-5))
    assert scales.chosen_otherwise("abs", "backward", [_apart(alone), coarse]) > 0.4
    assert scales.chosen_otherwise("abs", "backward", [_apart(alone), fine]) < 0.02


def test_angles_are_rounded_to_units_of_their_size() -> None:
    large, small = _apart(1e4 * _RANDOM.standard_normal(256)), _apart(0.1 * _RANDOM.standard_normal(256))
    assert scales.units_of_rounding("sin", "forward", large, [large], True) > 1e3
    assert scales.units_of_rounding("sin", "forward", small, [small], True) <= 1.0
    assert scales.units_of_rounding("mul", "forward", large, [large], True) == 1.0


def _power(exponent: object) -> float:
    record = {"input_args": [None, {"type": type(exponent).__name__, "value": exponent}], "output": []}
    name = "Torch.pow.0.forward"
    return scales.exponent_of("pow", Event(name, read_name(name), record, "forward"))


def test_a_power_is_as_many_times_further_apart_as_its_exponent_says() -> None:
    x = _apart(_RANDOM.standard_normal(4096), 1e-3)
    values = _RANDOM.standard_normal(4096)
    moved = values * (1.0 + 1e-3 * _RANDOM.standard_normal(4096))
    given, result = apart(row_of(moved), row_of(values), 4096), apart(row_of(moved**3), row_of(values**3), 4096)
    size = scales.argument_scale("pow", "forward", 0, given, result, result.norm, _power(3.0))
    assert result.distance / result.norm == pytest.approx(given.distance / size, rel=0.6)
    assert scales.argument_scale("pow", "backward", 0, x, result, result.norm, _power(3)) == x.norm  # what arrives
    assert _power(True) == _power(None) == 0.0


def test_a_root_is_no_further_apart_than_its_argument_allows() -> None:
    values = _RANDOM.standard_normal(4096) ** 2
    values[0] = 1e-12
    moved = np.abs(values + 1e-4 * _RANDOM.standard_normal(4096))
    given = apart(row_of(moved), row_of(values), 4096)
    result = apart(row_of(np.sqrt(moved)), row_of(np.sqrt(values)), 4096)
    size = scales.argument_scale("sqrt", "forward", 0, given, result, result.norm)
    assert result.distance / result.norm <= 1.5 * given.distance / size < 0.1


def test_gradients_that_are_added_up_in_one_place_round_each_time() -> None:
    arriving, found = _apart(_RANDOM.standard_normal((96, 8))), _apart(_RANDOM.standard_normal((2, 8)))
    assert scales.units_of_rounding("embedding", "backward", found, [arriving], is_single=False) > 4.0
    assert scales.units_of_rounding("linear", "backward", found, [arriving], is_single=False) == 1.0


@pytest.mark.parametrize(
    ("operation", "exponent"), [("rsqrt", -0.5), ("reciprocal", -1.0), ("sqrt", 0.5), ("square", 2)]
)
def test_gradients_of_powers_are_made_of_their_results(operation: str, exponent: float) -> None:
    values = np.abs(_RANDOM.standard_normal(4096)) + 0.5
    arriving, own = _RANDOM.standard_normal(4096), values**exponent
    moved = own * (1.0 + 1e-4 * _RANDOM.standard_normal(4096))

    def gradient(y: Any) -> Any:
        return arriving * exponent * y ** ((exponent - 1) / exponent)

    given = apart(row_of(moved), row_of(own), 4096)
    result = apart(row_of(gradient(moved)), row_of(gradient(own)), 4096)
    power = scales.exponent_of(operation, Event("x", read_name("Torch.x.0.forward"), {}, "forward"))
    size = scales.argument_scale(operation, "backward", 2, given, result, result.norm, power)
    assert result.distance / result.norm < 1.5 * given.distance / size


def test_a_gradient_is_as_far_apart_as_it_is_steep() -> None:
    """Rows of padding have a variance of next to nothing: what arrives there is multiplied by a large number."""
    variances = np.full(24, 1.0)
    variances[5] = 1e-4
    arriving = _RANDOM.standard_normal(24)
    arriving[5] = 1e-4
    root = variances**-0.5
    moved = arriving + 1e-3 * _RANDOM.standard_normal(24)
    deviations = [apart(row_of(a), row_of(b), 24) for a, b in ((moved, arriving), (variances, variances), (root, root))]
    result = apart(row_of(-0.5 * moved * root**3), row_of(-0.5 * arriving * root**3), 24)
    assert scales.steepest(-0.5, "backward", deviations) == pytest.approx(0.5e6)
    assert result.distance < 2.0 * deviations[0].distance * scales.steepest(-0.5, "backward", deviations)
    assert scales.steepest(-0.5, "forward", deviations) == scales.steepest(0.0, "backward", deviations) == 0.0


@pytest.mark.parametrize(
    ("operation", "sizes", "row"),
    [
        ("layer_norm", (512, 16, 16), 16),
        ("batch_norm", (512, 4, 4, 4, 4), 128),
        ("batch_norm", (512, 128, 128), 4),
        ("batch_norm", (512,), 512),
    ],
)
def test_a_norm_over_a_batch_takes_the_mean_of_all_but_the_channels(
    operation: str, sizes: tuple[int, ...], row: int
) -> None:
    assert scales.size_of_row(operation, [_apart(np.ones(size)) for size in sizes]) == row


@pytest.mark.parametrize("side", [8, 24])
def test_places_are_as_far_apart_as_what_is_read_there(side: int) -> None:
    image, places = _RANDOM.standard_normal((4, side, side)), _RANDOM.uniform(-0.9, 0.9, (side, side, 2))
    moved = places + 1e-4 * _RANDOM.standard_normal(places.shape)
    read, other = (
        torch.nn.functional.grid_sample(*map(torch.tensor, (image[None], at[None])), align_corners=False)
        for at in (moved, places)
    )
    apart_by = float((read - other).norm() / other.norm())
    given = apart(row_of(moved), row_of(places), places.size)
    result = _apart(other.numpy())
    estimate = given.distance / scales.argument_scale("grid_sample", "forward", 1, given, result, result.norm)
    assert 0.5 < estimate / apart_by < 2.0
    assert scales.argument_scale("grid_sample", "forward", 0, result, result, result.norm) == result.norm


def _attention(width: int, **keywords: Any) -> Event:
    query = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 4, 16, width]}
    record = {"input_args": [query, query, query], "input_kwargs": keywords, "output": [query]}
    name = "Functional.scaled_dot_product_attention.0.forward"
    return Event(name, read_name(name), record, "forward")


def test_attention_is_steep_where_its_scores_are_large() -> None:
    small, large = (_apart(size * _RANDOM.standard_normal(4096)) for size in (0.5, 6.0))
    name, event = "scaled_dot_product_attention", _attention(25)
    assert scales.scores_of(name, "forward", event, [small, small, large]) == (1.0, 1)
    steepness, shared = scales.scores_of(name, "forward", event, [large, large, small])
    assert (steepness, shared) == (pytest.approx(6.0, rel=0.05), 25)
    assert scales.scores_of(name, "backward", event, [small, large, large]).steepness == pytest.approx(36.0, rel=0.05)
    # A scale of its own in place of 1 over the root of the width.
    twice = scales.scores_of(name, "backward", _attention(25, scale=0.4), [small, large, large])
    assert twice.steepness == pytest.approx(72.0, rel=0.05)
    assert scales.scores_of("linear", "forward", event, [large, large]) == (1.0, 1)

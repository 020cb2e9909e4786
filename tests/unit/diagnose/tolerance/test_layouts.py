"""What rounding may do between parallel layouts, in types with few digits above all."""

from __future__ import annotations

import pytest

from msprobe.diagnose.tolerance import layouts

BFLOAT16, FLOAT32 = 2.0**-7, 2.0**-23


def test_a_module_of_a_type_with_few_digits_may_add_what_its_calls_round() -> None:
    """Sixteen times the model of a module would be half of its result."""
    assert layouts.pass_limit(0.03, 4.0, BFLOAT16, 9, BFLOAT16) == pytest.approx(7 * BFLOAT16)


def test_what_came_in_further_apart_comes_out_further_apart() -> None:
    assert layouts.pass_limit(0.03, 4.0, 10 * BFLOAT16, 9, BFLOAT16) == pytest.approx(40 * BFLOAT16)


def test_a_module_in_float32_may_add_no_more_than_its_own_type_says() -> None:
    own = 4 * FLOAT32
    assert layouts.pass_limit(own, 4.0, 0.0, 9, BFLOAT16) == layouts.pass_limit(own, 4.0, 0.0, 9, FLOAT32) == 16 * own


def test_no_number_of_calls_makes_a_third_of_a_result() -> None:
    assert layouts.pass_limit(1.0, 4.0, 0.0, 100_000, BFLOAT16) <= 0.3
    assert layouts.gradient_limit(0.05, 1.0 / 64, 100_000, BFLOAT16) <= 0.3


def test_what_goes_into_a_module_is_measured_by_the_modules_before() -> None:
    own = layouts.sum_order_limit(BFLOAT16)
    near, far = (layouts.input_limit(own, before * BFLOAT16, 4, BFLOAT16) for before in (0.5, 8.0))
    assert near == pytest.approx(5 * BFLOAT16)
    assert far == pytest.approx(32 * BFLOAT16)


def test_copies_of_a_type_with_few_digits_are_not_apart_by_its_size() -> None:
    assert layouts.are_copies(2 * BFLOAT16, BFLOAT16)
    assert not layouts.are_copies(8 * BFLOAT16, BFLOAT16)
    assert layouts.are_copies(64 * FLOAT32, FLOAT32)


class TestOneFactorOfAllGradients:
    def test_it_tells_though_each_is_within_rounding(self) -> None:
        assert layouts.common_factor([0.971, 0.973, 0.969, 0.972], BFLOAT16) == pytest.approx(0.9715)

    @pytest.mark.parametrize(
        "ratios",
        [
            pytest.param([0.99, 0.991, 0.99, 0.989], id="no more than a few numbers round to"),
            pytest.param([0.97, 1.03, 0.96, 1.04], id="none that most have"),
            pytest.param([0.97, 0.97], id="of two parameters"),
        ],
    )
    def test_what_is_none(self, ratios: list[float]) -> None:
        assert layouts.common_factor(ratios, BFLOAT16) is None

    def test_in_float32_each_gradient_tells_it(self) -> None:
        assert layouts.common_factor([0.97] * 4, FLOAT32) is None

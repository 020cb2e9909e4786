from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.coded_texts import pieces_of

from msprobe.messages import code_of
from msprobe.precheck.side.elements import unit_in_last_place
from msprobe.precheck.side.strict import judge_close, judge_exact, judge_floats
from msprobe.precheck.standards import TOLERANCES

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


def judged(bench: Any, device: Any, dtype: str = "float32", movement: Any = None) -> Any:
    bench = np.asarray(bench, dtype=np.float64)
    rounded = bench.astype(np.float16 if dtype == "float16" else np.float32).astype(np.float64)
    return judge_floats(bench, rounded, np.asarray(device, dtype=np.float64), dtype, movement)


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2**-23), ("float16", 2**-10), ("bfloat16", 2**-7)])
def test_the_unit_of_one_is_that_of_the_type(dtype: str, unit: float) -> None:
    assert unit_in_last_place(np.array([1.0, 1.5, -1.0]), dtype, np).tolist() == [unit] * 3


def test_a_result_within_one_unit_of_the_rounded_reference_has_no_error() -> None:
    bench = RANDOM.standard_normal(1000)
    device = np.nextafter(bench.astype(np.float32), np.float32(np.inf))
    verdict = judged(bench, device)
    assert (verdict.status, verdict.scaled) == ("pass", 0.0)


def test_the_same_infinities_and_nan_on_both_sides_pass() -> None:
    values = [1.0, np.inf, -np.inf, np.nan]
    assert judged(values, values).status == "pass"


def test_nan_only_on_the_device_is_an_error_that_names_the_place() -> None:
    verdict = judged([[1.0, 2.0]], [[1.0, np.nan]])
    assert verdict.status == "error"
    assert verdict.index == (0, 1)
    assert code_of(verdict.message)[1] == "special-values-differ"
    assert "only-on-device" in pieces_of(verdict.message)


def test_at_the_edge_of_half_precision_rounding_may_give_infinity() -> None:
    assert judged([65519.0, 1.0], [np.inf, 1.0], "float16").status == "pass"
    assert judged([60.0, 1.0], [np.inf, 1.0], "float16").status == "error"


def test_what_disturbed_inputs_move_is_allowed() -> None:
    bench = np.array([1e-6, 1.0])
    device = np.array([1e-6 + 1e-4, 1.0])
    assert judged(bench, device).status == "error"
    assert judged(bench, device, movement=np.array([1e-5, 1e-7])).status == "pass"


def test_a_scale_fault_of_a_thousandth_is_an_error_in_single_precision() -> None:
    bench = RANDOM.standard_normal(100)
    assert judged(bench, bench * 1.001).status == "error"


def test_whole_numbers_may_differ_only_where_rounding_decides() -> None:
    bench, device = np.array([1, 5, 3]), np.array([1, 3, 3])
    assert judge_exact(bench, device, None).status == "error"
    assert judge_exact(bench, device, np.array([True, False, True])).status == "error"
    assert judge_exact(bench, device, np.array([False, True, False])).status == "pass"
    assert judge_exact(bench, np.array([1, 99, 3]), np.array([False, True, False])).status == "error"


@pytest.mark.parametrize(
    ("dtype", "elementwise", "scales", "status"),
    [
        ("bfloat16", True, 3, "pass"),
        ("bfloat16", True, 12, "Warning"),
        ("float16", True, 17, "error"),
        ("float16", False, 17, "pass"),
        ("float32", True, 17, "pass"),
        ("bfloat16", False, 100, "Warning"),
    ],
)
def test_an_elementwise_call_in_a_half_type_is_rounded_a_few_times(
    dtype: str, elementwise: bool, scales: float, status: str
) -> None:
    bench = np.ones(50)
    device = bench.copy()
    device[7] += scales * float(unit_in_last_place(bench, dtype, np)[0])
    assert judge_floats(bench, bench, device, dtype, None, elementwise).status == status


def test_a_small_element_of_an_elementwise_call_is_not_excused_by_large_ones() -> None:
    bench = np.array([1e10, 1.0])
    device = np.array([1e10, 0.0])
    assert judge_floats(bench, bench, device, "float32", None).status == "pass"
    assert judge_floats(bench, bench, device, "float32", None, elementwise=True).status == "error"


@pytest.mark.parametrize("dtype", [name for name in TOLERANCES if "8" not in name])
def test_assert_close_is_that_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    specials = [(np.nan, np.nan), (np.inf, np.inf), (np.inf, -np.inf), (1.0, np.nan), (np.inf, 1.0), (1.0, np.inf)]
    sizes = 10.0 ** random.integers(-7, 3, 60)
    rtol, atol = TOLERANCES[dtype]
    near = [(b, b + (atol + rtol * b) * f) for b, f in zip(sizes, random.uniform(-2, 2, 60), strict=True)]
    for pair in [*specials, *near]:
        bench, device = (torch.tensor([one], dtype=getattr(torch, dtype)) for one in pair)
        try:
            torch.testing.assert_close(device, bench)
            expected = "pass"
        except AssertionError:
            expected = "error"
        found = judge_close(bench.double().numpy(), device.double().numpy(), rtol, atol)
        assert found.status == expected, pair

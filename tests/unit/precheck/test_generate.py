from __future__ import annotations

import math

import numpy as np
import pytest

from msprobe.precheck.arguments import ArgumentTensor, argument_of
from msprobe.precheck.domains import Domain
from msprobe.precheck.generate import CannotGenerateError, generator_for, values_for


def made(info: ArgumentTensor, path: str = "0", seed: int = 1, domain: Domain | None = None) -> np.ndarray:
    return values_for(info, generator_for("Torch.add.0", path, seed), domain or Domain())


def test_values_meet_the_recorded_extremes_mean_norm_and_zeros() -> None:
    real = np.maximum(np.random.default_rng(3).standard_normal(4000), 0)
    info = ArgumentTensor(
        *("float32", (40, 100), float(real.min()), float(real.max()), float(real.mean())),
        norm=float(np.linalg.norm(real)),
        zeros=int((real == 0).sum()),
    )
    values = made(info)
    assert (values.min(), values.max()) == (info.low, info.high)
    assert values.mean() == pytest.approx(real.mean(), rel=0.1)
    assert np.linalg.norm(values) == pytest.approx(np.linalg.norm(real), rel=0.1)
    assert abs(int((values == 0).sum()) - int((real == 0).sum())) <= 2


def test_values_depend_on_call_argument_and_seed_and_on_nothing_else() -> None:
    info = ArgumentTensor("float32", (50,), -1.0, 1.0)
    assert np.array_equal(made(info), made(info))
    assert not np.array_equal(made(info), made(info, path="1"))
    assert not np.array_equal(made(info), made(info, seed=2))


def test_one_recorded_infinity_or_nan_leaves_the_rest_finite() -> None:
    values = made(ArgumentTensor("float32", (100,), -1.0, math.inf, finite_low=-1.0, finite_high=3.0))
    assert np.isposinf(values).sum() == 1
    assert np.nanmax(values[np.isfinite(values)]) <= 3.0
    values = made(ArgumentTensor("float32", (100,), math.nan, math.nan))
    assert np.isnan(values).sum() == 1
    assert np.isfinite(values).sum() == 99


def test_whole_numbers_stay_in_their_range_and_meet_its_ends() -> None:
    values = made(ArgumentTensor("int64", (1000,), 3, 9))
    assert (int(values.min()), int(values.max())) == (3, 9)
    assert values.dtype.kind == "i"


def test_indices_that_must_differ_do() -> None:
    values = made(ArgumentTensor("int64", (6,), 0, 9), domain=Domain("unlike"))
    assert len(set(values.tolist())) == 6


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_a_tensor_without_elements_needs_no_extremes(shape: tuple[int, ...]) -> None:
    assert made(ArgumentTensor("float32", shape)).shape == shape


def test_a_tensor_without_recorded_extremes_cannot_be_made() -> None:
    with pytest.raises(CannotGenerateError, match="Max and Min"):
        made(ArgumentTensor("float32", (3,)))


MASK = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 8], "Max": 0.0, "Min": "-inf"}


def test_a_mask_has_as_many_infinities_and_zeros_as_were_recorded() -> None:
    info = argument_of({**MASK, "inf": 28, "zero": 36})
    assert isinstance(info, ArgumentTensor)
    values = made(info)
    assert (np.isneginf(values).sum(), (values == 0).sum()) == (28, 36)
    assert not np.array_equal(np.isneginf(values), np.isneginf(made(info, path="1")))


def test_infinities_have_the_recorded_signs_and_leave_the_finite_end_at_its_place() -> None:
    values = made(ArgumentTensor("float32", (100,), -2.0, math.inf, infinite=30))
    assert (np.isposinf(values).sum(), np.isneginf(values).sum(), values[0]) == (30, 0, -2.0)
    values = made(ArgumentTensor("float32", (100,), -math.inf, math.inf, infinite=30))
    assert (np.isposinf(values).sum(), np.isneginf(values).sum()) == (15, 15)
    assert np.isneginf(made(ArgumentTensor("float32", (3,), -math.inf, -math.inf, infinite=3))).all()


def test_nan_that_hides_the_extremes_leaves_room_for_infinities() -> None:
    values = made(ArgumentTensor("float32", (50,), math.nan, math.nan, nan=9, infinite=10))
    assert (np.isnan(values).sum(), np.isinf(values).sum(), np.isfinite(values).sum()) == (9, 10, 31)
    assert {math.inf, -math.inf} <= set(values.tolist())


def test_more_special_values_than_elements_fill_the_tensor() -> None:
    values = made(ArgumentTensor("float32", (4,), math.nan, math.nan, nan=3, infinite=10))
    assert (np.isnan(values).sum(), np.isinf(values).sum()) == (3, 1)


def test_sorted_values_stay_so_with_infinities_among_them() -> None:
    values = made(ArgumentTensor("float32", (20,), 0.0, math.inf, infinite=5), domain=Domain("sorted"))
    assert np.isposinf(values[-5:]).all()
    assert (np.diff(values[:-5]) >= 0).all()


def test_memory_that_was_uninitialised_is_zeros() -> None:
    info = argument_of({**MASK, "Max": None, "Min": None, "unset": True})
    assert isinstance(info, ArgumentTensor)
    assert not made(info).any()
    assert not made(ArgumentTensor("float32", (3,)), domain=Domain("overwritten")).any()

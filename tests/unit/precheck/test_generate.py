from __future__ import annotations

import math

import numpy as np
import pytest

from msprobe.precheck.arguments import TensorInfo
from msprobe.precheck.generate import CannotGenerateError, generator_for, values_for


def made(info: TensorInfo, path: str = "0", seed: int = 1, domain: str = "") -> np.ndarray:
    return values_for(info, generator_for("Torch.add.0", path, seed), domain)


def test_values_meet_the_recorded_extremes_mean_norm_and_zeros() -> None:
    real = np.maximum(np.random.default_rng(3).standard_normal(4000), 0)
    info = TensorInfo(
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
    info = TensorInfo("float32", (50,), -1.0, 1.0)
    assert np.array_equal(made(info), made(info))
    assert not np.array_equal(made(info), made(info, path="1"))
    assert not np.array_equal(made(info), made(info, seed=2))


def test_one_recorded_infinity_or_nan_leaves_the_rest_finite() -> None:
    values = made(TensorInfo("float32", (100,), -1.0, math.inf, finite_low=-1.0, finite_high=3.0))
    assert np.isposinf(values).sum() == 1
    assert np.nanmax(values[np.isfinite(values)]) <= 3.0
    values = made(TensorInfo("float32", (100,), math.nan, math.nan))
    assert np.isnan(values).sum() == 1
    assert np.isfinite(values).sum() == 99


def test_whole_numbers_stay_in_their_range_and_meet_its_ends() -> None:
    values = made(TensorInfo("int64", (1000,), 3, 9))
    assert (int(values.min()), int(values.max())) == (3, 9)
    assert values.dtype.kind == "i"


def test_indices_that_must_differ_do() -> None:
    values = made(TensorInfo("int64", (6,), 0, 9), domain="unlike")
    assert len(set(values.tolist())) == 6


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_a_tensor_without_elements_needs_no_extremes(shape: tuple[int, ...]) -> None:
    assert made(TensorInfo("float32", shape)).shape == shape


def test_a_tensor_without_recorded_extremes_cannot_be_made() -> None:
    with pytest.raises(CannotGenerateError, match="Max and Min"):
        made(TensorInfo("float32", (3,)))

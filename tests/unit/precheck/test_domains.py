"""Arguments that must be more than in their range: labels, probabilities, what is only written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msprobe.precheck.arguments import Argument, ArgumentTensor, Plain
from msprobe.precheck.domains import Domain, domain_of
from msprobe.precheck.generate import generator_for, values_for
from msprobe.precheck.requests import ApiCall, ApiName

SCORES = ArgumentTensor("float32", (64, 10), -3.0, 3.0)


def call(name: str, *args: Argument, prefix: str = "Functional", **kwargs: Argument) -> ApiCall:
    return ApiCall(f"{prefix}.{name}.0", ApiName(prefix, name, "0"), args, kwargs, (), None)


def made(one: ApiCall, path: str, info: ArgumentTensor) -> np.ndarray[Any, Any]:
    return values_for(info, generator_for(one.key, path, 1), domain_of(one, path, info))


def labels(low: int, high: int, dtype: str = "int64") -> ArgumentTensor:
    return ArgumentTensor(dtype, (64,), low, high)


@pytest.mark.parametrize("api", ["cross_entropy", "nll_loss"])
def test_labels_name_classes_but_for_the_ignored_ones(api: str) -> None:
    info = labels(-100, 7)
    values = made(call(api, SCORES, info), "1", info)
    kept = values[values != -100]
    assert 0 < (values == -100).sum() < 64
    assert (kept.min(), kept.max()) == (0, 7)


def test_an_ignored_label_above_all_classes_says_nothing_of_the_highest() -> None:
    info = labels(0, 255)
    for given in ({"ignore_index": Plain("int", 255)}, {}):
        values = made(call("cross_entropy", SCORES, target=info, **given), "target", info)
        assert (values == 255).any() == bool(given)
        assert values[values != 255].max() <= 9


@pytest.mark.parametrize(("prefix", "before"), [("Functional", 2), ("MintFunctional", 1)])
def test_the_ignored_label_is_found_by_its_position(prefix: str, before: int) -> None:
    info = labels(-1, 7)
    args = [SCORES, info, *[Plain("NoneType", None)] * before, Plain("int", -1)]
    assert domain_of(call("cross_entropy", *args, prefix=prefix), "1", info).ignored == -1


def test_labels_that_are_all_ignored_stay_so() -> None:
    info = labels(-100, -100)
    assert set(made(call("cross_entropy", SCORES, info), "1", info).tolist()) == {-100}


def test_class_probabilities_sum_to_one_along_the_classes() -> None:
    info = ArgumentTensor("float32", (2, 5, 4), 0.0, 1.0, zeros=32)
    values = made(call("cross_entropy", ArgumentTensor("float32", (2, 5, 4), -1.0, 1.0), info), "1", info)
    assert values.min() >= 0
    np.testing.assert_allclose(values.sum(1), 1)


@pytest.mark.parametrize("api", ["binary_cross_entropy", "kl_div"])
def test_a_target_whose_extremes_are_hidden_is_a_probability(api: str) -> None:
    info = ArgumentTensor("float32", (100,), float("nan"), float("nan"), nan=2)
    values = made(call(api, info, info), "1", info)
    assert np.isnan(values).sum() == 2
    assert (np.nanmin(values), np.nanmax(values)) == (0, 1)


@pytest.mark.parametrize(("low", "high"), [(-9.0, -1.0), (0.0, 3.0)])
@pytest.mark.parametrize("api", ["kl_div", "cross_entropy"])
def test_a_target_that_is_recorded_as_no_probability_keeps_its_range(api: str, low: float, high: float) -> None:
    info = ArgumentTensor("float32", (20, 5), low, high)
    values = made(call(api, info, info), "1", info)
    assert (values.min(), values.max()) == (low, high)


@pytest.mark.parametrize(("api", "path"), [("add", "out"), ("sort", "out.1"), ("copy_", "0"), ("uniform_", "0")])
def test_what_a_call_only_writes_needs_no_values(api: str, path: str) -> None:
    assert domain_of(call(api), path, ArgumentTensor("float32", (3,))) == Domain("overwritten")
    assert domain_of(call("add"), "0", ArgumentTensor("float32", (3,))) == Domain()

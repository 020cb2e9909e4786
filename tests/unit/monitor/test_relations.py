"""What holds between the numbers of a step, and where it does not: faults from the first step on, and no kinks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from unit.monitor.runs import metrics, row

from msprobe.messages import arguments_of, code_of
from msprobe.monitor.locate import first_bad_step
from msprobe.monitor.relations import rounding_of_first_step
from msprobe.monitor.sketch import Sketch, Sketcher
from msprobe.monitor.weights import weight_relations

STEPS, TENSORS = 60, 10
Fault = Callable[[int, dict[str, Any]], None]


@functools.cache
def run(noise: int, fault: Fault | None = None, growth: float = 1e-7) -> list[Sketch]:
    """Unreduced and reduced gradients, and weights in front of and behind a step, of a training that wanders alike in
    all runs; ``growth``: how much rounding grows.
    """
    alike, own = np.random.default_rng(0), np.random.default_rng(noise)
    sketcher, found = Sketcher(), []
    weights = np.full(TENSORS, 10.0)
    for step in range(STEPS):
        size = growth * math.exp(step / 15)
        gradients = np.exp(0.2 * alike.standard_normal(TENSORS)) * (1 + size * own.standard_normal(TENSORS))
        values: dict[str, Any] = {"unreduced": gradients, "factor": np.full(TENSORS, 0.5), "rate": 1e-2, "decay": 0.0}
        values |= {"weights": weights.copy(), "behind": np.zeros(TENSORS)}
        if fault is not None:
            fault(step, values)
        reduced = values["unreduced"] * values["factor"]
        updated = values["weights"] - values["rate"] * reduced - values["decay"] * values["weights"]
        rows = {
            name: [row(f"w{at}", float(x), float(x) * (-1) ** at) for at, x in enumerate(numbers)]
            for name, numbers in (
                ("grad_unreduced", values["unreduced"]),
                ("grad_reduced", reduced),
                ("param_origin", values["weights"]),
                ("param_updated", updated),
            )
        }
        found.append(sketcher.sketch(metrics(step, rows, ("norm", "projection"))))  # type: ignore[arg-type]
        weights = updated + values["behind"]
    return found


def scaled(at: int, factor: float = 1.05) -> Fault:
    def fault(step: int, values: dict[str, Any]) -> None:
        if step >= at:
            values["factor"][4] *= factor

    return fault


def drift(step: int, values: dict[str, Any]) -> None:
    values["factor"][4] *= 1 + 0.005 * (step + 1)


def backward(at: int) -> Fault:
    def fault(step: int, values: dict[str, Any]) -> None:
        if step >= at:
            values["unreduced"][4] *= 1.05

    return fault


def start(step: int, values: dict[str, Any]) -> None:
    if step == 0:
        values["weights"][4] *= 1.001


def frozen(at: int) -> Fault:
    def fault(step: int, values: dict[str, Any]) -> None:
        if step >= at:
            values["behind"][4] = values["rate"] * values["unreduced"][4] * values["factor"][4]

    return fault


def rate(at: int) -> Fault:
    def fault(step: int, values: dict[str, Any]) -> None:
        if step >= at:
            values["rate"] *= 1.2

    return fault


def decay(at: int) -> Fault:
    def fault(step: int, values: dict[str, Any]) -> None:
        if step >= at:
            values["decay"] = 1e-4

    return fault


def stale(at: int) -> Fault:
    """A rank that goes on with the weights of the step before."""
    earlier: list[Any] = []

    def fault(step: int, values: dict[str, Any]) -> None:
        earlier.append(values["weights"].copy())
        if step >= at:
            values["weights"] = earlier[-2]

    return fault


def level(step: int, values: dict[str, Any]) -> None:
    values["unreduced"] *= 1 + 3e-5 * step


@pytest.mark.parametrize(
    ("fault", "at", "name", "arguments"),
    [
        (scaled(0), 0, "gradient-scaled-between", {"tensor": "w4", "factor": 1.05}),
        (scaled(0, 0.95), 0, "gradient-scaled-between", {"tensor": "w4", "factor": 0.95}),
        (scaled(33), 33, "gradient-scaled-between", {"tensor": "w4", "factor": 1.05}),
        (drift, 0, "gradient-scaled-between", {"tensor": "w4", "factor": 1.005}),
        (backward(0), 0, "norm-scaled-steadily", {"factor": 1.05}),
        (backward(33), 33, "norm-scaled-steadily", {"factor": 1.05}),
        (start, 0, "weights-differ-before-start", {"tensor": "w4"}),
        (frozen(0), 1, "weights-change-between", {"tensor": "w4", "step": 0}),
        (frozen(33), 34, "weights-change-between", {"tensor": "w4", "step": 33}),
        (rate(0), 0, "update-differs-of-equal-gradients", {}),
        (rate(33), 33, "update-differs-of-equal-gradients", {}),
        (decay(0), 0, "update-differs-of-equal-gradients", {}),
        (decay(33), 33, "update-differs-of-equal-gradients", {}),
        (stale(33), 33, "weights-change-between", {"step": 32}),
        (level, 1, "gradients-differ-generally", {}),
    ],
)
def test_a_fault_is_named_by_what_does_not_hold(fault: Fault, at: int, name: str, arguments: dict[str, Any]) -> None:
    found = first_bad_step(run(1), run(2, fault))
    assert found is not None
    assert found.step == at
    for reason in found.what:
        given = arguments_of(reason)
        if code_of(reason)[1] == name and all(
            given[key] == pytest.approx(value, rel=1e-3) if isinstance(value, float) else given[key] == value
            for key, value in arguments.items()
        ):
            return
    pytest.fail(str(found.what))


def kink(size: float, tensors: slice) -> Fault:
    def fault(step: int, values: dict[str, Any]) -> None:
        if step == 35:
            values["unreduced"][tensors] *= 1 + size

    return fault


@pytest.mark.parametrize("growth", [1e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("size", [1e-4, 2e-3, 1e-2, 0.1])
@pytest.mark.parametrize("tensors", [slice(3, 4), slice(0, 4)])
def test_one_step_in_which_some_tensors_jump_is_no_bad_step(size: float, tensors: slice, growth: float) -> None:
    assert first_bad_step(run(1, None, growth), run(2, kink(size, tensors), growth)) is None


@pytest.mark.parametrize("noise", range(2, 12))
@pytest.mark.parametrize("rounding", [0.0, 2.0**-7])
def test_healthy_runs_have_no_bad_step(noise: int, rounding: float) -> None:
    growth = 1e-3 if rounding else 1e-7
    assert first_bad_step(run(1, None, growth), run(noise, None, growth), None, rounding) is None


def nothing(size: float) -> Fault:
    """The gradient of a tensor is nothing but rounding: that of a bias in front of a norm."""

    def fault(step: int, values: dict[str, Any]) -> None:
        values["unreduced"][4] *= size

    return fault


@pytest.mark.parametrize("times", [0.5, 2.3, -1.0])
def test_a_gradient_that_is_nothing_but_rounding_says_nothing(times: float) -> None:
    assert first_bad_step(run(1, nothing(1e-6)), run(2, nothing(1e-6 * times))) is None


def uneven(tensors: int) -> Fault:
    """What the step does to some of the tensors is half as much again, from the sixth one on."""

    def fault(step: int, values: dict[str, Any]) -> None:
        if step > 4:
            values["rate"] = np.where(np.arange(TENSORS) < tensors, 1.5, 1.0) * values["rate"]

    return fault


@pytest.mark.parametrize(("tensors", "is_found"), [(2, False), (5, True)])
def test_in_half_types_single_tensors_do_not_say_that_a_step_does_otherwise(tensors: int, is_found: bool) -> None:
    pairs = list(zip(run(1, None, 1e-5), run(2, uneven(tensors), 1e-5), strict=True))
    assert bool(weight_relations(pairs, 2.0**-8)) is is_found
    assert weight_relations(pairs)


def few_decayed(at: int, size: float) -> Fault:
    """Two tensors, as norms, are decayed in one run alone."""

    def fault(step: int, values: dict[str, Any]) -> None:
        if step >= at:
            values["decay"] = np.where(np.arange(TENSORS) < 2, size, 0.0)

    return fault


@pytest.mark.parametrize("noise", [1e-5, 1e-3])
@pytest.mark.parametrize("size", [1e-4, -1e-4])
def test_a_decay_of_few_tensors_from_the_first_step_on_is_found_in_half_types(noise: float, size: float) -> None:
    found = first_bad_step(run(1, None, noise), run(2, few_decayed(0, size), noise), None, 2.0**-8)
    assert found is not None
    assert found.step == 0
    assert any("w0" in one for one in found.what), found.what
    assert not any("w2" in one or "w5" in one for one in found.what)


@pytest.mark.parametrize("noise", range(2, 8))
def test_steps_that_rounding_makes_larger_or_smaller_are_no_decay(noise: int) -> None:
    """An adaptive optimizer makes whole steps of elements that are nothing but rounding."""
    own = np.random.default_rng(noise)

    def whole_steps(step: int, values: dict[str, Any]) -> None:
        values["behind"] = -values["rate"] * 0.05 * own.standard_normal(TENSORS)

    pairs = list(zip(run(1, None, 1e-3), run(noise, whole_steps, 1e-3), strict=True))
    assert not [one for one in weight_relations(pairs, 2.0**-8) if code_of(one.message)[1] == "update-adds-steadily"]


def test_gradients_that_stay_apart_behind_a_kink_in_the_first_steps_are_of_that_kink() -> None:
    def kinked(step: int, values: dict[str, Any]) -> None:
        if step >= 4:
            values["unreduced"][: 10 if step > 4 else 6] *= 1 + 3e-3 * (-1) ** step

    assert first_bad_step(run(1), run(2, kinked)) is None


@pytest.mark.parametrize("noise", range(2, 6))
def test_half_types_that_no_file_names_are_seen_in_the_first_step(noise: int) -> None:
    assert first_bad_step(run(1, None, 2e-3), run(noise, None, 2e-3)) is None


@pytest.mark.parametrize("rounding", [0.0, 2.0**-8])
def test_what_is_nothing_but_rounding_may_jump(rounding: float) -> None:
    def noise(number: int) -> Fault:
        own = np.random.default_rng(number)
        return lambda step, values: values["unreduced"].__setitem__(4, 1e-6 * float(np.exp(own.standard_normal())))

    assert first_bad_step(run(1, noise(5)), run(2, noise(6)), None, rounding) is None


@pytest.mark.parametrize(("others", "is_found"), [((), True), ((3, 6, 9), False)])
def test_a_weight_that_both_runs_write_to_behind_steps_may_once_stay_in_one(
    others: tuple[int, ...], is_found: bool
) -> None:
    """An average moves by less than the last bits once; what one run alone writes to is a fact."""

    def written(*steps: int) -> Fault:
        return lambda step, values: values["behind"].__setitem__(4, 1e-3 if step in steps else 0.0)

    relations = weight_relations(list(zip(run(1, written(*others)), run(2, written(*others, 4)), strict=True)))
    names = [code_of(relation.message)[1] for relation in relations]
    assert ("weights-change-between" in names) is is_found


def test_gradients_that_are_the_same_say_nothing_of_the_rounding_of_the_others() -> None:
    """Behind the last call that a different device computes otherwise, gradients have the same bits."""

    def above(number: int) -> Fault:
        own = np.random.default_rng(number)
        return lambda step, values: values["unreduced"].__setitem__(
            slice(6), values["unreduced"][:6] * (1 + 4e-3 * own.standard_normal(6))
        )

    pairs = list(zip(run(1, above(3), 0.0), run(1, above(4), 0.0), strict=True))
    assert 1e-3 < rounding_of_first_step(pairs) < 1.6e-2

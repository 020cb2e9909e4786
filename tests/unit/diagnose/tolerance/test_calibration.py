from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import raising
from unit.diagnose.comparing import agrees, compare, first, told
from unit.diagnose.training import Plan, train

from msprobe.diagnose.tolerance.calibration import NO_CALIBRATION, Calibration, calibrate
from msprobe.diagnose.tolerance.units import BY_ROUNDING
from msprobe.errors import InvalidInputError
from msprobe.store.reader import open_dump


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize("site", ["blocks.1.linear", "blocks.1.tanh"])
def test_a_difference_that_a_healthy_run_has_too_is_excused(tmp_path: Path, site: str) -> None:
    healthy = train(tmp_path / "healthy", Plan(noise=1e-4))
    plan = Plan(results={site: off(1.0001)})
    first(compare(tmp_path / "modelled", plan))
    verdict = compare(tmp_path / "measured", plan, noise=healthy)
    assert agrees(verdict)
    assert verdict.summary["rounding_tolerance"] > 1e-5


@pytest.mark.parametrize("site", ["blocks.1.linear", "blocks.1.tanh"])
def test_a_larger_difference_is_not(tmp_path: Path, site: str) -> None:
    healthy = train(tmp_path / "healthy", Plan(noise=1e-4))
    verdict = compare(tmp_path, Plan(results={site: off(1.01)}), noise=healthy)
    api = "Functional.linear" if site.endswith("linear") else "Torch.tanh"
    assert told(verdict)[0] == ("computation", f"{api}.1.forward")
    first(verdict)


def test_other_arguments_are_never_excused(tmp_path: Path) -> None:
    healthy = train(tmp_path / "healthy", Plan(noise=1e-3))
    verdict = compare(tmp_path, Plan(arguments={"blocks.1.mul": {1: 0.25}}), noise=healthy)
    assert told(verdict) == [("argument", "Tensor.__mul__.1.forward")]


def test_a_healthy_run_of_other_steps_measures_nothing(tmp_path: Path) -> None:
    healthy = train(tmp_path / "healthy", Plan(noise=1e-3, first_step=4))
    with raising(InvalidInputError, "noise-without-common-step"):
        compare(tmp_path, Plan(results={"blocks.1.linear": off(1.0001)}), noise=healthy)


def test_what_is_measured(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", Plan(noise=1e-3)), train(tmp_path / "other")
    measured = calibrate(open_dump(one).part(), open_dump(other).part())
    assert "Functional.embedding.0.forward" not in measured.by_entry
    assert 1e-4 < measured.by_entry["Functional.linear.0.forward"] < 1e-2
    assert (
        measured.allowed("Functional.linear.0.forward")
        == BY_ROUNDING * measured.by_entry["Functional.linear.0.forward"]
    )
    assert 1e-6 < measured.reach < 1e-2


def test_equal_runs_measure_nothing(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one"), train(tmp_path / "other")
    assert calibrate(open_dump(one).part(), open_dump(other).part()) == Calibration({}, 0.0) == NO_CALIBRATION
    assert NO_CALIBRATION.allowed("Functional.linear.0.forward") == 0.0


@pytest.mark.parametrize(("dtype", "mistake"), [("float32", 1.000003), ("bfloat16", 1.05)])
def test_a_mistake_within_the_model_is_told_where_a_healthy_run_was_nearer(
    tmp_path: Path, dtype: str, mistake: float
) -> None:
    """The healthy run is apart behind the call, and much less than the model would allow there."""
    plain = Plan(dtype=dtype)
    healthy = train(tmp_path / "healthy", Plan(dtype=dtype, results={"loss": off(1.0 + 1e-6)}))
    plan = Plan(dtype=dtype, results={"blocks.1.linear": off(mistake)})
    assert compare(tmp_path / "modelled", plan, plain).status in ("agree", "harmless")
    verdict = compare(tmp_path / "measured", plan, plain, noise=healthy)
    assert (verdict.status, verdict.findings[0].entry) == ("diverged", "Functional.linear.1.forward")


def test_what_a_healthy_run_differs_by_is_not_told_of_another_one(tmp_path: Path) -> None:
    healthy = train(tmp_path / "healthy", Plan(noise=1e-6))
    plan = Plan(noise=2e-6)
    assert agrees(compare(tmp_path, plan, noise=healthy))


def test_a_limit_comes_down_to_sixteen_times_what_was_measured_and_a_few_units() -> None:
    unit = 2.0**-23
    measured = Calibration({"a": 1e-5}, 1e-4, {"a": 1e-6}, frozenset("ab"))
    assert measured.limit("a", 1e-2, 0.0, unit) == pytest.approx(16e-5)
    assert measured.limit("a", 1e-5, 0.0, unit) == pytest.approx(4e-5)  # more than the model allows
    assert measured.limit("a", 1e-2, 1e-3, unit) == 1e-2  # more came in than was measured
    assert measured.limit("b", 1e-2, 0.0, unit) == 4 * unit
    assert measured.limit("c", 1e-2, 0.0, unit) == 1e-2
    assert measured.limit_of_reach(1e-2, unit) == pytest.approx(16e-4)
    assert NO_CALIBRATION.limit("a", 1e-2, 0.0, unit) == NO_CALIBRATION.limit_of_reach(1e-2, unit) == 1e-2

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.training import Plan, train

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.effect.reach import Reach, reach_of
from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.effect import later, step_limit
from msprobe.diagnose.tolerance.judge import Judged, judge_all
from msprobe.store.reader import open_dump


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


def reach(
    tmp_path: Path, candidate: Plan, reference: Plan | None = None, vanishing: frozenset[str] = frozenset()
) -> tuple[Reach, list[Judged]]:
    dumps = [open_dump(train(tmp_path / name, plan)) for name, plan in (("a", candidate), ("b", reference or Plan()))]
    parts = [dump.part() for dump in dumps]
    pairing, comparer = pair(Timeline(parts[0]), Timeline(parts[1])), Comparer(parts[0], parts[1])
    judged = judge_all(pairing, comparer, Producers(pairing.candidate))
    return reach_of(pairing, judged, comparer, Reach(vanishing=vanishing)), list(judged.values())


def test_equal_runs_have_none(tmp_path: Path) -> None:
    assert reach(tmp_path, Plan())[0].size == 0.0


@pytest.mark.parametrize(
    ("plan", "low", "high"),
    [
        (Plan(parameter_gradients={"head.bias": off(1.1)}), 0.08, 0.1),
        (Plan(at_optimizer={"head.bias": off(1.1)}), 0.08, 0.1),
        (Plan(results={"loss": off(1.1)}), 0.08, 0.1),
        (Plan(weights={"head.bias": off(1.1)}), math.inf, math.inf),
        (Plan(updated={"head.bias": off(1.1)}), math.inf, math.inf),
        (Plan(parameter_gradients={"head.bias": None}), math.inf, math.inf),
        (Plan(without=frozenset(["head.bias"])), math.inf, math.inf),
        (Plan(results={"loss": off(math.nan)}), math.inf, math.inf),
        (Plan(noise=2e-7), 1e-9, 5e-6),
        # What stays within the forward pass, or is a setting, reaches nothing in this step.
        (Plan(arguments={"blocks.1.dropout": {2: False}}), 0.0, 0.0),
        (Plan(settings={"weight_decay": 0.1}), 0.0, 0.0),
    ],
    ids=range(11),
)
def test_what_counts(tmp_path: Path, plan: Plan, low: float, high: float) -> None:
    assert low <= reach(tmp_path, plan)[0].size <= high


def test_a_gradient_next_to_nothing_counts_for_less(tmp_path: Path) -> None:
    small = {"head.bias": lambda array: array * np.float32(1e-6)}
    other = {"head.bias": lambda array: array * np.float32(2e-6)}
    found, _ = reach(tmp_path, Plan(parameter_gradients=small), Plan(parameter_gradients=other))
    assert 0 < found.size < 1e-2
    assert found.vanishing == {"head.bias"}


def test_the_weight_that_follows_from_such_a_gradient_tells_nothing(tmp_path: Path) -> None:
    plan = Plan(weights={"head.bias": off(1.1)}, level="L0")
    told = reach(tmp_path / "x", plan, Plan(level="L0"))[0]
    unreported = reach(tmp_path / "y", plan, Plan(level="L0"), frozenset(["head.bias"]))[0]
    assert told.size == math.inf
    assert unreported.size < math.inf


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", 256 * 2.0**-23), ("float16", 64 * 2.0**-10), ("bfloat16", 0.125)]
)
def test_what_rounding_may_reach_depends_on_the_type_of_the_run(tmp_path: Path, dtype: str, expected: float) -> None:
    _, judged = reach(tmp_path, Plan(dtype=dtype))
    assert step_limit(judged) == pytest.approx(expected)


def test_what_rounding_may_reach_in_bfloat16_grows_with_the_calls_that_round(tmp_path: Path) -> None:
    _, judged = reach(tmp_path, Plan(dtype="bfloat16", blocks=60), Plan(blocks=60))
    assert 0.2 < step_limit(judged) < 0.3
    assert later(step_limit(judged)) == 0.3


def test_nothing_at_all_allows_what_float32_does() -> None:
    assert step_limit([]) == 256 * 2.0**-23

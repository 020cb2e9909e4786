from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import compare, first, told
from unit.diagnose.dumps import drawn
from unit.diagnose.training import Plan

from msprobe.diagnose import compare_runs
from msprobe.diagnose.effect.leftover import Left, holds_older

STEP = "Optimizer.SGD.0.forward"
NAMES = "abcdefgh"


def left(name: str, factor: float = 1.0) -> dict[str, Left]:
    return {one: Left(float(drawn(f"{name} {one}", 1)[0]) * factor, 1e-8) for one in NAMES}


def together(one: dict[str, Left], other: dict[str, Left], times: float = 1.0) -> dict[str, Left]:
    return {name: Left(times * (one[name].mean + other[name].mean), 1e-8) for name in one}


class TestMeans:
    now, before = left("now"), left("before")

    def test_of_a_sum_are_the_sum_of_the_means(self) -> None:
        assert holds_older(together(self.now, self.before), self.now, self.before) == len(NAMES)

    @pytest.mark.parametrize("times", [0.1, 0.5, 2.0])
    def test_may_have_the_factor_of_clipping(self, times: float) -> None:
        assert holds_older(together(self.now, self.before, times), self.now, self.before) == len(NAMES)

    @pytest.mark.parametrize("now", [left("now"), left("now", 3.0), left("something else"), {}])
    def test_of_anything_else_are_not(self, now: dict[str, Left]) -> None:
        assert holds_older(now, self.now, self.before) == 0

    def test_that_are_no_more_than_rounding_tell_nothing(self) -> None:
        vague = {name: Left(one.mean, abs(one.mean)) for name, one in together(self.now, self.before).items()}
        assert holds_older(vague, self.now, self.before) == 0

    def test_of_one_parameter_may_be_a_factor_and_prove_nothing(self) -> None:
        now, before = {"a": Left(2.0, 1e-8)}, {"a": Left(0.7, 1e-8)}
        assert holds_older({"a": Left(2.7, 1e-8)}, now, before) == 0

    def test_of_two_parameters_prove_it_where_no_factor_comes_in(self) -> None:
        now, before = {"a": Left(2.0, 1e-8), "b": Left(1.0, 1e-8)}, {"a": Left(0.7, 1e-8), "b": Left(-2.0, 1e-8)}
        assert holds_older(together(now, before), now, before) == 2
        assert holds_older(together(now, before, 0.5), now, before) == 0

    def test_of_a_step_whose_gradients_were_the_same_are_a_factor_and_no_proof(self) -> None:
        assert holds_older(left("now", 2.0), self.now, self.now) == 0


class Accumulating:
    """Adds to each gradient at the optimizer what was there a step before."""

    def __init__(self) -> None:
        self.before: dict[str, np.ndarray] = {}

    def of(self, name: str) -> Any:
        def add(gradient: np.ndarray) -> np.ndarray:
            self.before[name] = gradient + self.before.get(name, np.float32(0))
            return self.before[name]

        return add


def accumulating(**more: Any) -> Plan:
    kept = Accumulating()
    names = ["embedding.weight", "head.weight", "head.bias"]
    names += [f"blocks.{block}.fc.{name}" for block in range(2) for name in ("weight", "bias")]
    return Plan(at_optimizer={name: kept.of(name) for name in names}, **more)


@pytest.mark.parametrize("more", [{}, {"digests": False}, {"level": "L0"}, {"level": "L1"}])
@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_gradients_that_were_not_cleared_are_told_as_such(tmp_path: Path, more: dict[str, Any], side: str) -> None:
    plans = [accumulating(steps=2, **more), Plan(steps=2, **more)]
    verdict = compare(tmp_path, *(plans if side == "candidate" else plans[::-1]))
    found = first(verdict)
    assert (found.step, found.kind, found.entry, found.evidence["cause"]) == (
        *(1, "parameter_gradient", STEP, "not_cleared"),
    )
    assert (found.code, found.arguments["side"]) == ("D409", f"the {side}")
    assert len(told(verdict)) == 1


def test_without_the_step_before_it_is_a_guess(tmp_path: Path) -> None:
    assert first(compare(tmp_path, accumulating(steps=2), Plan(steps=2))).evidence["cause"] == "not_cleared"
    second = compare_runs(tmp_path / "candidate" / "step1", tmp_path / "reference" / "step1").findings[0]
    assert (second.kind, second.evidence["cause"]) == ("gradient", "on_its_way")
    assert second.code == "D510"

"""A mistake is named although everything is apart by rounding: other threads, kernels, precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value, rounded
from unit.diagnose.effect.test_leftover import accumulating
from unit.diagnose.training import Plan

NOISE = 2e-7
NAMES = ["embedding.weight", "head.weight", "head.bias"]
NAMES += [f"blocks.{block}.fc.{name}" for block in range(2) for name in ("weight", "bias")]
#: Weights that both types hold.
SHORT: dict[str, Any] = {"weights": {name: lambda array: rounded(array, "bfloat16") for name in NAMES}}


def low(**more: Any) -> dict[str, Any]:
    """Mixed precision, as far as it matters here: calls compute in bfloat16, gradients come as float32."""
    return {**SHORT, "dtype": "bfloat16", **more}


def test_noise_alone_is_none(tmp_path: Path) -> None:
    assert agrees(compare(tmp_path, Plan(noise=NOISE, steps=2), Plan(steps=2)))


@pytest.mark.parametrize("digests", [True, False])
def test_a_call_that_is_left_out_behind_noise(tmp_path: Path, digests: bool) -> None:
    more = {"digests": digests, "steps": 2}
    verdict = compare(tmp_path, Plan(noise=NOISE, left_out=frozenset(["blocks.1.add"]), **more), Plan(**more))
    found = first(verdict)
    assert (found.kind, found.entry) == ("structure", "Tensor.__add__.1.forward"), told(verdict)


def test_a_step_apart_by_rounding_does_not_end_the_search(tmp_path: Path) -> None:
    verdict = compare(tmp_path, accumulating(noise=NOISE, steps=2), Plan(steps=2))
    found = first(verdict)
    assert (found.step, found.evidence.get("cause")) == (1, "not_cleared"), told(verdict)


def test_gradients_that_were_not_cleared_in_low_precision(tmp_path: Path) -> None:
    verdict = compare(tmp_path, accumulating(**low(steps=2)), Plan(**SHORT, steps=2))
    found = first(verdict)
    assert (found.step, found.evidence.get("cause")) == (1, "not_cleared"), told(verdict)


def test_low_precision_alone_agrees(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(**low(steps=2)), Plan(**SHORT, steps=2))
    assert verdict.status in ("agree", "harmless"), told(verdict)
    assert verdict.summary["largest_effect"] <= verdict.summary["rounding_tolerance"]


def test_a_difference_that_low_precision_hides_in_no_call_is_told_all_the_same(tmp_path: Path) -> None:
    # Each call adds no more than rounding may do to it.
    sites = [f"blocks.{block}.{site}" for block in range(4) for site in ("mul", "tanh", "add")]
    grow = {site: lambda array: array * np.float32(1.07) for site in sites}
    verdict = compare(tmp_path, Plan(**low(results=grow, blocks=4)), Plan(**SHORT, blocks=4))
    found = first(verdict)
    assert found.kind == "computation"
    assert found.evidence["difference"] > found.evidence["explained"] == verdict.summary["rounding_tolerance"]
    assert (found.code, found.arguments["call"]) == ("D301", "Torch.tanh.0.forward")


def test_weights_that_rounding_leaves_are_not_told_beside_the_mistake(tmp_path: Path) -> None:
    verdict = compare(tmp_path, accumulating(noise=NOISE, steps=2, digests=False), Plan(steps=2, digests=False))
    assert first(verdict).evidence.get("cause") == "not_cleared"
    assert "weights" not in {finding.kind for finding in verdict.findings}, told(verdict)


def test_a_mistake_of_the_next_step_does_not_make_this_one_less_harmless(tmp_path: Path) -> None:
    """A harmless call of one side, and gradients that were not cleared a step later, whose weights agree."""

    def idle(rec: Recording, value: Value) -> Value:
        rec.call("Torch.mul", [value, 1.0], made := value.of(value.array * np.float32(1.0000002)))
        return made

    plan = accumulating(before={"blocks.1.tanh": idle}, steps=2)
    verdict = compare(tmp_path, plan, Plan(steps=2))
    assert verdict.status == "diverged"
    assert [finding.step for finding in verdict.findings if not finding.harmless][:1] == [1], told(verdict)


@pytest.mark.parametrize("api", ["VF.lstm", "Functional.linear"])
def test_recurrent_calls_compute_in_the_type_of_the_run_whatever_they_give(tmp_path: Path, api: str) -> None:
    """Autocast lets them compute in half types inside; of other calls the types tell."""

    def single(data: dict[str, Any]) -> None:
        record = data[f"{api}.0.forward"]
        for leaf in (*record["input_args"], *record["output"]):
            leaf["dtype"] = "torch.float32"

    more: dict[str, Any] = {"renamed": {"blocks.0.linear": api}, "edit": edited(single), "digests": False}
    plans = Plan(**low(results={"blocks.0.linear": off(1.003)}, **more)), Plan(**SHORT, **more)
    verdict = compare(tmp_path, *plans)
    assert verdict.status == ("agree" if api == "VF.lstm" else "diverged"), told(verdict)


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)

"""What differs first counts, however little of it is seen far behind it in a type of few digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import pieces_of
from support.row_by_row import for_each
from unit.diagnose.comparing import agrees, compare, first, told
from unit.diagnose.dumps import Recording, Value, rounded
from unit.diagnose.test_mistakes_under_noise import low
from unit.diagnose.training import Plan

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.origin.beginning import _is_meant

PLAIN = low(digests=False)


def slightly(array: np.ndarray) -> np.ndarray:
    """A result that other kernels give: the last bit of some elements is another one."""
    other = array.copy()
    other.flat[::3] *= np.float32(1 + 2.0**-8)
    return rounded(other, "bfloat16")


def test_another_factor_is_not_harmless_where_all_before_agrees(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(arguments={"blocks.1.mul": {1: 0.51}}, **PLAIN), Plan(**PLAIN))
    found = first(verdict)
    assert (found.kind, found.entry) == ("argument", "Tensor.__mul__.1.forward")


def test_another_factor_behind_rounding_is_judged_by_what_comes_of_it(tmp_path: Path) -> None:
    noisy = Plan(arguments={"blocks.1.mul": {1: 0.51}}, results={"blocks.0.linear": slightly}, **PLAIN)
    assert compare(tmp_path, noisy, Plan(**PLAIN)).status != "diverged"


def test_a_factor_that_was_calculated_otherwise_is_no_cause(tmp_path: Path) -> None:
    plan = Plan(arguments={"blocks.1.mul": {1: 0.5 * (1 + 2.0**-22)}}, results={"blocks.1.mul": slightly}, **PLAIN)
    assert compare(tmp_path, plan, Plan(**PLAIN)).status != "diverged"


@for_each(
    ("left", "right", "meant"),
    [
        (1e-5, 1e-6, True),
        (1e-5, None, True),
        ("tanh", "none", True),
        (2, 1, True),
        (True, False, False),
        (None, True, False),
        ({"type": "torch.Tensor", "dtype": "torch.bool", "shape": [4]}, None, False),
    ],
)
def test_numbers_and_words_say_what_is_computed(left: Any, right: Any, meant: bool) -> None:
    assert _is_meant(Difference("input.1", "argument", left, right)) is meant


def _through(rounding: Any) -> Any:
    """Two calls of one side alone before another, which change their input by ``rounding``."""

    def before(rec: Recording, x: Value) -> Value:
        result = x.of(rounding(x.array))
        rec.call("Tensor.exp", [x], result)
        return result

    return before


@pytest.mark.parametrize(
    ("change", "status"), [(slightly, "harmless"), (lambda array: rounded(array * 1.2 + 0.1, "bfloat16"), "diverged")]
)
def test_a_call_of_one_side_counts_if_what_it_makes_is_no_rounding(tmp_path: Path, change: Any, status: str) -> None:
    plan = Plan(before={"blocks.1.tanh": _through(change)}, **PLAIN)
    verdict = compare(tmp_path, plan, Plan(**PLAIN))
    assert verdict.status == status or (status == "harmless" and agrees(verdict)), told(verdict)


def test_an_effect_that_no_call_explains_is_led_back_to_the_first_difference(tmp_path: Path) -> None:
    sites = [f"blocks.{block}.{site}" for block in range(4) for site in ("mul", "tanh", "add")]
    grow = {site: lambda array: rounded(array * np.float32(1.04), "bfloat16") for site in sites}
    found = first(compare(tmp_path, Plan(results=grow, blocks=4, **PLAIN), Plan(blocks=4, **PLAIN)))
    assert found.entry == "Torch.tanh.0.forward"
    assert found.code == "D307"
    assert "first-difference" in pieces_of(found.message)
    assert found.evidence["effect"] > found.evidence["effect_explained"]

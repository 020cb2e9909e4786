"""Calls that one side makes in place of others, as with a fused kernel, and what comes back through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, compare, first, told
from unit.diagnose.training import Plan

FUSED = {"blocks.0.tanh": "Functional.fused_tanh"}


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize("digests", [False, True])
def test_a_replaced_call_that_gives_the_same_is_no_difference(tmp_path: Path, digests: bool) -> None:
    assert agrees(compare(tmp_path, Plan(renamed=FUSED, digests=digests), Plan(digests=digests)))


@pytest.mark.parametrize("more", [{}, {"digests": False}, {"level": "L1"}], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_a_mistake_behind_it_goes_first(tmp_path: Path, more: dict[str, Any], turned: bool) -> None:
    """Gradients that differ come back through the replaced call, too: it only hands them on."""
    plans = [Plan(renamed=FUSED, results={"blocks.1.tanh": off(1.01)}, **more), Plan(**more)]
    verdict = compare(tmp_path, *(plans[::-1] if turned else plans))
    assert first(verdict).kind == "computation"
    assert not any("fused" in (entry or "") for _, entry in told(verdict))


@pytest.mark.parametrize("later", [{}, {"blocks.1.tanh": off(1 + 1e-5)}], ids=["alone", "with a small one behind it"])
def test_its_own_backward_pass_is_judged_still(tmp_path: Path, later: dict[str, Any]) -> None:
    plan = Plan(renamed=FUSED, results={"blocks.0.tanh.backward": off(1.5), **later})
    found = first(compare(tmp_path, plan))
    assert (found.kind, found.entry) == ("structure", "Functional.fused_tanh.0.forward")

"""A module that only one side trains: the optimizer has it, its gradients do not come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.training import Plan

HEAD = ("head.weight", "head.bias")


def _freeze(data: dict[str, Any]) -> None:
    """As the recorder writes a module whose parameters do not require grad."""
    del data["Module.head.Linear.parameters_grad"]
    data["Functional.linear.2.backward"]["input_grads"].pop("input.1")
    data["Functional.linear.2.backward"]["input_grads"].pop("input.2")
    parameters = data["Module.head.Linear.forward.0"]["parameters"].values()
    for leaf in (*data["Functional.linear.2.forward"]["input_args"][1:], *parameters):
        leaf["requires_grad"] = False


FROZEN: dict[str, Any] = {"edit": edited(_freeze)}
WITHOUT_GRADIENT = Plan(**FROZEN, at_optimizer=dict.fromkeys(HEAD))


def test_both_leave_it_as_it_is(tmp_path: Path) -> None:
    assert agrees(compare(tmp_path, WITHOUT_GRADIENT, WITHOUT_GRADIENT))


@pytest.mark.parametrize("turned", [False, True])
def test_one_side_trains_it(tmp_path: Path, turned: bool) -> None:
    plans = [WITHOUT_GRADIENT, Plan()]
    found = first(compare(tmp_path, *(plans[::-1] if turned else plans)))
    assert (found.kind, found.module) == ("missing_gradient", "head")
    assert sorted(found.evidence["parameters"]) == sorted(HEAD)


@pytest.mark.parametrize("turned", [False, True])
def test_one_side_leaves_it_out_of_the_optimizer(tmp_path: Path, turned: bool) -> None:
    plans = [Plan(**FROZEN, without=frozenset(HEAD)), Plan()]
    verdict = compare(tmp_path, *(plans[::-1] if turned else plans))
    assert (first(verdict).kind, first(verdict).module) == ("missing_gradient", "head")
    assert ("optimizer", "Optimizer.SGD.0.forward") in told(verdict)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.training import Plan

from msprobe.messages import said


@pytest.mark.parametrize("more", [{}, {"digests": False}, {"values": True}, {"level": "L1"}, {"ours": False}])
def test_another_argument(tmp_path: Path, more: dict[str, Any]) -> None:
    verdict = compare(tmp_path, Plan(arguments={"blocks.1.mul": {1: 0.25}}, **more), Plan(**more))
    found = first(verdict)
    assert told(verdict) == [("argument", "Tensor.__mul__.1.forward")]
    assert found.message == said("argument-differs", "Tensor.__mul__.1.forward", "input.1", "0.25", "0.5")
    assert found.where == "Tensor.__mul__.1.forward, input.1"
    assert found.evidence["arguments"] == [{"slot": "input.1", "candidate": "0.25", "reference": "0.5"}]


def test_that_only_one_side_gives_is_not_given_on_the_other(tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["Functional.mse_loss.0.forward"]["input_kwargs"]["reduction"] = {"type": "str", "value": "sum"}

    plan = Plan(edit=edited(change), results={"loss": lambda array: array * 3})
    found = first(compare(tmp_path, plan))
    assert found.message == said(
        "argument-differs", "Functional.mse_loss.0.forward", "input.reduction", '"sum"', "not given"
    )
    given = {"slot": "input.reduction", "candidate": '"sum"', "reference": "not given"}
    assert found.evidence["arguments"] == [given]


def test_comes_before_the_results_that_follow_from_it(tmp_path: Path) -> None:
    plan = Plan(arguments={"blocks.0.mul": {1: 0.5001}}, results={"blocks.1.tanh": lambda array: array * 2})
    verdict = compare(tmp_path, plan)
    assert told(verdict)[:2] == [
        ("argument", "Tensor.__mul__.0.forward"),
        ("computation", "Torch.tanh.1.forward"),
    ]


def test_that_changes_nothing_is_harmless(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(arguments={"blocks.1.dropout": {2: False}}))
    found = first(verdict, "harmless")
    assert told(verdict) == [("argument", "Functional.dropout.1.forward")]
    assert found.message == said(
        "argument-differs", "Functional.dropout.1.forward", "input.2 (training)", "False", "True"
    )
    assert verdict.exit_code == 0


def test_of_a_call_that_only_moves_is_not_worth_telling(tmp_path: Path) -> None:
    def copy(stride: int) -> Any:
        def before(rec: Recording, x: Value) -> Value:
            rec.call("Tensor.view", [x, stride], x)
            return x

        return before

    plans = [Plan(before={"blocks.1.tanh": copy(stride)}) for stride in (-1, 8)]
    assert agrees(compare(tmp_path, *plans))


@pytest.mark.parametrize("value", [0.5 * (1 + 1e-12), {"type": "float", "value": 0.5}])
def test_a_number_that_was_calculated_in_another_order_is_the_same(tmp_path: Path, value: Any) -> None:
    def change(data: dict[str, Any]) -> None:
        leaf = value if isinstance(value, dict) else {"type": "float", "value": value}
        data["Tensor.__mul__.1.forward"]["input_args"][1] = leaf

    assert agrees(compare(tmp_path, Plan(edit=edited(change))))


def test_a_number_here_and_a_tensor_of_it_there(tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [], "requires_grad": False}
        data["Tensor.__mul__.1.forward"]["input_args"][1] = tensor | dict.fromkeys(("Max", "Min", "Mean", "Norm"), 0.5)

    assert agrees(compare(tmp_path, Plan(edit=edited(change))))


def test_by_keyword_here_and_by_position_there(tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        record = data["Functional.mse_loss.0.forward"]
        record["input_kwargs"]["target"] = record["input_args"].pop(1)

    assert agrees(compare(tmp_path, Plan(edit=edited(change))))


def test_of_the_forward_call_explains_its_gradient(tmp_path: Path) -> None:
    plan = Plan(arguments={"blocks.1.mul": {1: 0.25}})
    verdict = compare(tmp_path, plan)
    assert "gradient" not in dict(told(verdict))

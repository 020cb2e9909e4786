"""A loss that both frameworks compute by calls of their own is compared by what it comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.hand_made import write_part

from msprobe.diagnose.runs import compare_runs

Record = dict[str, Any]


def tensor(framework: str, value: float, *shape: int) -> Record:
    kind, dtype = ("mindspore.Tensor", "Float32") if framework == "mindspore" else ("torch.Tensor", "torch.float32")
    count = 1
    for one in shape:
        count *= one
    numbers = {"Max": value, "Min": value, "Mean": value, "Norm": value * count**0.5}
    return {"type": kind, "dtype": dtype, "shape": list(shape), **numbers}


def training(framework: str, names: tuple[str, ...], loss: float, gradient: float) -> Record:
    """A tanh, the calls that make a loss of it, and the way back."""
    x, h = tensor(framework, 0.5, 3, 4), tensor(framework, 0.46, 3, 4)
    found: Record = {"Functional.tanh.0.forward": {"input_args": [x], "input_kwargs": {}, "output": [h]}}
    last = h
    for number, name in enumerate(names):
        end = number == len(names) - 1
        result = tensor(framework, loss, *([] if end else [3, 4]))
        found[f"{name}.0.forward"] = {"input_args": [last], "input_kwargs": {}, "output": [result]}
        last = result
    back = tensor(framework, gradient, 3, 4)
    for name in reversed(names):
        found[f"{name}.0.backward"] = {"input": [tensor(framework, 1.0)], "output": [back]}
    found["Functional.tanh.0.backward"] = {"input": [back], "output": [tensor(framework, 0.8 * gradient, 3, 4)]}
    return found


@pytest.mark.parametrize(("loss", "status"), [(0.2, "agree"), (2.4, "diverged")])
def test_the_calls_that_make_another_loss_are_the_headline(tmp_path: Path, loss: float, status: str) -> None:
    sides = {
        "mindspore": training("mindspore", ("Functional.square", "Functional.sum"), loss, loss / 2),
        "pytorch": training("pytorch", ("Functional.mse_loss",), 0.2, 0.1),
    }
    for framework, data in sides.items():
        write_part(tmp_path / framework / "step0" / "rank", data, framework=framework, construct={})
    verdict = compare_runs(tmp_path / "mindspore", tmp_path / "pytorch")
    assert verdict.status == status, [one.message for one in verdict.findings]
    if status == "diverged":
        first = verdict.findings[0]
        assert (first.kind, first.entry) == ("structure", "Functional.sum.0.forward")
        assert "Functional.mse_loss.0.forward" in first.message


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("gradient", "status"), [(0.1, "agree"), (1.2, "diverged")])
def test_a_loss_whose_last_call_was_not_recorded_is_named_by_what_comes_back(
    tmp_path: Path, gradient: float, status: str, swapped: bool
) -> None:
    made = training("mindspore", ("Tensor.__sub__", "Functional.square", "Functional.sum"), 0.2, gradient)
    for direction in ("forward", "backward"):  # what sums it up is a call that no recorder sees
        del made[f"Functional.sum.0.{direction}"]
    back = tensor("mindspore", gradient, 3, 4)
    made |= {
        f"{name}.0.backward": {"input": [back], "output": [back]} for name in ("Functional.square", "Tensor.__sub__")
    }
    sides = {"mindspore": made, "pytorch": training("pytorch", ("Functional.mse_loss",), 0.2, 0.1)}
    for framework, data in sides.items():
        write_part(tmp_path / framework / "step0" / "rank", data, framework=framework, construct={})
    order = ("pytorch", "mindspore") if swapped else ("mindspore", "pytorch")
    verdict = compare_runs(*(tmp_path / one for one in order))
    assert verdict.status == status, [one.message for one in verdict.findings]
    if status == "diverged":
        first = verdict.findings[0]
        lone = {"Tensor.__sub__.0.forward", "Functional.square.0.forward"}, {"Functional.mse_loss.0.forward"}
        assert first.kind == "structure"
        assert first.entry in lone[swapped]
        named = set(first.evidence["candidate_alone"]), set(first.evidence["reference_alone"])
        assert named == (lone if not swapped else lone[::-1]), first.evidence

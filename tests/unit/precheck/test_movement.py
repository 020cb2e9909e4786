"""How far rounding of the arguments reaches, and which results have elements of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from msprobe.precheck import standalone
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import run_call
from msprobe.precheck.torch.reference import Movement, disturbed


def moved(function: Callable[..., Any], *args: Any) -> Movement:
    inputs = Inputs(list(args), {}, [torch.ones(4, 5, dtype=torch.float64)], ["0"])
    return disturbed(function, inputs, run_call(function, inputs, True), 2.0**-23, "Call.0", 1)


@pytest.mark.parametrize(
    ("function", "elementwise"),
    [
        (torch.exp, True),
        (lambda x: x * torch.arange(2.0, 7.0, dtype=torch.float64), True),
        (lambda x: torch.softmax(x, -1), False),
        (lambda x: x @ torch.rand(5, 5, dtype=torch.float64), False),
        (lambda x: x.flip(0), False),
    ],
)
def test_elementwise_calls_are_known_by_what_stays(function: Callable[..., Any], elementwise: bool) -> None:
    found = moved(function, torch.rand(4, 5, dtype=torch.float64) + 0.5)
    assert ("output.0" in found.elementwise) is elementwise


def test_a_script_judges_an_elementwise_call_in_a_half_type_as_run_ut_does() -> None:
    bench = torch.ones(4, 5, dtype=torch.float64)
    device = bench.bfloat16()
    device[1, 2] += 17 * 2.0**-7
    touched = torch.zeros(4, 5)
    touched[1, 2] = 1
    elsewhere = torch.zeros(4, 5, dtype=torch.bool)
    elsewhere[0, 0] = True

    assert standalone._moves_where(touched > 0, [touched], None) is True
    assert standalone._moves_where(elsewhere, [touched], None) is False
    assert standalone._moves_where(touched > 0, [torch.zeros(3)], None) is False
    assert standalone.judge(device, bench, None, True)[0] == "error"
    assert standalone.judge(device, bench, None, False)[0] == "pass"


def test_labels_are_not_disturbed() -> None:
    labels = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    x = torch.rand(4, 5, dtype=torch.float64) + 2
    found = moved(lambda x: torch.where(labels == 1, x, 0.5 * x), x)
    assert float(found.moved["output.0"].max()) < 1e-6
    inputs = Inputs([x, labels], {}, None, [])

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.hinge_embedding_loss(x, labels, reduction="none")

    by_label = disturbed(loss, inputs, run_call(loss, inputs, False), 2.0**-23, "Call.0", 1)
    assert float(by_label.moved["output.0"].max()) < 1e-6

"""How far rounding of the arguments reaches, and which results have elements of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.row_by_row import for_each

from msprobe.messages import code_of
from msprobe.precheck.scripts import call
from msprobe.precheck.side.places import units_taken_over
from msprobe.precheck.side.strict import judge_floats
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import run_call
from msprobe.precheck.torch.reference import MeasuredMovement, disturbed


def moved(function: Callable[..., Any], *args: Any) -> MeasuredMovement:
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
    assert call.judge(device, bench, None, True)[0] == "error"
    assert call.judge(device, bench, None, False)[0] == "pass"


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


@for_each(
    ("function", "taken"),
    [
        (lambda x: x.t().reshape(4, 5), True),
        (lambda x: torch.relu(x - 0.0), True),
        (lambda x: -x.flip(0), True),
        (lambda x: torch.where(x > 0.2, x, 7.0), True),
        (lambda x: torch.cummax(x, 0)[0], True),
        (lambda x: x.expand(3, 4, 5)[1], True),
        (torch.tanh, False),
        (lambda x: x * 2.0, False),
        (lambda x: x.cumsum(0), False),
        (lambda x: torch.sort(x)[0] + x, False),
        (lambda x: torch.full_like(x, 3.0), False),
    ],
)
def test_calls_that_compute_nothing_are_known_by_the_numbers_of_their_arguments(
    function: Callable[..., Any], taken: bool
) -> None:
    found = moved(function, torch.rand(4, 5, dtype=torch.float64) - 0.5)
    assert ("output.0" in found.taken) is taken


@for_each("dtype", [torch.bfloat16, torch.float16, torch.float32])
@for_each("units", [0, 1, 3])
def test_numbers_that_are_taken_over_have_nothing_to_round(dtype: torch.dtype, units: int) -> None:
    bench = torch.rand(4, 5).to(dtype).double() + 1
    device = bench.to(dtype)
    bench = device.double()
    device[1, 2] += units * torch.finfo(dtype).eps
    taken = torch.ones(4, 5, dtype=torch.bool)
    wrong = units > (1 if dtype is torch.float32 else 0)

    script = call.judge(device, bench, bench * torch.finfo(dtype).eps, False, taken)
    name = str(dtype).removeprefix("torch.")
    arrays = bench.numpy(), device.double().numpy(), taken.numpy()
    most = units_taken_over(dtype, is_gradient=False)
    strict = judge_floats(arrays[0], arrays[0], arrays[1], name, None, taken=arrays[2], taken_units=most)
    assert script[0] == strict.status == ("error" if wrong else "pass")
    assert (code_of(strict.message)[1] == "copies-not-exact") is wrong
    as_gradient = call.judge(device, bench, None, False, taken, is_gradient=True)
    assert as_gradient[0] == ("error" if units > 2 else "pass")
    assert judge_floats(arrays[0], arrays[0], arrays[1], name, None).status == "pass"


def test_a_number_that_rounding_chooses_may_be_another_one() -> None:
    bench, device = torch.full((4, 5), 1.0, dtype=torch.float64), torch.full((4, 5), 1.5, dtype=torch.bfloat16)
    movement, taken = torch.full((4, 5), 0.5, dtype=torch.float64), torch.ones(4, 5, dtype=torch.bool)
    assert call.judge(device, bench, movement, False, taken)[0] == "pass"
    arrays = bench.numpy(), device.double().numpy()
    assert judge_floats(arrays[0], *arrays, "bfloat16", movement.numpy(), taken=taken.numpy()).status == "pass"

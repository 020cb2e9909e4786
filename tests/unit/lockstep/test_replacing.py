"""A changer behind the dump that writes into results: the promises of the core that lockstep stands on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe.capture.memory import Memory
from msprobe.listeners import Changer, Changes, NewGradient, OptimizerStep, Result, Values, Wants
from msprobe.pytorch import Listening, PrecisionDebugger


class Writes(Changer):
    """Writes ``value`` into the result of calls of one name."""

    def __init__(self, name: str, value: Any) -> None:
        self.wants = Wants(kinds=("call",), names=(name,))
        self.changes = Changes(names=(name,), results=True)
        self.value = value

    def after(self, event: Any, result: Any) -> Result:
        return Result(self.value(result) if callable(self.value) else self.value, written=True)


def test_a_written_result_is_the_tensor_that_it_was_and_its_saved_values_are_the_other_ones() -> None:
    x = torch.linspace(-1, 1, 4, requires_grad=True)
    other = torch.tensor([0.1, 0.2, 0.3, 0.4])
    with Listening(Writes("Torch.sigmoid", other)) as listening, listening.step():
        y = torch.sigmoid(x)
        node, version = y.grad_fn, y._version
        y.sum().backward()
    assert type(node).__name__ == "SigmoidBackward0"
    assert version == 0
    assert torch.equal(y.detach(), other)
    # The derivative is made of the result that the node has saved: y (1 - y).
    assert x.grad is not None
    torch.testing.assert_close(x.grad, other * (1 - other))


def test_what_is_written_in_place_may_be_replaced_and_views_of_it_see_it() -> None:
    base = torch.zeros(2, 3)
    with Listening(Writes("Tensor.add_", torch.full((3,), 7.0))) as listening, listening.step():
        base[0].add_(1.0)
    assert base.tolist() == [[7.0, 7.0, 7.0], [0.0, 0.0, 0.0]]


def test_a_view_is_replaced_without_writing_to_what_it_is_a_view_of() -> None:
    x = torch.arange(4.0, requires_grad=True)
    with Listening(Writes("Tensor.view", torch.full((2, 2), 5.0))) as listening, listening.step():
        y = x.view(2, 2)
        (y * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert torch.equal(y.detach(), torch.full((2, 2), 5.0))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_values_of_another_type_are_rounded_and_those_of_another_shape_drop_the_changer() -> None:
    x = torch.ones(2, dtype=torch.bfloat16)
    with Listening(Writes("Torch.exp", torch.tensor([1.5, 2.5]))) as listening, listening.step():
        assert torch.exp(x).tolist() == [1.5, 2.5]
    with Listening(Writes("Torch.exp", torch.zeros(3))) as listening, listening.step():
        assert torch.equal(torch.exp(x), torch.exp(torch.ones(2, dtype=torch.bfloat16)))


def test_of_several_results_those_without_a_value_stay() -> None:
    x = torch.tensor([3.0, 1.0])
    with (
        Listening(Writes("Torch.sort", lambda result: (torch.tensor([8.0, 9.0]), None))) as listening,
        listening.step(),
    ):
        values, places = torch.sort(x)
    assert values.tolist() == [8.0, 9.0]
    assert places.tolist() == [1, 0]


class Behind(Changer):
    """Comes behind the dump, and doubles results and gradients of one call."""

    wants = Wants(kinds=("call",), names=("Torch.tanh",))
    changes = Changes(names=("Torch.tanh",), results=True, gradients=True)
    behind_dump = True

    def after(self, event: Any, result: Any) -> Result:
        return Result(result.detach() * 2, written=True)

    def gradient(self, event: Any) -> NewGradient | None:
        return NewGradient(event.gradient * 10) if event.can_be_replaced else None


@pytest.mark.parametrize("native", [True, False])
def test_the_dump_has_what_the_program_came_to_and_the_program_goes_on_with_the_other(
    native: bool, tmp_path: Any
) -> None:
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="statistics", level="L1", dump_path=str(tmp_path))
    if not native:
        debugger.recorder.statistics.native_memo = None
    debugger.add(Behind())
    memory = Memory()
    x = torch.tensor([0.5], requires_grad=True)
    with debugger.recording(into=memory):
        y = torch.tanh(x)
        z = y + 1
        z.backward()
    PrecisionDebugger.reset()
    step = memory.last
    assert step is not None
    records = {name: step[name].data for name in step}
    own = torch.tanh(torch.tensor([0.5])).item()
    assert y.item() == pytest.approx(2 * own)
    assert records["Torch.tanh.0.forward"]["output"][0]["Max"] == pytest.approx(own)
    # Nothing that was remembered of the result before it was written to is said of it behind.
    assert records["Tensor.__add__.0.forward"]["input_args"][0]["Max"] == pytest.approx(2 * own)
    backward = records["Torch.tanh.0.backward"]
    assert backward["input"][0]["Max"] == 1.0
    assert backward["output"][0]["Max"] == pytest.approx(10 * (1 - (2 * own) ** 2), rel=1e-5)


class Steps(Changer):
    """Sets weights after each step, and is wrong about one."""

    wants = Wants(kinds=("optimizer",))
    changes = Changes(names=("Optimizer.SGD",), values=True)

    def after(self, event: Any, result: Any) -> Values | None:
        assert isinstance(event, OptimizerStep)
        return Values([(one.weight, torch.full_like(one.weight, 3.0)) for one in event.parameters.values()])


def test_weights_are_put_after_a_step_without_counting_as_a_write() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    weight.sum().backward()
    with Listening(Steps()) as listening, listening.step():
        optimizer.step()
    assert weight.tolist() == [3.0, 3.0]


def test_a_changer_that_did_not_say_so_cannot_put_weights() -> None:
    class Unsaid(Steps):
        changes = Changes(names=())

    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], 0.5)
    weight.sum().backward()
    with Listening(Unsaid()) as listening, listening.step():
        optimizer.step()
    assert weight.tolist() == [-0.5, -0.5]

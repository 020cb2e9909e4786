"""Listeners that watch a MindSpore training as long as it runs: its steps are those of its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

mindspore = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402

from msprobe.capture.mindspore.training import TrainingListening  # noqa: E402
from msprobe.listeners import Cadence, Observer, Wants  # noqa: E402


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 8)
        self.last = nn.Dense(8, 2)
        self.scale = mindspore.Parameter(mindspore.Tensor(np.float32(2)), name="scale")

    def construct(self, x: Any) -> Any:
        return self.last(ops.relu(self.first(x))) * self.scale


class Note(Observer):
    """Notes what it is told of, by step."""

    def __init__(self, *kinds: Any, cadence: Cadence | None = None) -> None:
        self.wants = Wants(kinds=kinds, modules=["root", "*"])
        self.cadence = cadence or Cadence()
        self.told: list[tuple[int, str]] = []

    def before(self, event: Any) -> None:
        self.told.append((event.step, event.name))

    def gradient(self, event: Any) -> None:
        self.told.append((event.step, event.name))


def hooks_of(net: Any) -> int:
    return sum(len(cell._forward_pre_hook) + len(cell._forward_hook) for _, cell in net.cells_and_names())


def train(follow: Callable[[Any, Any], None], each: Callable[[Any], None] = lambda net: None) -> list[Any]:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_seed(0)
    np.random.seed(0)
    net = Net()
    adam = nn.Adam(net.trainable_params(), 0.01)
    follow(net, adam)
    step = mindspore.value_and_grad(lambda x: (net(x) ** 2).mean(), None, net.trainable_params())
    losses = []
    for _ in range(5):
        loss, gradients = step(mindspore.Tensor(np.random.randn(3, 4).astype(np.float32)))
        losses.append(loss.asnumpy())
        adam(gradients)
        each(net)
    return [*losses, *(one.asnumpy() for one in adam.get_parameters())]


def test_steps_are_those_of_the_optimizer_and_nothing_is_attached_between_those_that_are_wanted() -> None:
    passes, gradients = Note("pass", cadence=Cadence(every=2, first=1)), Note("parameter_gradient")
    listening = TrainingListening(passes)
    counts: list[int] = []

    def follow(net: Any, adam: Any) -> None:
        listening.follow(net, [adam], 10)

    watched = train(follow, lambda net: counts.append(hooks_of(net)))
    listening.end()
    assert [step for step, name in passes.told if name == "Cell.root.Net.forward.0"] == [11, 13]
    assert [name for step, name in passes.told if step == 11 and "forward" in name] == [
        "Cell.root.Net.forward.0",
        "Cell.first.Dense.forward.0",
        "Cell.last.Dense.forward.0",
    ]
    # Behind each step what the next one needs is attached.
    assert counts == [6, 0, 6, 0, 6]
    listening = TrainingListening(gradients)
    again = train(lambda net, adam: listening.follow(net))
    listening.end()
    names = [name for step, name in gradients.told if step == 4]
    assert sorted(set(names)) == [
        "Cell.first.Dense.parameters_grad",
        "Cell.last.Dense.parameters_grad",
        "Cell.root.Net.parameters_grad",
    ]
    bare = train(lambda net, adam: None)
    for mine, other, plain in zip(watched, again, bare, strict=True):
        assert np.array_equal(mine, plain)
        assert np.array_equal(other, plain)


def test_at_the_end_nothing_is_attached() -> None:
    listening = TrainingListening(Note("pass", "parameter_gradient"))
    before = nn.Optimizer.__call__
    nets: list[Any] = []

    def follow(net: Any, adam: Any) -> None:
        nets.append(net)
        listening.follow(net, [adam])

    train(follow)
    listening.end()
    assert hooks_of(nets[0]) == 0
    assert nn.Optimizer.__call__ is before

"""Gradients of the arguments of compiled functions: their node hands on those that are asked for, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import amp, nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, batch, needs_graph, record  # noqa: E402

__all__ = ["record"]


@ms.jit
def product(one: Any, two: Any, three: Any) -> Any:
    return (one * two * three).sum()


class Scaled(nn.Cell):
    """A compiled cell with a weight and a constant of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = ms.Parameter(ms.Tensor(np.full((2,), 3.0, np.float32)), name="factor", requires_grad=False)
        self.weight = ms.Parameter(ms.Tensor(np.full((2,), 5.0, np.float32)), name="weight")

    @ms.jit
    def construct(self, x: Any, y: Any) -> Any:
        return (x * self.factor * self.weight + y).sum()


def numbers(leaf: Any) -> tuple[float, list[int]] | None:
    return None if leaf is None else (round(leaf["Norm"], 3), leaf["shape"])


@needs_graph
def test_each_argument_of_a_compiled_function_has_its_own_gradient(record: Recorder) -> None:
    constant = ms.Parameter(ms.Tensor(np.full((2,), 7.0, np.float32)), name="constant", requires_grad=False)
    weight = ms.Parameter(ms.Tensor(np.ones((8, 2), np.float32)), name="w")
    other = ms.Parameter(ms.Tensor(np.full((2,), 2.0, np.float32)), name="other")
    cell = Scaled()
    given = ms.Tensor(np.full((2,), 11.0, np.float32))

    def loss(x: Any, extra: Any) -> Any:
        h = ops.matmul(x, weight)
        first = product(h, constant, h * 2)
        second = product(extra, h, other)
        return first + second + cell(h, extra.sum())

    debugger = record(level="L1", task="tensor")
    gradients = ms.value_and_grad(loss, None, [weight])
    with debugger.recording():
        gradients(batch(), given)
    dump = record.end()
    assert dump.errors() == []
    data, files = dump.data(), dump.tensors()
    h = batch().asnumpy() @ np.ones((8, 2), np.float32)

    def close(leaf: Any, wanted: Any) -> bool:
        return bool(np.allclose(files[leaf["data_name"]], np.broadcast_to(wanted, h.shape), rtol=1e-4))

    # The second argument is no weight: there is nothing for it, and the third is not taken for it.
    one, constant_gradient, two = data["Jit.product.0.backward"]["output"]
    assert constant_gradient is None
    assert close(one, 7 * h * 2)
    assert close(two, 7 * h)
    # Nobody asked for the input and for `other`.
    extra, in_between, nothing = data["Jit.product.1.backward"]["output"]
    assert extra is None
    assert nothing is None
    assert close(in_between, 22.0)
    # What leads to nothing that is asked for has no gradient, and is not given another's.
    passed, extra = data["Jit.Scaled.0.backward"]["output"]
    assert extra is None
    assert passed is None or close(passed, 15.0)


@needs_graph
@pytest.mark.parametrize("scaler", [lambda: amp.DynamicLossScaler(2**10, 2, 50), lambda: amp.StaticLossScaler(1024.0)])
def test_loss_scalers_are_recorded_without_an_error_and_change_nothing(record: Recorder, scaler: Any) -> None:
    def train(debugger: Any = None) -> list[bytes]:
        ms.set_seed(3)
        np.random.seed(3)
        model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
        optimizer = nn.Adam(model.trainable_params(), 0.01)
        scale = scaler()

        def loss(x: Any) -> Any:
            return scale.scale(ops.square(model(x)).mean())

        gradients = ms.value_and_grad(loss, None, optimizer.parameters)
        found = []
        for number in range(2):
            if debugger is not None:
                debugger.start(model)
            scaled, grads = gradients(batch(number))
            value = scale.unscale(scaled)
            is_finite = amp.all_finite(grads)
            if is_finite:
                optimizer(scale.unscale(grads))
            scale.adjust(is_finite)
            if debugger is not None:
                debugger.stop()
                debugger.step()
            found.append(value.asnumpy().tobytes())
        return found + [parameter.asnumpy().tobytes() for parameter in model.get_parameters()]

    alone = train()
    assert train(record(level="mix")) == alone
    dump = record.end()
    assert dump.errors() == []
    for step in (0, 1):
        given = dump.data(step)["Jit._grad_scale_map.0.backward"]
        assert given["input"][0]["Max"] == 1
        assert given["output"][-1]["Max"] == 1024

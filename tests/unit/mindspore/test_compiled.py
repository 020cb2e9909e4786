"""Functions and cells compiled inside a dynamic-graph program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Dump, Recorder, batch, needs_graph, record  # noqa: E402

__all__ = ["record"]


def make_function() -> Any:
    @ms.jit
    def compiled(a: Any, b: Any) -> Any:
        return ops.tanh(a) * b

    return compiled


class Compiled(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)

    @ms.jit
    def construct(self, x: Any) -> Any:
        return ops.exp(self.dense(x))


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Dense(8, 8)
        self.inside = Compiled()

    def construct(self, x: Any) -> Any:
        return ops.sigmoid(self.inside(self.before(x)))


@needs_graph
def test_a_compiled_function_is_one_call_with_true_gradients(record: Recorder) -> None:
    compiled = make_function()
    a, b = batch(1), batch(2)
    debugger = record(level="L1", task="tensor")
    for _ in range(2):
        with debugger.recording():
            ms.value_and_grad(lambda a, b: compiled(a, b).sum(), (0, 1))(a, b)
    dump = record.end()
    for step in (0, 1):
        assert dump.names(step) == [
            "Jit.compiled.0.forward",
            "Tensor.sum.0.forward",
            "Tensor.sum.0.backward",
            "Jit.compiled.0.backward",
        ]
    files = dump.tensors()
    t = np.tanh(a.asnumpy().astype(np.float64))
    assert np.allclose(files["Jit.compiled.0.forward.output.0.npy"], t * b.asnumpy(), rtol=1e-4, atol=1e-6)
    assert np.allclose(files["Jit.compiled.0.backward.output.1.npy"], t, rtol=1e-4, atol=1e-6)
    assert np.allclose(files["Jit.compiled.0.backward.output.0.npy"], (1 - t**2) * b.asnumpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_compiled_cell_inside_a_model(record: Recorder, level: str) -> None:
    def train(debugger: Any = None) -> list[Any]:
        ms.set_seed(3)
        np.random.seed(3)
        model = Model()
        gradients = ms.value_and_grad(lambda x: model(x).sum(), None, model.trainable_params())
        found = []
        for step in range(2):
            if debugger is not None:
                debugger.start(model)
            loss, grads = gradients(batch(step))
            if debugger is not None:
                debugger.stop()
                debugger.step()
            found += [loss.asnumpy().tobytes(), *(g.asnumpy().tobytes() for g in grads)]
        return found

    without = train()
    assert train(record(level=level)) == without
    dump = record.end()
    if level != "L1":
        dump = Dump(dump.folder / "pynative")
    assert dump.errors() == []
    names = dump.names(1)
    if level in ("L1", "mix"):
        assert "Jit.Compiled.0.forward" in names
        assert "Jit.Compiled.0.backward" in names
        assert dump.data(1)["Jit.Compiled.0.forward"]["input_args"][0] is None
        assert "Functional.exp.0.forward" not in names
        assert "Functional.sigmoid.0.forward" in names
    if level in ("L0", "mix"):
        assert "Cell.inside.Compiled.forward.0" in names
        assert "Cell.inside.Compiled.backward.0" in names
        assert "Cell.before.Dense.forward.0" in names
        assert "Cell.inside.dense.Dense.forward.0" not in names


def test_what_is_compiled_while_recording_runs_without_it_later(record: Recorder) -> None:
    compiled = make_function()
    a, b = batch(1), batch(2)
    debugger = record(level="mix")
    debugger.start(nn.SequentialCell(nn.Dense(8, 8)))
    inside = compiled(a, b).asnumpy()
    after_compiling = ops.tanh
    debugger.stop()
    assert ops.tanh is not after_compiling  # it was put back in place behind the compiler
    assert np.array_equal(compiled(a, b).asnumpy(), inside)
    debugger.step()
    assert record.end().names() == ["Jit.compiled.0.forward"]


def test_bytecode_capture_gives_ordinary_calls_or_one(record: Recorder) -> None:
    @ms.jit(capture_mode="bytecode")
    def traced(a: Any) -> Any:
        return ops.tanh(a) * 2

    a = batch()
    wanted = traced(a).asnumpy()
    with record(level="L1").recording():
        found = traced(a).asnumpy()
    assert np.array_equal(found, wanted)
    assert record.end().errors() == []


def test_a_compiled_optimizer_inside_the_recorded_step(record: Recorder) -> None:
    def train(debugger: Any = None) -> list[bytes]:
        ms.set_seed(3)
        np.random.seed(3)
        model = nn.SequentialCell(nn.Dense(8, 4))
        step = nn.TrainOneStepCell(nn.WithLossCell(model, nn.MSELoss()), nn.Adam(model.trainable_params(), 0.01))
        for number in range(3):
            if debugger is not None:
                debugger.start(model)
            step(batch(number), batch(number, (3, 4)))
            if debugger is not None:
                debugger.stop()
                debugger.step()
        return [p.asnumpy().tobytes() for p in model.get_parameters()]

    without = train()
    assert train(record(level="mix")) == without
    assert record.end().errors() == []

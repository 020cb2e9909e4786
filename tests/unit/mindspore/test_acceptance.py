"""A small training from end to end: what a user finds in the dump, in the dynamic graph and in the static one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, ops  # noqa: E402
from support.mindspore_dumps import (  # noqa: E402
    Dump,
    Recorder,
    Toy,
    batch,
    gradients_of,
    needs_graph,
    record,
    train_step,
)

__all__ = ["record"]


def two_steps(debugger: Any = None) -> list[bytes]:
    """Losses and gradients of two steps of the toy."""
    ms.set_seed(5)
    np.random.seed(5)
    model = Toy()
    found = []
    for seed in range(2):
        if debugger is None:
            loss, gradients = gradients_of(model)(batch(seed))
        else:
            loss, gradients = train_step(debugger, model, seed)
        found += [loss.asnumpy().tobytes(), *(gradient.asnumpy().tobytes() for gradient in gradients)]
    return found


@needs_graph
def test_calls_primitives_cells_and_their_gradients_in_two_steps(record: Recorder) -> None:
    alone = two_steps()
    assert two_steps(record(level="mix")) == alone
    dump = record.end()
    assert dump.errors() == []
    assert dump.steps() == ["step0", "step1"]
    for step in (0, 1):
        names = set(dump.names(step))
        forward = {
            "Primitive.matmul.MatMul.0.forward",
            "Cell.blk.fc1.Dense.forward.0",
            "MintFunctional.softmax.0.forward",
            "Tensor.__add__.0.forward",
            "Functional.tanh.0.forward",
            "Mint.mul.0.forward",
        }
        assert forward <= names
        assert {name.replace("forward", "backward") for name in forward} <= names
        assert dump.data(step)["Cell.blk.Block.backward.0"]["output"] == [None]
    parents = dump.file(name="construct.json")
    assert parents["MintFunctional.softmax.0.forward"] == "Cell.blk.Block.forward.0"
    assert parents["Cell.blk.Block.forward.0"] is None
    two_steps(record(level="L1"))
    assert record.end().file(name="construct.json") == {}


def test_values_of_every_type_are_those_of_the_moment(record: Recorder) -> None:
    names = (
        "Float16 Float32 Float64 BFloat16 Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Bool Complex64 Complex128"
    )
    values = {
        name: Tensor(np.array([[1, 0], [3, 2]]), getattr(ms, "bool_" if name == "Bool" else name.lower()))
        for name in names.split()
    }
    assert len(values) == 15
    debugger = record(level="L1", task="tensor")
    debugger.start()
    for value in values.values():
        ops.shape(value)
    debugger.stop()
    debugger.step()
    dump = record.end()
    assert dump.errors() == []
    files, data = dump.tensors(), dump.data()
    for number, (name, value) in enumerate(values.items()):
        (described,) = data[f"Functional.shape.{number}.forward"]["input_args"]
        assert described["dtype"] == name
        assert described["Max"] == (True if name == "Bool" else 3)
        assert described["Mean"] == (None if name == "Bool" else 1.5)
        stored = files[described["data_name"]]
        live = value.astype(ms.float32) if name == "BFloat16" else value
        assert stored.dtype == live.asnumpy().dtype
        assert np.array_equal(stored, live.asnumpy())


@pytest.mark.parametrize(("most", "steps"), [(1, 1), (3, 1), (-1, 2)])
def test_overflows_are_kept_until_there_are_enough(record: Recorder, most: int, steps: int) -> None:
    debugger = record(level="L1", task="overflow_check", overflow_nums=most)
    for _ in range(2):
        debugger.start()
        ops.tanh(batch())
        y = ops.log(batch() * 0)
        ops.exp(y)
        y / 2
        debugger.stop()
        debugger.step()
    dump = record.end()
    chain = ["Functional.log.0.forward", "Functional.exp.0.forward", "Tensor.__truediv__.0.forward"]
    assert dump.names(0) == chain[: most if most > 0 else None]
    assert len([step for step in (0, 1) if f"step{step}" in dump.steps() and dump.names(step)]) == steps


@needs_graph
def test_the_cells_of_the_static_graph_are_those_of_the_dynamic_one(record: Recorder) -> None:
    def cells(mode: int) -> Dump:
        ms.set_context(mode=mode)
        try:
            two_steps(record(level="L0", task="tensor"))
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)
        return record.end()

    dynamic = cells(ms.PYNATIVE_MODE)
    wanted = [dynamic.tensors(step) for step in (0, 1)]
    parents = dynamic.file(1, "construct.json")
    static = cells(ms.GRAPH_MODE)
    assert static.errors() == []
    for step in (0, 1):
        found = static.tensors(step)
        assert found.keys() == wanted[step].keys()
        # Of five cells what goes in and comes out, forward and backward; the batch has no gradient.
        assert len([name for name in found if "parameters" not in name]) == 18
        # The gradient of the normalisation is what is left of large numbers that cancel.
        scale = max(np.abs(values).max() for values in found.values())
        for name, values in found.items():
            assert np.allclose(values, wanted[step][name], rtol=1e-6, atol=1e-6 * scale), name
    assert static.file(1, "construct.json") == parents

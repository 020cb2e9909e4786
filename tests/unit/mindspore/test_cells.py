"""Cells: their names, their passes forward and backward, their parameters, and what stays out of the way."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, Toy, batch, needs_graph, record, train_step  # noqa: E402

__all__ = ["record"]


@needs_graph
def test_cells_carry_their_path_and_class_and_lie_in_each_other(record: Recorder) -> None:
    debugger = record(level="mix")
    train_step(debugger, Toy())
    dump = record.end()
    cells = dump.names(part="Cell.")
    assert [name for name in cells if ".forward." in name] == [
        "Cell.blk.fc1.Dense.forward.0",
        "Cell.blk.relu.ReLU.forward.0",
        "Cell.blk.fc2.Linear.forward.0",
        "Cell.blk.Block.forward.0",
        "Cell.ln.LayerNorm.forward.0",
    ]
    assert [name for name in cells if ".backward." in name] == [
        "Cell.ln.LayerNorm.backward.0",
        "Cell.blk.fc2.Linear.backward.0",
        "Cell.blk.relu.ReLU.backward.0",
        "Cell.blk.fc1.Dense.backward.0",
        "Cell.blk.Block.backward.0",
    ]
    parents = dump.file(name="construct.json")
    assert parents["MintFunctional.softmax.0.forward"] == "Cell.blk.Block.forward.0"
    assert parents["MintFunctional.softmax.0.backward"] == "Cell.blk.Block.backward.0"
    assert parents["Cell.blk.fc1.Dense.forward.0"] == "Cell.blk.Block.forward.0"
    assert parents["Cell.blk.Block.forward.0"] is None
    assert parents["Tensor.__sub__.0.forward"] is None


@needs_graph
def test_gradients_of_cells_are_those_of_the_training(record: Recorder) -> None:
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    x = batch()
    seen: dict[str, Any] = {}

    def loss(x: Any) -> Any:
        h = model[0](x)
        seen["h"] = h
        return (model[1](h) ** 2).sum()

    with record(level="L0", task="tensor").recording(model):
        _, gradients = ms.value_and_grad(loss, None, model.trainable_params())(x)
    dump = record.end()
    files = dump.tensors()
    h = seen["h"].asnumpy().astype(np.float64)
    t = np.tanh(h)
    assert np.allclose(files["Cell.1.Tanh.backward.0.input.0.npy"], 2 * t, rtol=1e-5)
    assert np.allclose(files["Cell.1.Tanh.backward.0.output.0.npy"], 2 * t * (1 - t**2), rtol=1e-4)
    into = files["Cell.0.Dense.backward.0.input.0.npy"]
    assert np.array_equal(into, files["Cell.1.Tanh.backward.0.output.0.npy"])
    by_name = dict(zip([p.name for p in model.trainable_params()], gradients, strict=True))
    assert np.array_equal(files["Cell.0.Dense.parameters_grad.weight.npy"], by_name["0.weight"].asnumpy())
    entry = dump.data()["Cell.0.Dense.parameters_grad"]
    assert set(entry) == {"weight", "bias"}
    assert entry["bias"][0]["shape"] == [4]
    assert dump.data()["Cell.0.Dense.backward.0"]["output"] == [None]


@needs_graph
def test_a_value_used_three_times_has_the_sum_of_its_gradients(record: Recorder) -> None:
    class Thrice(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2 + x * 3 + ops.exp(x)

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Tanh()
            self.thrice = Thrice()

        def construct(self, x: Any) -> Any:
            return self.thrice(self.first(x))

    model, x = Model(), batch()
    with record(level="L0", task="tensor").recording(model):
        ms.value_and_grad(lambda x: model(x).sum(), 0)(x)
    files = record.end().tensors()
    t = np.tanh(x.asnumpy().astype(np.float64))
    assert np.allclose(files["Cell.thrice.Thrice.backward.0.output.0.npy"], 5 + np.exp(t), rtol=1e-5)
    assert np.array_equal(
        files["Cell.first.Tanh.backward.0.input.0.npy"], files["Cell.thrice.Thrice.backward.0.output.0.npy"]
    )


def test_several_models_carry_their_index_and_are_not_recorded_themselves(record: Recorder) -> None:
    first, second = nn.SequentialCell(nn.Dense(8, 8)), nn.SequentialCell(nn.Dense(8, 4))
    with record(level="L0").recording([first, second]):
        second(first(batch()))
    assert record.end().names() == [
        "Cell.0.0.Dense.forward.0",
        "Cell.0.0.Dense.parameters_grad",
        "Cell.1.0.Dense.forward.0",
        "Cell.1.0.Dense.parameters_grad",
    ]


@pytest.mark.parametrize("kind", ["tuple with None", "list", "dict"])
def test_odd_outputs_are_recorded_and_handed_on(record: Recorder, kind: str) -> None:
    class Odd(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 4)

        def construct(self, x: Any) -> Any:
            y = self.dense(x)
            return {"tuple with None": (y, None, 3), "list": [y, y + 1], "dict": {"o": y, "n": None}}[kind]

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def construct(self, x: Any) -> Any:
            found = self.odd(x)
            y = found["o"] if isinstance(found, dict) else found[0]
            return y + found[1] if kind == "list" else y

    model = Model()
    debugger = record(level="L0")
    train_step(debugger, model)
    dump = record.end()
    entry = dump.data()["Cell.odd.Odd.forward.0"]
    if kind == "tuple with None":
        assert entry["output"][1:] == [None, {"type": "int", "value": 3}]
    elif kind == "list":
        assert [len(part) for part in entry["output"]] == [2]
    else:
        assert set(entry["output"][0]) == {"o", "n"}
    assert dump.data()["Cell.odd.Odd.backward.0"]["input"][0]["shape"] == [3, 4]
    assert dump.errors() == []


@needs_graph
def test_a_keyword_tensor_has_its_gradient_under_its_word(record: Recorder) -> None:
    class Keyword(nn.Cell):
        def construct(self, x: Any, y: Any = None) -> Any:
            return x * y

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 8)
            self.word = Keyword()

        def construct(self, x: Any) -> Any:
            return self.word(x, y=self.dense(x))

    debugger = record(level="L0")
    train_step(debugger, Model())
    dump = record.end()
    assert "y" in dump.data()["Cell.word.Keyword.forward.0"]["input_kwargs"]
    backward = dump.data()["Cell.word.Keyword.backward.0"]
    assert backward["output"] == [None]
    assert backward["kwargs_grads"]["y"]["shape"] == [3, 8]


def test_recomputed_passes_are_recorded_and_marked(record: Recorder) -> None:
    class Inner(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 8)

        def construct(self, x: Any) -> Any:
            return ops.tanh(self.dense(x))

    model = nn.SequentialCell(nn.Dense(8, 8), Inner())
    model[1].recompute()
    debugger = record(level="mix")
    train_step(debugger, model)
    data = record.end().data()
    assert data["Cell.1.dense.Dense.forward.0"]["is_recompute"] is False
    assert data["Cell.1.dense.Dense.forward.1"]["is_recompute"] is True
    assert "Cell.1.dense.Dense.backward.1" in data
    assert "Cell.1.Inner.backward.0" in data
    assert data["Functional.tanh.1.forward"]["is_recompute"] is True


def test_a_pass_that_raises_does_not_put_later_ones_out_of_order(record: Recorder) -> None:
    class Fails(nn.Cell):
        def construct(self, x: Any, fail: bool) -> Any:
            if fail:
                raise ValueError("as asked")
            return x

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Fails()
            self.dense = nn.Dense(8, 4)

        def construct(self, x: Any) -> Any:
            with contextlib.suppress(ValueError):
                self.inner(x, True)
            return self.dense(self.inner(x, False))

    debugger = record(level="mix")
    train_step(debugger, Model())
    dump = record.end()
    assert dump.data()["Cell.inner.Fails.forward.0"]["error"]
    parents = dump.file(name="construct.json")
    assert parents["Cell.dense.Dense.forward.0"] is None
    assert parents["Primitive.matmul.MatMul.0.forward"] == "Cell.dense.Dense.forward.0"


def test_a_copy_of_a_cell_made_while_recording_is_left_alone(record: Recorder) -> None:
    import copy

    model = nn.SequentialCell(nn.Dense(8, 4))
    with record(level="L0").recording(model):
        twin = copy.deepcopy(model)
        twin(batch())
    assert [name for name in record.end().names() if "forward" in name] == []


def test_token_range_records_the_calls_that_are_asked_for(record: Recorder) -> None:
    model = nn.SequentialCell(nn.Dense(8, 8), nn.Tanh())
    debugger = record(level="L0")
    debugger.start(model, token_range=[1, 2])
    for _ in range(5):
        model(batch())
    debugger.stop()
    debugger.step()
    assert [name for name in record.end().names() if "Tanh.forward" in name] == [
        "Cell.1.Tanh.forward.0",
        "Cell.1.Tanh.forward.1",
    ]
    assert not model._forward_hook


def test_tensors_are_saved_as_they_were(record: Recorder) -> None:
    x = Tensor(np.array([[1.5, -2.25]], np.float32), ms.bfloat16)
    flags, empty, scalar = Tensor([True, False]), Tensor(np.zeros((0, 2), np.float32)), Tensor(3, ms.int64)
    with record(level="L1", task="tensor").recording():
        for value in (x, flags, empty, scalar):
            ops.shape(value)
        y = batch()
        ops.tanh(y)
        y += 1
    dump = record.end()
    files = dump.tensors()
    entry = dump.data()["Functional.shape.0.forward"]["input_args"][0]
    assert entry["data_name"] == "Functional.shape.0.forward.input.0.npy"
    assert entry["dtype"] == "BFloat16"
    found = files["Functional.shape.0.forward.input.0.npy"]
    assert found.dtype == np.float32
    assert found.tolist() == [[1.5, -2.25]]
    assert files["Functional.shape.1.forward.input.0.npy"].tolist() == [True, False]
    assert files["Functional.shape.2.forward.input.0.npy"].shape == (0, 2)
    assert files["Functional.shape.3.forward.input.0.npy"].shape == ()
    assert np.array_equal(files["Functional.tanh.0.forward.input.0.npy"], batch().asnumpy())
    folder = dump.folder / "step0" / "rank" / "dump_tensor_data"
    assert dump.file()["dump_data_dir"] == str(folder)
    assert {entry.stat().st_mode & 0o777 for entry in folder.iterdir()} == {0o640}


class OwnBackward(nn.Cell):
    """Says itself what its gradient is."""

    def construct(self, x: Any) -> Any:
        return ops.tanh(x)

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (dout * 2,)


@needs_graph
def test_a_cell_with_a_backward_of_its_own(record: Recorder) -> None:
    """MindSpore calls no forward hooks of such cells."""
    model = nn.SequentialCell(nn.Dense(8, 4), OwnBackward(), nn.Dense(4, 2))
    gradients = ms.value_and_grad(lambda x: model(x).sum(), None, model.trainable_params())
    alone = gradients(batch())
    debugger = record(level="L0")
    for _ in range(2):
        debugger.start(model)
        found = gradients(batch())
        debugger.stop()
        assert "_run_construct" not in vars(OwnBackward)
        debugger.step()
    dump = record.end()
    assert float(found[0]) == float(alone[0])
    assert all((a == b).all() for a, b in zip(found[1], alone[1], strict=True))
    for step in (0, 1):
        entry = dump.data(step)["Cell.1.OwnBackward.forward.0"]
        assert "error" not in entry
        assert entry["output"][0]["shape"] == [3, 4]
        back = dump.data(step)["Cell.1.OwnBackward.backward.0"]
        assert back["output"][0]["Max"] == 2 * back["input"][0]["Max"]

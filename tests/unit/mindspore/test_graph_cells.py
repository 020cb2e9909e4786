"""The cells of a static graph, recorded at level L0."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, batch, needs_graph, record  # noqa: E402

from msprobe.errors import InvalidInputError  # noqa: E402

__all__ = ["record"]


@pytest.fixture(autouse=True)
def _graph_mode(record: Recorder) -> Iterator[None]:
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)
        self.tanh = nn.Tanh()

    def construct(self, x: Any, scale: Any) -> Any:
        y = self.tanh(self.dense(x))
        return y * scale, y


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.block = Block()
        self.head = nn.Dense(8, 4)

    def construct(self, ids: Any) -> Any:
        one, other = self.block(self.table(ids), 2)
        again, _ = self.block(one + other, 3)
        return ops.square(self.head(again)).mean()


def train(debugger: Any = None, steps: int = 3) -> list[bytes]:
    ms.set_seed(3)
    np.random.seed(3)
    model = Model()
    optimizer = nn.Adam(model.trainable_params(), 0.01)
    gradients = ms.value_and_grad(model, None, optimizer.parameters)
    found: list[bytes] = []
    for number in range(steps):
        ids = ms.Tensor(np.random.default_rng(number).integers(0, 10, (3,)).astype(np.int32))
        if debugger is not None:
            debugger.start(model)
        loss, grads = gradients(ids)
        if debugger is not None:
            debugger.stop()
        optimizer(grads)
        if debugger is not None:
            debugger.step()
        found += [loss.asnumpy().tobytes(), *(grad.asnumpy().tobytes() for grad in grads)]
    return found + [parameter.asnumpy().tobytes() for parameter in model.get_parameters()]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_cells_forward_and_backward_and_nothing_changes(record: Recorder, task: str) -> None:
    alone = train()
    assert train(record(level="L0", task=task)) == alone
    dump = record.end()
    assert dump.errors() == []
    assert dump.steps() == ["step0", "step1", "step2"]
    wanted = {
        "Cell.table.Embedding.forward.0",
        "Cell.block.dense.Dense.forward.0",
        "Cell.block.tanh.Tanh.forward.0",
        "Cell.block.Block.forward.0",
        "Cell.block.dense.Dense.forward.1",
        "Cell.block.tanh.Tanh.forward.1",
        "Cell.block.Block.forward.1",
        "Cell.head.Dense.forward.0",
    }
    for step in range(3):
        names = dump.names(step)
        assert {name for name in names if ".forward." in name} == wanted
        assert names.index("Cell.block.Block.forward.0") < names.index("Cell.block.dense.Dense.forward.1")
        backward = [name for name in names if ".backward." in name]
        assert backward[0] == "Cell.head.Dense.backward.0"
        assert backward.index("Cell.block.Block.backward.1") < backward.index("Cell.block.Block.backward.0")
    parents = dump.file(name="construct.json")
    assert parents["Cell.block.dense.Dense.forward.1"] == "Cell.block.Block.forward.1"
    assert parents["Cell.block.tanh.Tanh.backward.0"] == "Cell.block.Block.backward.0"
    assert parents["Cell.head.Dense.forward.0"] is None
    entry = dump.data()["Cell.block.Block.forward.0"]
    assert [part["shape"] for part in entry["output"]] == [[3, 8], [3, 8]]
    assert entry["input_args"][0]["dtype"] == "Float32"
    assert dump.data()["Cell.table.Embedding.forward.0"]["input_args"][0]["dtype"] == "Int32"


@needs_graph
def test_the_dump_is_that_of_the_dynamic_graph(record: Recorder) -> None:
    train(record(level="L0", task="tensor"), steps=1)
    static = record.end()
    in_graph, data, header = static.tensors(), static.data(), static.file()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    train(record(level="L0", task="tensor"), steps=1)
    dump = record.end()
    dynamic = dump.tensors()
    other = dump.file()
    # The header tells in which mode it was recorded, and nothing else differs.
    assert [one["msprobe"]["precision"].pop("mindspore.mode") for one in (header, other)] == [0, 1]
    assert {key: header[key] for key in header if key != "data"} == {key: other[key] for key in other if key != "data"}
    assert set(data) == set(dump.data())
    # Used inside the cell as well: the dynamic graph knows the sum of both gradients only.
    both = [f"Cell.block.Block.backward.{number}.input.1.npy" for number in (0, 1)]
    # Nobody uses this result: the compiler leaves it out.
    unused = "Cell.block.Block.forward.1.output.1.npy"
    assert {*in_graph, unused} - set(both) == set(dynamic) - set(both)
    for name, values in in_graph.items():
        if name not in both:
            assert np.allclose(values, dynamic[name], rtol=1e-5, atol=1e-6), name
    for name, entry in data.items():
        other = dump.data()[name]
        if name.startswith("Cell.block.Block."):
            continue
        for part in ("input", "output", "parameters"):
            assert [bool(value) for value in entry.get(part, ())] == [bool(value) for value in other.get(part, ())]
        if name.endswith("parameters_grad"):
            assert list(entry) == list(other)
    weight = "Cell.block.dense.Dense.forward.1.parameters.weight.npy"
    assert np.array_equal(in_graph[weight], dynamic[weight])
    gradient = data["Cell.block.dense.Dense.parameters_grad"]["weight"][0]
    assert gradient["data_name"] == "Cell.block.dense.Dense.parameters_grad.weight.npy"
    assert data["Cell.table.Embedding.backward.0"]["output"] == [None]


def test_chosen_statistics(record: Recorder) -> None:
    train(record(level="L0", summary_mode=["max", "l2norm"]), steps=1)
    entry = record.end().data()["Cell.head.Dense.forward.0"]
    for described in (entry["output"][0], entry["parameters"]["weight"]):
        assert list(described)[:5] == ["type", "dtype", "shape", "Max", "Norm"]
        assert not {"Min", "Mean"} & set(described)


def test_parameters_that_the_graph_itself_trains_are_those_before_the_step(record: Recorder) -> None:
    def run(debugger: Any = None) -> list[list[Any]]:
        ms.set_seed(3)
        np.random.seed(3)
        body = nn.SequentialCell(nn.Dense(8, 4), nn.Dense(4, 4))
        body[1].weight.requires_grad = False
        model = nn.TrainOneStepCell(nn.WithLossCell(body, nn.MSELoss()), nn.SGD(body.trainable_params(), 0.1))
        found = []
        for number in range(2):
            found.append([body[0].weight.asnumpy().copy()])
            if debugger is not None:
                debugger.start(body)
            model(batch(number), batch(number, (3, 4)))
            if debugger is not None:
                debugger.stop()
                debugger.step()
        return [*found, [parameter.asnumpy() for parameter in body.get_parameters()]]

    alone = run()
    recorded = run(record(level="L0", task="tensor"))
    assert [part.tobytes() for step in alone for part in step] == [part.tobytes() for step in recorded for part in step]
    dump = record.end()
    for step in range(2):
        files = dump.tensors(step)
        assert np.array_equal(files["Cell.0.Dense.forward.0.parameters.weight.npy"], alone[step][0])
        after = alone[1][0] if step == 0 else alone[2][0]
        gradient = files["Cell.0.Dense.parameters_grad.weight.npy"]
        assert np.allclose(alone[step][0] - 0.1 * gradient, after, atol=1e-6)
        assert list(dump.data(step)["Cell.1.Dense.parameters_grad"]) == ["bias"]


class Several(nn.Cell):
    """Tensors in tuples and lists, given and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)

    def construct(self, pair: Any, scale: Any, others: Any) -> Any:
        y = self.dense(pair[0]) * scale
        return y, (pair[1] * 2, 3, y + 1), [others[0] * y, others[1]]


class ListOnly(nn.Cell):
    def construct(self, x: Any) -> Any:
        return [x * 2, x + 1]


class Nested(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.several = Several()
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.listed = ListOnly()

    def construct(self, x: Any) -> Any:
        y, (a, _, b), rest = self.several((x, x + 1), 2, [x, x * 3])
        z, (h, c) = self.lstm(y.reshape(1, 3, 8))
        one, other = self.listed(a + b)
        return (one + other + rest[0] * rest[1]).sum() + z.sum() + (h * c).sum()


@needs_graph
def test_tensors_in_tuples_and_lists_have_the_places_of_the_dynamic_graph(record: Recorder) -> None:
    def run(debugger: Any = None) -> list[bytes]:
        ms.set_seed(3)
        np.random.seed(3)
        model = Nested()
        gradients = ms.value_and_grad(model, None, model.trainable_params())
        if debugger is not None:
            debugger.start(model)
        loss, grads = gradients(batch())
        if debugger is not None:
            debugger.stop()
            debugger.step()
        return [loss.asnumpy().tobytes(), *(grad.asnumpy().tobytes() for grad in grads)]

    alone = run()
    assert run(record(level="L0", task="tensor")) == alone
    static = record.end()
    assert static.errors() == []
    files, data = static.tensors(), static.data()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    run(record(level="L0", task="tensor"))
    dynamic = record.end()
    for cell in ("Cell.several.Several", "Cell.lstm.LSTM", "Cell.listed.ListOnly"):
        for entry in (f"{cell}.forward.0", f"{cell}.backward.0"):
            for side in ("input_args", "input", "output"):
                wanted = shapes(dynamic.data()[entry].get(side))
                if side != "input_args":
                    assert shapes(data[entry].get(side)) == wanted, (entry, side)
        names = {name for name in dynamic.tensors() if name.startswith(cell) and ".parameters" not in name}
        assert names == {name for name in files if name.startswith(cell) and ".parameters" not in name}
    for name in files:
        if ".forward." in name:
            assert np.allclose(files[name], dynamic.tensors()[name], rtol=1e-5, atol=1e-6), name


def shapes(tree: Any) -> Any:
    if isinstance(tree, list):
        return [shapes(part) for part in tree]
    return tree.get("shape") if isinstance(tree, dict) else None


class Masked(nn.Cell):
    def construct(self, x: Any, mask: Any = None) -> Any:
        if mask is None:
            return x * 3
        return x * mask


class Choosing(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)
        self.masked = Masked()

    def construct(self, x: Any) -> Any:
        y = self.masked(self.dense(x))
        z = self.masked(y, x + 2)
        z = self.masked(z, mask=y)
        return self.masked(self.masked(z), y).sum()


@needs_graph
def test_arguments_that_only_some_calls_have_stay_with_them(record: Recorder) -> None:
    def run(debugger: Any) -> Any:
        ms.set_seed(3)
        np.random.seed(3)
        model = Choosing()
        gradients = ms.value_and_grad(model, None, model.trainable_params())
        with debugger.recording(model):
            gradients(batch())
        return record.end()

    dump = run(record(level="L0", task="tensor"))
    files, names = dump.tensors(), dump.names()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    dynamic = run(record(level="L0", task="tensor"))
    assert set(names) == set(dynamic.names())
    assert len(dump.data()["Cell.masked.Masked.forward.1"]["input_args"]) == 2
    assert len(dump.data()["Cell.masked.Masked.forward.3"]["input_args"]) == 1
    by_word = dump.data()["Cell.masked.Masked.forward.2"]
    assert (len(by_word["input_args"]), list(by_word["input_kwargs"])) == (1, ["mask"])
    assert list(dump.data()["Cell.masked.Masked.backward.2"]["kwargs_grads"]) == ["mask"]
    wanted = dynamic.tensors()
    assert set(files) == set(wanted)
    for name, values in files.items():
        assert np.allclose(values, wanted[name], rtol=1e-4, atol=1e-5), name


class Listed(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.Dense(8, 8), Scaled()])
        self.head = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())

    def construct(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        y, _, rest = self.layers[1](x, 3, mask=x, called=True)
        return self.head(y + rest[0])


class Scaled(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)

    def construct(self, x: Any, scale: Any = 2, mask: Any = None, called: bool = False) -> Any:
        y = self.dense(x) * scale
        if mask is not None:
            y = y + mask
        if called:
            return y, None, [y, 3]
        return y


def test_cells_in_lists_defaults_keywords_and_a_copy_of_the_model(record: Recorder) -> None:
    def run(debugger: Any = None) -> list[bytes]:
        ms.set_seed(3)
        np.random.seed(3)
        model = Listed()
        if debugger is not None:
            debugger.start(model)
        copied = copy.deepcopy(model)
        for parameter in copied.get_parameters():
            parameter.set_data(parameter * 2)

        def loss(x: Any) -> Any:
            return ops.square(model(x)).sum()

        value, grads = ms.value_and_grad(loss, None, model.trainable_params())(batch())
        found = [value.asnumpy().tobytes(), *(grad.asnumpy().tobytes() for grad in grads)]
        if debugger is not None:
            debugger.stop()
            debugger.step()
        return [*found, copied(batch()).asnumpy().tobytes()]

    alone = run()
    assert run(record(level="L0", record_root=True)) == alone
    dump = record.end()
    assert dump.errors() == []
    forward = [name for name in dump.names() if ".forward." in name]
    assert sorted(forward) == [
        "Cell.head.0.Dense.forward.0",
        "Cell.head.1.Tanh.forward.0",
        "Cell.head.SequentialCell.forward.0",
        "Cell.layers.0.Dense.forward.0",
        "Cell.layers.1.Scaled.forward.0",
        "Cell.layers.1.Scaled.forward.1",
        "Cell.layers.1.dense.Dense.forward.0",
        "Cell.layers.1.dense.Dense.forward.1",
        "Cell.root.Listed.forward.0",
    ]
    assert {name.replace(".forward.", ".backward.") for name in forward} <= set(dump.names())


def test_only_the_steps_that_are_asked_for(record: Recorder) -> None:
    alone = train()
    assert train(record(level="L0", step=[1])) == alone
    dump = record.end()
    assert dump.steps() == ["step1"]
    assert "Cell.head.Dense.backward.0" in dump.data(1)


def test_forward_alone(record: Recorder) -> None:
    train(record(level="L0", data_mode=["forward"]), steps=1)
    names = record.end().names()
    assert "Cell.head.Dense.forward.0" in names
    assert not [name for name in names if "backward" in name]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_and_single_values(record: Recorder, dtype: str) -> None:
    class Total(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x.astype(ms.float32).sum()

    class Half(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Identity()
            self.total = Total()

        def construct(self, x: Any) -> Any:
            return self.total(self.same(x.astype(getattr(ms, dtype))))

    model = Half()
    with record(level="L0", task="tensor").recording(model):
        model(batch()).asnumpy()
    dump = record.end()
    assert dump.errors() == []
    given = dump.data()["Cell.same.Identity.forward.0"]["input_args"][0]
    assert given["dtype"] == {"bfloat16": "BFloat16", "float16": "Float16"}[dtype]
    total = dump.tensors()["Cell.total.Total.forward.0.output.0.npy"]
    assert total.shape == ()
    assert dump.data()["Cell.total.Total.forward.0"]["output"][0]["shape"] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "structure"}, 'task is "structure"'),
        ({"rank": [0]}, "rank must be"),
        ({"list": ["Dense"]}, "list must be"),
        ({"summary_mode": "md5"}, "md5"),
        ({"data_mode": ["input"]}, "data_mode must be"),
        ({"scope": ["Cell.a.A.forward.0", "Cell.b.B.forward.0"]}, "scope must be"),
    ],
)
def test_what_a_static_graph_cannot_be_asked_for(record: Recorder, settings: dict[str, Any], words: str) -> None:
    debugger = record(level="L0", **settings)
    with pytest.raises(InvalidInputError, match=words):
        debugger.start(nn.SequentialCell(nn.Dense(8, 4)))


def test_after_the_end_a_compiled_graph_goes_on_and_cells_are_as_they_were(record: Recorder) -> None:
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    alone = model(batch()).asnumpy()
    other = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    with record(level="L0").recording(other):
        inside = other(batch()).asnumpy()
    record.end()
    assert np.array_equal(other(batch()).asnumpy(), inside)
    assert all("construct" not in vars(cell) for _, cell in other.cells_and_names())
    assert alone.shape == inside.shape


def test_what_cannot_be_compiled_with_ours_is_compiled_without(
    record: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    # MindSpore leaves a report of what it could not compile.
    monkeypatch.chdir(tmp_path)
    from msprobe.capture.mindspore.graphs import graph_probes
    from msprobe.capture.mindspore.graphs.executor import compiling_classes

    def refuse(data: Any, *numbers: Any) -> Any:
        raise ValueError("shapes that change")

    compilers = [kind.compile for kind in compiling_classes()]
    assert len(compilers) == 2
    alone = train()
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    wanted = model(batch()).asnumpy()
    broken = ops.Custom(graph_probes._reporting, out_shape=refuse, out_dtype=refuse, func_type="pyfunc")
    monkeypatch.setattr(graph_probes, "_report", broken)
    assert train(record(level="L0")) == alone
    assert record.end().names() == []
    debugger = record(level="L0")
    model = nn.SequentialCell(*model)
    debugger.start(model)
    assert np.array_equal(model(batch()).asnumpy(), wanted)
    record.end()
    assert mentions(capsys.readouterr().out, "cells-cannot-be-compiled") == 1
    assert [kind.compile for kind in compiling_classes()] == compilers

"""Cells inside of a compiled cell in a dynamic-graph program: a dump of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, raising

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Dump, Recorder, batch, needs_graph, record  # noqa: E402

from msprobe.capture.mindspore import recorder  # noqa: E402
from msprobe.capture.mindspore.graphs.executor import jit_executor_class  # noqa: E402
from msprobe.errors import PathError  # noqa: E402
from msprobe.store.reader import open_dump  # noqa: E402

__all__ = ["record"]


class Within(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 8)])
        self.norm = nn.LayerNorm((8,))

    def construct(self, x: Any, scale: Any = 2) -> Any:
        for layer in self.layers:
            x = ops.tanh(layer(x)) * scale
        return self.norm(x)


class CompiledWithin(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 8)])
        self.norm = nn.LayerNorm((8,))

    @ms.jit
    def construct(self, x: Any, scale: Any = 2) -> Any:
        for layer in self.layers:
            x = ops.tanh(layer(x)) * scale
        return self.norm(x)


class Outer(nn.Cell):
    def __init__(self, kind: type[nn.Cell]) -> None:
        super().__init__()
        self.before = nn.Dense(8, 8)
        self.inside = kind()

    def construct(self, x: Any) -> Any:
        return self.inside(self.before(x)).sum()


def train(kind: type[nn.Cell], debugger: Any = None, steps: int = 3) -> list[bytes]:
    ms.set_seed(3)
    np.random.seed(3)
    model = Outer(kind)
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    gradients = ms.value_and_grad(model, None, optimizer.parameters)
    found = []
    for step in range(steps):
        if debugger is not None:
            debugger.start(model)
        loss, grads = gradients(batch(step))
        if debugger is not None:
            debugger.stop()
        optimizer(grads)
        if debugger is not None:
            debugger.step()
        found += [loss.asnumpy().tobytes(), *(g.asnumpy().tobytes() for g in grads)]
    assert all("construct" not in vars(cell) for _, cell in model.cells_and_names())
    assert all(not parameter.hooks() for parameter in model.get_parameters())
    return found


@needs_graph
@pytest.mark.parametrize("task", ["statistics", "tensor", "structure"])
def test_they_are_recorded_as_in_the_dynamic_graph(record: Recorder, task: str) -> None:
    compiler = jit_executor_class().compile
    alone = train(CompiledWithin)
    # It is compiled in a step that nobody wants.
    assert train(CompiledWithin, record(level="L0", task=task, step=[1, 2])) == alone
    folder = record.end().folder
    assert jit_executor_class().compile is compiler
    compiled, stepwise = Dump(folder / "graph"), Dump(folder / "pynative")
    assert compiled.errors() == stepwise.errors() == []
    assert compiled.steps() == stepwise.steps() == ["step1", "step2"]
    train(Within, record(level="L0", task=task, step=[1, 2]))
    dynamic = record.end()
    assert dynamic.steps() == ["step1", "step2"]
    for step in (1, 2):
        parents = compiled.file(step, "construct.json")
        assert parents["Cell.inside.layers.1.Dense.forward.0"] is None
        assert parents.keys() == {name for name in dynamic.file(step, "construct.json") if is_inside(name)}
        if task == "structure":
            continue
        names = set(filter(is_inside, dynamic.names(step)))
        assert set(compiled.names(step)) == names
        assert "Cell.inside.CompiledWithin.backward.0" in stepwise.names(step)
        assert not [name for name in stepwise.names(step) if name in names]
        for name, values in compiled.tensors(step).items():
            assert np.allclose(values, dynamic.tensors(step)[name], rtol=1e-4, atol=1e-5), name
        assert set(compiled.tensors(step)) == set(filter(is_inside, dynamic.tensors(step)))
    assert task == "structure" or "Cell.inside.norm.LayerNorm.parameters_grad" in compiled.names(1)


def is_inside(name: str) -> bool:
    return name.startswith("Cell.inside.") and ".Within." not in name


def test_calls_of_mix_go_with_what_runs_step_by_step(record: Recorder) -> None:
    alone = train(CompiledWithin)
    assert train(CompiledWithin, record(level="mix")) == alone
    folder = record.end().folder
    names = Dump(folder / "pynative").names(2)
    assert {"Jit.CompiledWithin.0.backward", "Tensor.sum.0.forward", "Cell.before.Dense.forward.0"} <= set(names)
    assert "Cell.inside.norm.LayerNorm.backward.0" in Dump(folder / "graph").names(2)
    assert Dump(folder / "graph").file(2)["level"] == "L0"


def test_without_compiled_cells_or_below_cells_there_is_one_dump(record: Recorder) -> None:
    train(CompiledWithin, record(level="L1"), steps=1)
    assert record.end().steps() == ["step0"]
    train(Within, record(level="L0"), steps=1)
    assert record.end().steps() == ["step0"]


def test_cells_that_were_compiled_before_are_reported(record: Recorder, capsys: Any) -> None:
    model = Outer(CompiledWithin)
    model(batch())
    with record(level="L0").recording(model):
        model(batch())
    folder = record.end().folder
    # There are versions of MindSpore that compile it anew.
    is_recorded = (folder / "graph").exists() and Dump(folder / "graph").names() != []
    assert is_recorded != bool(mentions(capsys.readouterr().out, "compiled-cells-without-records"))


def test_steps_of_a_resumed_training_and_steps_without_stop(record: Recorder) -> None:
    debugger = record(level="L0", step=[7, 9])
    debugger.set_init_step(7)
    model = Outer(CompiledWithin)
    for number in range(3):
        debugger.start(model)
        model(batch(number))
        debugger.step()
    folder = record.end().folder
    assert Dump(folder / "pynative").steps() == Dump(folder / "graph").steps() == ["step7", "step9"]
    assert "Cell.inside.norm.LayerNorm.forward.0" in Dump(folder / "graph").names(9)


def test_the_folder_of_two_dumps_says_which_to_give(record: Recorder) -> None:
    train(CompiledWithin, record(level="L0"), steps=1)
    folder = record.end().folder
    with raising(PathError, "two-dumps-in-folder"):
        open_dump(folder)
    assert open_dump(folder / "pynative").steps == open_dump(folder / "graph").steps == [0]


def test_dumps_of_earlier_runs_are_refused_where_that_is_asked_for(record: Recorder) -> None:
    train(CompiledWithin, record(level="L0"), steps=1)
    with pytest.raises(PathError, match="pynative"):
        record(level="L0", existing="refuse")


def test_where_graphs_cannot_call_python_a_line_says_so(
    record: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(recorder, "calls_python", lambda: False)
    train(CompiledWithin, record(level="L0"), steps=2)
    dump = record.end()
    assert "Cell.inside.CompiledWithin.forward.0" in dump.names(1)
    assert mentions(capsys.readouterr().out, "compiled-cells-not-recorded", count=4) == 1

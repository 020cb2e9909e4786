"""Cells that a function under ``jit`` calls, in a dynamic-graph program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import amp, nn, ops  # noqa: E402
from support.mindspore_dumps import Dump, Recorder, batch, needs_graph, record  # noqa: E402

from msprobe import log  # noqa: E402
from msprobe.capture.mindspore.graphs.executor import jit_executor_class  # noqa: E402

__all__ = ["record"]


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 8)])
        self.norm = nn.LayerNorm((8,))

    def construct(self, x: Any) -> Any:
        for layer in self.layers:
            x = ops.tanh(layer(x))
        return self.norm(x)


def train(kind: str, debugger: Any = None, first: int = 0) -> list[bytes]:
    """Two steps: nothing compiled, the forward pass compiled, or the whole step. Recorded from step ``first`` on."""
    ms.set_seed(3)
    np.random.seed(3)
    model = Model()
    optimizer = nn.SGD(model.trainable_params(), 0.1)

    def forward(x: Any) -> Any:
        return ops.square(model(x) - 1).sum()

    compiled = ms.jit(forward) if kind == "forward" else forward
    gradients = ms.value_and_grad(compiled, None, optimizer.parameters)

    def step(x: Any) -> Any:
        loss, grads = gradients(x)
        optimizer(grads)
        return loss, grads

    if kind == "step":
        step = ms.jit(step)
    found = []
    for number in range(2):
        if debugger is not None and number >= first:
            debugger.start(model)
        loss, grads = step(batch(number))
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found += [loss.asnumpy().tobytes(), *(g.asnumpy().tobytes() for g in grads)]
    assert all("construct" not in vars(cell) for _, cell in model.cells_and_names())
    assert all(not parameter.hooks() for parameter in model.get_parameters())
    return [*found, *(parameter.asnumpy().tobytes() for parameter in model.get_parameters())]


@needs_graph
@pytest.mark.parametrize("kind", ["forward", "step"])
def test_they_are_those_of_the_dynamic_graph_and_nothing_changes(record: Recorder, kind: str) -> None:
    compiler = jit_executor_class().compile
    alone = train(kind)
    assert train(kind, record(level="L0", task="tensor")) == alone
    assert jit_executor_class().compile is compiler
    folder = record.end().folder
    compiled = Dump(folder / "graph")
    assert compiled.errors() == []
    found = [(compiled.tensors(step), compiled.data(step)) for step in (0, 1)]
    train("nothing", record(level="L0", task="tensor"))
    dynamic = record.end()
    for step, (files, data) in enumerate(found):
        wanted = dynamic.tensors(step)
        assert {"Cell.norm.LayerNorm.backward.0", "Cell.layers.1.Dense.forward.0"} <= set(data)
        # Where the gradients are asked for outside, those of parameters arrive there.
        has_gradients = "Cell.layers.0.Dense.parameters_grad.weight.npy" in files
        assert has_gradients == (kind == "step")
        left = [name for name in wanted if "parameters_grad" not in name or has_gradients]
        assert set(files) == set(left)
        scale = max(np.abs(values).max() for values in wanted.values())
        for name, values in files.items():
            assert np.allclose(values, wanted[name], rtol=1e-4, atol=1e-6 * scale), name


def test_what_runs_step_by_step_stays_where_it_is(record: Recorder) -> None:
    train("forward", record(level="mix"))
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    assert "Jit.forward.0.backward" in dump.names(1)
    assert "Cell.layers.0.Dense.parameters_grad" in dump.names(1)
    assert "Cell.norm.LayerNorm.forward.0" in Dump(dump.folder / "graph").names(1)


def test_without_compiled_functions_there_is_no_second_dump(record: Recorder, capsys: Any) -> None:
    train("nothing", record(level="L0"))
    dump = record.end()
    assert not (dump.folder / "graph").exists()
    assert mentions(capsys.readouterr().out, "dump-is-in") == 1


def test_what_was_compiled_before_is_left_alone(record: Recorder) -> None:
    alone = train("step")
    assert train("step", record(level="L0"), first=1) == alone
    folder = record.end().folder / "graph"
    # There are versions of MindSpore that compile it anew.
    assert not folder.exists() or Dump(folder).names(1)


def test_a_function_that_cannot_be_compiled_with_ours_is_compiled_without(
    record: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    # MindSpore leaves a report of what it could not compile.
    monkeypatch.chdir(tmp_path)
    from msprobe.capture.mindspore.graphs import graph_probes

    def refuse(data: Any, *numbers: Any) -> Any:
        raise ValueError("shapes that change")

    broken = ops.Custom(graph_probes._reporting, out_shape=refuse, out_dtype=refuse, func_type="pyfunc")
    alone = train("step")
    monkeypatch.setattr(graph_probes, "_report", broken)
    assert train("step", record(level="L0")) == alone
    assert not (record.end().folder / "graph").exists()
    assert mentions(capsys.readouterr().out, "cells-cannot-be-compiled") == 1


def test_cells_of_mixed_precision_that_run_step_by_step_are_recorded_without_a_line(
    record: Recorder, capsys: Any
) -> None:
    log.forget_once()
    rounded = amp.auto_mixed_precision(nn.SequentialCell(nn.Dense(8, 4), nn.Tanh()), "O2")
    with record(level="L0").recording(rounded):
        # Something is compiled meanwhile that calls none of them.
        amp.all_finite([rounded(batch())])
    names = record.end().names()
    assert any(name.endswith("0.Dense.forward.0") for name in names)
    assert "mixed precision" not in capsys.readouterr().out


def test_cells_of_mixed_precision_in_a_compiled_function_are_left_out_with_a_line(
    record: Recorder, capsys: Any
) -> None:
    log.forget_once()
    plain = nn.Dense(8, 8)
    rounded = amp.auto_mixed_precision(nn.SequentialCell(nn.Dense(8, 4), nn.Tanh()), "O2")

    @ms.jit
    def whole(x: Any) -> Any:
        return rounded(plain(x))

    with record(level="L0").recording([plain, rounded]):
        whole(batch())
    record.end()
    assert mentions(capsys.readouterr().out, "rounded-cells-not-recorded") == 1

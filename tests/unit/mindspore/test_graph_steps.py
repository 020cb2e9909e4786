"""Whole training steps in a static graph: the optimizer, state that cells write, and shapes that change are in it."""

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

from mindspore import Parameter, nn, ops  # noqa: E402
from support.mindspore_dumps import Dump, Recorder, batch, record  # noqa: E402

__all__ = ["record"]


class Counting(nn.Cell):
    """Counts its passes in a parameter, and keeps an average."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Parameter(ms.Tensor(0.0, ms.float32), name="count", requires_grad=False)
        self.average = Parameter(ms.Tensor(np.zeros((3, 4), np.float32)), name="average", requires_grad=False)

    def construct(self, x: Any) -> Any:
        self.count = self.count + 1
        self.average = 0.9 * self.average + 0.1 * x
        return x * self.count + self.average


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Dense(8, 4)
        self.counting = Counting()
        # A copy of a cell runs its own construct.
        self.twins = nn.SequentialCell(copy.deepcopy(self.counting), nn.Tanh())

    def construct(self, x: Any) -> Any:
        return self.twins(self.counting(self.narrow(x)))


@pytest.fixture(autouse=True)
def _graph_mode(record: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    # MindSpore leaves a report of what it could not compile.
    monkeypatch.chdir(tmp_path)
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


def train(debugger: Any = None) -> list[bytes]:
    """Three steps of ``TrainOneStepCell``, recorded as a whole."""
    ms.set_seed(3)
    np.random.seed(3)
    model = Model()
    step = nn.TrainOneStepCell(nn.WithLossCell(model, nn.MSELoss()), nn.Adam(model.trainable_params(), 0.01))
    step.set_train()
    found: list[bytes] = []
    for number in range(3):
        if debugger is not None:
            debugger.start(step)
        loss = step(batch(number), batch(number + 10, (3, 4)))
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found.append(loss.asnumpy().tobytes())
    return found + [parameter.asnumpy().tobytes() for parameter in step.get_parameters()]


def test_a_step_with_its_optimizer_inside_is_recorded_and_nothing_changes(record: Recorder) -> None:
    # Adam writes `self.beta1_power = ...` in its construct, cells with state do the same.
    alone = train()
    assert train(record(level="L0")) == alone
    dump = record.end()
    assert dump.errors() == []
    for step in range(3):
        assert {
            "Cell.network._backbone.counting.Counting.forward.0",
            "Cell.network._backbone.twins.0.Counting.forward.0",
            "Cell.network._backbone.narrow.Dense.backward.0",
            "Cell.network.WithLossCell.forward.0",
            "Cell.optimizer.Adam.forward.0",
        } <= set(dump.names(step))
    gradients = dump.data()["Cell.network._backbone.narrow.Dense.parameters_grad"]
    given = dump.data()["Cell.optimizer.Adam.forward.0"]["input_args"][0]
    assert given[0]["Norm"] == gradients["weight"][0]["Norm"] > 0


def test_a_cell_with_state_compiled_in_the_dynamic_graph_is_recorded_and_nothing_changes(record: Recorder) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    alone = stateful()
    assert stateful(record(level="L0")) == alone
    assert "Cell.counting.Counting.forward.0" in Dump(record.end().folder / "graph").names(1)


class Compiled(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.counting = Counting()

    @ms.jit
    def construct(self, x: Any) -> Any:
        return ops.tanh(self.counting(x))


def stateful(debugger: Any = None) -> list[bytes]:
    model = Compiled()
    found = []
    for number in range(3):
        if debugger is not None:
            debugger.start(model)
        found.append(model(batch(number, (3, 4))).asnumpy().tobytes())
        if debugger is not None:
            debugger.stop()
            debugger.step()
    return found + [parameter.asnumpy().tobytes() for parameter in model.get_parameters()]


def changing(debugger: Any = None) -> list[bytes]:
    ms.set_seed(3)
    np.random.seed(3)
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    step = nn.TrainOneStepCell(nn.WithLossCell(model, nn.MSELoss()), nn.Adam(model.trainable_params(), 0.01))
    step.set_inputs(ms.Tensor(shape=[None, 8], dtype=ms.float32), ms.Tensor(shape=[None, 4], dtype=ms.float32))
    found = []
    for number in range(3):
        if debugger is not None:
            debugger.start(step)
        loss = step(batch(number, (2 + number, 8)), batch(number + 10, (2 + number, 4)))
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found.append(loss.asnumpy().tobytes())
    return found + [parameter.asnumpy().tobytes() for parameter in step.get_parameters()]


def test_tensors_whose_shape_changes_are_left_out_with_a_line_and_nothing_changes(
    record: Recorder, capsys: Any
) -> None:
    alone = changing()
    assert changing(record(level="L0")) == alone
    dump = record.end()
    # What has one shape is there: the gradients of parameters.
    assert dump.data(2)["Cell.network._backbone.0.Dense.parameters_grad"]["weight"][0]["shape"] == [4, 8]
    assert mentions(capsys.readouterr().out, "cells-of-unknown-shapes") == 1

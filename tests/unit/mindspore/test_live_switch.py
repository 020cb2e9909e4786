"""``dump_enable``: recording is switched by editing the configuration while the training runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dump_folder import EditedConfig

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Dump, Toy, batch, train_step  # noqa: E402

from msprobe.capture import live_switch  # noqa: E402
from msprobe.mindspore import PrecisionDebugger  # noqa: E402


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EditedConfig]:
    monkeypatch.setattr(live_switch, "INTERVAL_ON", 0.0)
    monkeypatch.setattr(live_switch, "INTERVAL_OFF", 0.0)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    PrecisionDebugger.reset()
    yield EditedConfig(tmp_path, Dump)
    PrecisionDebugger.reset()
    ms.set_context(mode=ms.PYNATIVE_MODE)


def test_recording_is_turned_on_and_off_by_editing(file: EditedConfig) -> None:
    file.write(dump_enable=False)
    debugger = PrecisionDebugger(str(file.path))
    original = ops.tanh
    model = Toy()
    for number, switched in enumerate((False, True, True, False, True)):
        if debugger.is_on() != switched:
            file.write(dump_enable=switched)
        train_step(debugger, model, number)
        assert ops.tanh is original
    PrecisionDebugger.reset()
    assert file.dump.steps() == ["step1", "step2", "step4"]


def test_a_static_graph_that_was_compiled_while_it_was_off(file: EditedConfig) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    file.write(level="L0", dump_enable=False)
    debugger = PrecisionDebugger(str(file.path))
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    for number, change in enumerate(({}, {"dump_enable": True}, {"task": "tensor"}, {"dump_enable": False})):
        if change:
            file.write(**change)
        with debugger.recording(model):
            model(batch(number)).asnumpy()
    PrecisionDebugger.reset()
    assert file.dump.steps() == ["step1", "step2"]
    wanted = ["Cell.0.Dense.forward.0", "Cell.0.Dense.parameters_grad", "Cell.1.Tanh.forward.0"]
    assert file.dump.names(1) == file.dump.names(2) == wanted
    assert not file.dump.tensors(1)
    # What goes in and comes out of both cells, and two parameters.
    assert len(file.dump.tensors(2)) == 6


class Part(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 4)

    @ms.jit
    def construct(self, x: Any) -> Any:
        return ops.tanh(self.dense(x))


def test_compiled_cells_that_were_compiled_while_it_was_off(file: EditedConfig, capsys: Any) -> None:
    file.write(level="L0", dump_enable=False)
    debugger = PrecisionDebugger(str(file.path))
    model = nn.SequentialCell(Part())
    for number, change in enumerate(({}, {"dump_enable": True}, {"task": "tensor"}, {"dump_enable": False})):
        if change:
            file.write(**change)
        with debugger.recording(model):
            model(batch(number)).asnumpy()
    PrecisionDebugger.reset()
    compiled, stepwise = Dump(file.dump.folder / "graph"), Dump(file.dump.folder / "pynative")
    assert compiled.steps() == stepwise.steps() == ["step1", "step2"]
    assert "Cell.0.dense.Dense.forward.0" in compiled.names(1)
    assert "Cell.0.Part.forward.0" in stepwise.names(2)
    assert not compiled.tensors(1)
    assert "Cell.0.dense.Dense.forward.0.output.0.npy" in compiled.tensors(2)
    assert "of earlier runs" not in capsys.readouterr().out

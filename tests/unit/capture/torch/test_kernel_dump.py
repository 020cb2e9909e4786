"""Level L2 on an NPU. No NPU is needed: a stand-in for ``torch_npu`` notes how it is driven."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_dumps import Recorder, record
from torch import nn

from msprobe.errors import InvalidInputError

__all__ = ["record"]


class StandInForNpu:
    """Takes the calls that ``torch_npu.npu`` takes, and notes them together with what torch computes
    meanwhile.
    """

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.dumping = False
        self.available = True

    def is_available(self) -> bool:
        return self.available

    def synchronize(self) -> None:
        self.notes.append("synchronize")

    def init_dump(self) -> None:
        self.notes.append("init_dump")

    def set_dump(self, file: str) -> None:
        assert Path(file).is_file()
        self.dumping = True
        self.notes.append(("set_dump", file))

    def finalize_dump(self) -> None:
        self.dumping = False
        self.notes.append("finalize_dump")

    def driven(self) -> list[Any]:
        return [note if isinstance(note, str) else note[0] for note in self.notes if note != "synchronize"]


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> StandInForNpu:
    stand_in = types.ModuleType("torch_npu")
    stand_in.npu = npu = StandInForNpu()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", stand_in)
    return npu


SETTINGS: dict[str, Any] = {"task": "tensor", "level": "L2"}


def test_one_forward_call_is_dumped(record: Recorder, npu: StandInForNpu, capsys: Any) -> None:
    debugger = record(**SETTINGS, list=["Functional.linear.1.forward"])
    weight, x = torch.ones(3, 3), torch.ones(2, 3)
    with debugger.recording():
        seen = []
        for _ in range(3):
            F.linear(x, weight)
            seen.append(len(npu.driven()))
    assert seen == [0, 3, 3]
    assert npu.driven() == ["init_dump", "set_dump", "finalize_dump"]
    file = record.folder / "step0" / "kernel_config.json"
    assert npu.notes[2] == ("set_dump", str(file))
    assert json.loads(file.read_text()) == {
        "dump": {
            "dump_list": [],
            "dump_path": str(file.parent),
            "dump_mode": "all",
            "dump_op_switch": "on",
        }
    }
    assert not (file.parent / "rank").exists()
    record.end()
    assert "[WARNING]" not in capsys.readouterr().out


def test_a_backward_pass_is_repeated_on_copies(record: Recorder, npu: StandInForNpu) -> None:
    debugger = record(**SETTINGS, list=["Functional.linear.0.backward"])

    def train(on: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        x = torch.randn(2, 3, requires_grad=True)
        if on:
            debugger.start(model)
        y = model(x)
        if on:
            assert npu.driven() == []
        (y * y).sum().backward()
        if on:
            debugger.stop()
            debugger.step()
        return [g for g in (x.grad, model.weight.grad, model.bias.grad) if g is not None]

    bare = train(False)
    assert all(torch.equal(a, b) for a, b in zip(bare, train(True), strict=True))
    assert npu.driven() == ["init_dump", "set_dump", "finalize_dump"]


def test_the_file_carries_the_rank(record: Recorder, npu: StandInForNpu) -> None:
    debugger = record(**SETTINGS, list=["Torch.relu.0.forward"])
    debugger.start(rank_id=3)
    torch.relu(torch.ones(2))
    debugger.stop()
    assert (record.folder / "step0" / "kernel_config_3.json").is_file()


def test_a_failing_call_ends_the_dump(record: Recorder, npu: StandInForNpu) -> None:
    debugger = record(**SETTINGS, list=["Torch.matmul.0.forward"])
    debugger.start()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
    debugger.stop()
    assert npu.driven() == ["init_dump", "set_dump", "finalize_dump"]
    assert not npu.dumping


def test_a_tool_that_fails_costs_the_training_nothing(record: Recorder, npu: StandInForNpu) -> None:
    def fail(file: str) -> None:
        raise RuntimeError("no such device")

    npu.set_dump = fail  # type: ignore[method-assign]
    debugger = record(**SETTINGS, list=["Torch.relu.0.forward"])
    debugger.start()
    assert torch.relu(torch.ones(2)).tolist() == [1.0, 1.0]
    debugger.stop()


@pytest.mark.parametrize(
    "settings",
    [
        {"task": "statistics", "level": "L2", "list": ["Torch.relu.0.forward"]},
        {**SETTINGS, "list": []},
        {**SETTINGS, "list": ["Torch.relu.0.forward", "Torch.relu.1.forward"]},
        {
            **SETTINGS,
            "list": ["Torch.relu.0.forward"],
            "scope": ["Torch.relu.0.forward", "Torch.relu.1.forward"],
        },
    ],
)
def test_it_must_be_exactly_one_call(record: Recorder, npu: StandInForNpu, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="level L2 on an NPU"):
        record(**settings)


def test_without_a_device_operators_are_recorded(record: Recorder, npu: StandInForNpu) -> None:
    npu.available = False
    debugger = record(level="L2")
    debugger.start()
    torch.ones(2).sin()
    debugger.stop()
    assert "Aten.sin.0.forward" in record.end().names()
    assert npu.notes == []

"""Records in memory: the same as in the folder of the same recording, and nothing on the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import raising
from support.native_and_python import use_python
from torch import nn

from msprobe.capture import native
from msprobe.errors import InvalidInputError
from msprobe.pytorch import Memory, PrecisionDebugger


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.relu(self.first(x)) / torch.tensor(0.0))
        return result


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    PrecisionDebugger.reset()


def iterate(place: Path, into: Memory | None, **settings: Any) -> None:
    """Two recorded iterations."""
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(place), **{"task": "statistics", "level": "mix", **settings})
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        with debugger.recording(model, into=into):
            model(torch.randn(3, 4).to(torch.bfloat16).float()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    PrecisionDebugger.reset()


def without_rows(record: Any) -> Any:
    """A record without the numbers of rows, which lie in a file of the folder."""
    if isinstance(record, dict):
        return {key: without_rows(value) for key, value in record.items() if key != "row"}
    return [without_rows(value) for value in record] if isinstance(record, list) else record


@pytest.mark.parametrize("side", ["native", "python"])
@pytest.mark.parametrize("settings", [{}, {"level": "L0"}, {"level": "L1"}, {"task": "tensor"}], ids=str)
def test_memory_has_what_reading_the_dump_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], side: str
) -> None:
    if side == "python":
        use_python(monkeypatch)
    elif not native.built:
        pytest.skip("the C extension was not built")
    memory = Memory()
    for into in (None, memory):
        iterate(tmp_path / ("memory" if into else "folder"), into, **settings)
    assert not (tmp_path / "memory").exists()
    assert len(memory) == 2
    for step in (0, 1):
        folder, records = tmp_path / "folder" / f"step{step}" / "rank", memory[step]
        data = json.loads((folder / "dump.json").read_text())["data"]
        # NaN is not equal to itself: compared as text.
        assert list(records) == list(data)
        assert json.dumps([records[name].data for name in records]) == json.dumps(
            [without_rows(record) for record in data.values()]
        )
        construct = json.loads((folder / "construct.json").read_text())
        assert records.parents == construct
        assert {name: records[name].parent for name in records if name in construct} == {
            name: parent for name, parent in construct.items() if name in records
        }
        stacks = {
            name: frames for names, frames in json.loads((folder / "stack.json").read_text()).values() for name in names
        }
        assert {name: list(records[name].stack) for name in records if records[name].stack} == stacks
        assert records.is_complete
        assert not records.errors
        files = sorted(file.name for file in folder.glob("dump_tensor_data/*.pt"))
        assert sorted(records.tensors) == files
        for name in files:
            saved = torch.load(folder / "dump_tensor_data" / name, weights_only=True)
            assert records.tensors[name].array().tobytes() == saved.reshape(-1).view(torch.uint8).numpy().tobytes()
            assert records.tensors[name].shape == tuple(saved.shape)


def test_a_record_says_its_arguments_results_and_statistics_as_numbers(tmp_path: Path) -> None:
    memory = Memory()
    iterate(tmp_path, memory)
    assert memory.last is memory[1, None]
    record = memory[0]["Module.first.Linear.forward.0"]
    (result,) = record.results
    assert result["shape"] == [3, 8]
    assert isinstance(result["Max"], float)
    assert len(record.arguments) == 1
    assert record.order == record.data["msprobe"]["order"]
    assert any("test_memory.py" in frame for frame in record.stack)
    assert memory[0]["Functional.linear.0.forward"].parent == "Module.first.Linear.forward.0"


def test_a_step_that_has_records_in_the_folder_cannot_go_on_in_memory(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    debugger.start()
    torch.ones(2) + 1
    with raising(InvalidInputError, "recorded-already", place="step 0"), debugger.recording(into=Memory()):
        pass
    debugger.stop()
    debugger.step()
    memory = Memory()
    with debugger.recording(into=memory):
        torch.ones(2) * 2
    assert list(memory[1]) == ["Torch.ones.0.forward", "Tensor.__mul__.0.forward"]
    with debugger.recording():
        torch.ones(2) * 2
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step0", "step2"]

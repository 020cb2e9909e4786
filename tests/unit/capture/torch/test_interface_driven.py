"""Recording that is driven by the data loader, or switched by editing the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.dump_folder import EditedConfig
from support.torch_dumps import Dump, Recorder, Toy, record, toy_loss
from torch.utils.data import DataLoader, Dataset, TensorDataset

from msprobe import log
from msprobe.capture import live_switch
from msprobe.pytorch import PrecisionDebugger

__all__ = ["record"]

ROWS = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(ROWS), batch_size=2)


# ------------------------------------------------------------------ the data loader


def test_each_batch_is_a_step(record: Recorder) -> None:
    record(level="L1", enable_dataloader=True)
    model = Toy()
    for (batch,) in loader():
        model(batch).sum().backward()
    torch.relu(torch.ones(2))
    dump = record.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    for number in range(3):
        assert len(dump.names(number, "linear")) == 4
    assert not dump.names(2, "relu")


def test_start_and_stop_in_the_script_do_nothing_then(record: Recorder, capsys: Any) -> None:
    log.forget_once()
    debugger = record(level="L1", enable_dataloader=True)
    model = Toy()
    for (batch,) in loader():
        debugger.start()
        model(batch).sum().backward()
        debugger.stop()
        torch.tanh(torch.ones(2))
        debugger.step()
    dump = record.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    assert "Torch.tanh.0.forward" in dump.names(0)
    told = capsys.readouterr().out
    assert mentions(told, "dataloader-begins-steps") == 3  # start, stop and step, once each


def test_the_first_start_brings_the_model(record: Recorder) -> None:
    debugger = record(level="L0", enable_dataloader=True)
    model = Toy()
    for (batch,) in loader():
        debugger.start(model)
        model(batch).sum().backward()
    dump = record.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    assert dump.names(0) == dump.names(2) != []


def test_several_epochs_go_on_counting(record: Recorder) -> None:
    record(level="L1", enable_dataloader=True, step=[3])
    for _ in range(2):
        for (batch,) in loader():
            batch.relu()
    dump = record.end()
    assert dump.steps() == ["step3"]
    assert dump.names(3, "Tensor.relu")


def test_a_loader_inside_a_data_set_does_not_count(record: Recorder) -> None:
    class Nested(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> torch.Tensor:
            total: torch.Tensor = sum(batch.sum() for (batch,) in loader())  # type: ignore[assignment]
            return total

    record(level="L1", enable_dataloader=True)
    for batch in DataLoader(Nested(), batch_size=None):
        batch.relu()
    assert record.end().steps() == ["step0", "step1"]


def test_the_loaders_are_left_as_they_were(record: Recorder) -> None:
    from torch.utils.data import dataloader

    before = dataloader._BaseDataLoaderIter.__next__
    record(level="L1", enable_dataloader=True)
    assert dataloader._BaseDataLoaderIter.__next__ is not before
    record.end()
    assert dataloader._BaseDataLoaderIter.__next__ is before


# ------------------------------------------------------------------ dump_enable


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EditedConfig:
    monkeypatch.setattr(live_switch, "INTERVAL_ON", 0.0)
    monkeypatch.setattr(live_switch, "INTERVAL_OFF", 0.0)
    PrecisionDebugger.reset()
    return EditedConfig(tmp_path, Dump)


def run(debugger: PrecisionDebugger, model: Toy) -> None:
    debugger.start(model)
    toy_loss(model).backward()
    debugger.stop()
    debugger.step()


def test_recording_is_turned_on_and_off_by_editing(file: EditedConfig) -> None:
    file.write(dump_enable=False)
    debugger = PrecisionDebugger(str(file.path))
    model = Toy()
    run(debugger, model)
    file.write(dump_enable=True)
    run(debugger, model)
    run(debugger, model)
    file.write(dump_enable=False)
    run(debugger, model)
    file.write(dump_enable=True)
    run(debugger, model)
    PrecisionDebugger.reset()
    assert file.dump.steps() == ["step1", "step2", "step4"]


def test_switched_off_in_the_middle_of_a_step(file: EditedConfig) -> None:
    file.write(dump_enable=True)
    debugger = PrecisionDebugger(str(file.path))
    model = Toy()
    debugger.start(model)
    toy_loss(model)
    file.write(dump_enable=False)
    debugger.stop()
    debugger.start(model)
    torch.tanh(torch.ones(2))
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    assert file.dump.names(0, "linear")
    assert not file.dump.names(0, "tanh")


def test_other_changes_count_from_the_next_step_on(file: EditedConfig) -> None:
    file.write(dump_enable=True)
    debugger = PrecisionDebugger(str(file.path))
    model = Toy()
    run(debugger, model)
    file.write(level="L0")
    run(debugger, model)
    PrecisionDebugger.reset()
    assert file.dump.file(0)["level"] == "L1"
    assert file.dump.file(1)["level"] == "L0"
    assert file.dump.names(1, "Module.l1")


def test_what_the_script_gave_still_wins(file: EditedConfig) -> None:
    file.write(dump_enable=True)
    debugger = PrecisionDebugger(str(file.path), level="L0")
    model = Toy()
    file.write(level="L1")
    run(debugger, model)
    PrecisionDebugger.reset()
    assert file.dump.file(0)["level"] == "L0"


def test_registered_functions_survive_a_change(file: EditedConfig) -> None:
    class Holder:
        @staticmethod
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

    file.write(dump_enable=True)
    debugger = PrecisionDebugger(str(file.path))
    debugger.register_custom_api(Holder, "double")
    file.write(level="mix")
    debugger.start(Toy())
    Holder.double(torch.ones(2))
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    assert file.dump.file(0)["level"] == "mix"
    assert file.dump.names(0, "Holder.double.0.forward")


def test_a_broken_edit_changes_nothing(file: EditedConfig, capsys: Any) -> None:
    file.write(dump_enable=True)
    debugger = PrecisionDebugger(str(file.path))
    model = Toy()
    run(debugger, model)
    file.write(level="L9")
    run(debugger, model)
    file.path.write_text("{")
    run(debugger, model)
    PrecisionDebugger.reset()
    assert file.dump.steps() == ["step0", "step1", "step2"]
    assert mentions(capsys.readouterr().out, "changed-config-not-used")


def test_without_the_field_the_file_is_read_once(file: EditedConfig) -> None:
    file.write()
    debugger = PrecisionDebugger(str(file.path))
    model = Toy()
    run(debugger, model)
    file.write(level="L0")
    run(debugger, model)
    PrecisionDebugger.reset()
    assert file.dump.file(1)["level"] == "L1"


def test_the_file_is_not_looked_at_all_the_time(file: EditedConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_switch, "INTERVAL_OFF", 1000.0)
    file.write(dump_enable=False)
    debugger = PrecisionDebugger(str(file.path))
    file.write(dump_enable=True)
    run(debugger, Toy())
    PrecisionDebugger.reset()
    assert file.dump.steps() == []

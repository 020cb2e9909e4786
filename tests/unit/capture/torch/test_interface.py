"""PrecisionDebugger as scripts use it: in the right order, in wrong orders, and with wrong arguments."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.coded_texts import mentions, raising
from support.torch_dumps import Recorder, Toy, record, toy_loss
from torch import nn

from msprobe import log
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError
from msprobe.messages import said
from msprobe.pytorch import PrecisionDebugger

__all__ = ["record"]


@pytest.fixture
def model() -> Toy:
    torch.manual_seed(1)
    return Toy()


def step(debugger: PrecisionDebugger, model: nn.Module, seed: int = 0) -> None:
    debugger.start(model)
    toy_loss(model, seed).backward()
    debugger.stop()
    debugger.step()


# ------------------------------------------------------------------ the usual order


def test_a_second_construction_is_the_first_object(record: Recorder, capsys: Any) -> None:
    log.forget_once()
    first = record(level="L1")
    second = PrecisionDebugger(dump_path="/somewhere/else", level="L0")
    assert second is first
    assert second.settings.level == "L1"
    assert mentions(capsys.readouterr().out, "debugger-constructed-twice")


def test_methods_work_on_the_class(record: Recorder, model: Toy) -> None:
    record(level="L0")
    PrecisionDebugger.start(model)
    toy_loss(model).backward()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert record.end().names(part="forward.0")


@pytest.mark.parametrize("kind", [list, tuple])
def test_one_model_in_a_container_carries_an_index_too(record: Recorder, model: Toy, kind: Any) -> None:
    debugger = record(level="L0")
    debugger.start(kind([model]))
    toy_loss(model)
    debugger.stop()
    assert "Module.0.l1.Linear.forward.0" in record.end().names()


def test_as_a_context_manager(record: Recorder, model: Toy) -> None:
    with record(level="L1") as debugger:
        for _ in range(2):
            with debugger.recording(model):
                toy_loss(model).backward()
        F.relu(torch.ones(2))
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    assert not dump.names(1, "relu")


def test_an_exception_in_a_recorded_block_ends_the_step(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    with pytest.raises(KeyError), debugger.recording(model):
        toy_loss(model)
        raise KeyError
    step(debugger, model)
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    assert dump.names(0, "linear")


# ------------------------------------------------------------------ unusual orders


def test_stop_and_step_before_start_do_nothing_but_count(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.stop()
    debugger.step()
    step(debugger, model)
    assert record.end().steps() == ["step1"]


def test_starting_twice_changes_nothing(record: Recorder, model: Toy) -> None:
    debugger = record(level="mix")
    debugger.start(model)
    debugger.start(model)
    toy_loss(model).backward()
    debugger.stop()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    twice = record.end().names()
    record(level="mix")
    step(PrecisionDebugger(), model)
    assert record.end().names() == twice


def test_step_without_stop_goes_on_in_the_next_step(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.start(model)
    toy_loss(model).backward()
    debugger.step()
    toy_loss(model).backward()
    debugger.step()
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    assert dump.names(0, "linear") == dump.names(1, "linear")
    assert not dump.errors()


def test_without_any_step_all_lands_in_step_0(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    for _ in range(2):
        debugger.start(model)
        toy_loss(model).backward()
        debugger.stop()
    dump = record.end()
    assert dump.steps() == ["step0"]
    assert "Functional.linear.3.backward" in dump.names()


def test_starting_again_in_a_step_goes_on_counting(record: Recorder, model: Toy) -> None:
    debugger = record(level="mix")
    debugger.start(model)
    toy_loss(model).backward()
    debugger.stop()
    F.relu(torch.ones(2))
    debugger.start(model)
    toy_loss(model).backward()
    debugger.stop()
    debugger.step()
    names = record.end().names()
    assert "Module.l1.Linear.forward.1" in names
    assert "Functional.linear.2.backward" in names
    assert not [n for n in names if "relu" in n]


def test_backward_after_stop_is_still_seen_before_step(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.start(model)
    loss = toy_loss(model)
    debugger.stop()
    loss.backward()
    debugger.step()
    names = record.end().names()
    assert "Functional.linear.0.backward" in names
    assert "Functional.softmax.0.backward" in names


def test_backward_after_step_is_lost(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.start(model)
    loss = toy_loss(model)
    debugger.stop()
    debugger.step()
    loss.backward()
    step(debugger, model)
    dump = record.end()
    assert not dump.names(0, "backward")
    assert len(dump.names(1, "linear")) == 4
    assert not dump.errors()


def test_steps_and_the_first_step_number(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1", step=[5, "7-8"])
    debugger.set_init_step(4)
    for _ in range(6):
        step(debugger, model)
    assert record.end().steps() == ["step5", "step7", "step8"]


@pytest.mark.parametrize("steps", [[], [0, 7, 8], [7, 8]])
def test_a_number_set_inside_a_step_is_that_of_the_next(
    record: Recorder, model: Toy, steps: list[int], capsys: Any
) -> None:
    log.forget_once()
    debugger = record(level="L1", step=steps)
    debugger.start(model)
    toy_loss(model)
    debugger.set_init_step(3)
    debugger.set_init_step(7)
    debugger.stop()
    debugger.step()
    step(debugger, model)
    step(debugger, model)
    dump = record.end()
    assert dump.steps() == ([] if steps == [7, 8] else ["step0"]) + ["step7", "step8"]
    assert mentions(capsys.readouterr().out, "init-step-later", step=0) == 1


def test_behind_the_last_step_recording_is_over(record: Recorder, model: Toy, capsys: Any) -> None:
    debugger = record(level="mix", step=[0])
    step(debugger, model)
    assert mentions(capsys.readouterr().out, "all-recorded")
    step(debugger, model)
    assert capsys.readouterr().out == ""
    assert record.end().steps() == ["step0"]


def test_rank_id_names_the_folder(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.start(model, rank_id=3)
    toy_loss(model)
    debugger.stop()
    debugger.step()
    assert record.end().data(rank="rank3")


# ------------------------------------------------------------------ exceptions of the user's


class Moody(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)
        self.bad = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.bad:
            raise ValueError("not today")
        result: torch.Tensor = self.last(x)
        return result


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.moody = Moody()
        self.tail = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            x = self.moody(x)
        except ValueError:
            self.moody.bad = False
            x = self.moody(x)
        result: torch.Tensor = self.tail(x)
        return result


def test_a_module_that_raised_leaves_the_hierarchy_right(record: Recorder) -> None:
    debugger = record(level="mix")
    model = Around()
    debugger.start(model)
    model(torch.ones(2, 4)).sum().backward()
    debugger.stop()
    dump = record.end()
    assert "not today" in dump.data()["Module.moody.Moody.forward.0"]["error"]
    parents = dump.file(0, "construct.json")
    assert parents["Module.moody.Moody.forward.0"] is None
    assert parents["Module.moody.Moody.forward.1"] is None
    assert parents["Module.moody.inner.Linear.forward.1"] == "Module.moody.Moody.forward.1"
    assert parents["Module.moody.last.Linear.forward.0"] == "Module.moody.Moody.forward.1"
    assert parents["Module.tail.Linear.forward.0"] is None
    assert parents["Functional.linear.3.forward"] == "Module.tail.Linear.forward.0"


# ------------------------------------------------------------------ nothing left behind


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
def test_after_stop_everything_is_as_before(record: Recorder, model: Toy, level: str) -> None:
    gelu, add, apply = F.gelu, torch.Tensor.add, torch.autograd.Function.apply
    debugger = record(level=level)
    debugger.start(model)
    loss = toy_loss(model)
    assert F.gelu is gelu
    debugger.stop()
    loss.backward()
    assert F.gelu is gelu
    assert torch.Tensor.add is add
    assert torch.autograd.Function.apply == apply
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin.l1.weight, model.l1.weight)
    file = io.BytesIO()
    torch.save(model, file)
    assert file.tell() > 0


# ------------------------------------------------------------------ chosen calls of a model


def test_token_range_records_the_chosen_calls_only(record: Recorder, model: Toy) -> None:
    debugger = record(level="mix")
    debugger.start(model, token_range=[1, 2])
    for seed in range(5):
        toy_loss(model, seed)
    debugger.stop()
    debugger.step()
    names = record.end().names()
    assert [n for n in names if n.startswith("Module.l1")][:2] == [
        "Module.l1.Linear.forward.0",
        "Module.l1.Linear.parameters_grad",
    ]
    assert "Module.l1.Linear.forward.1" in names
    assert "Module.l1.Linear.forward.2" not in names
    # What happens between two calls of the model is recorded between the chosen ones only.
    assert len([n for n in names if n.startswith("Tensor.__pow__")]) == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("tokens", [[1, 2], [0, 0]])
def test_token_range_with_the_root_recorded_too(record: Recorder, model: Toy, tokens: list[int]) -> None:
    debugger = record(level="L0", record_root=True)
    debugger.start(model, token_range=tokens)
    for seed in range(4):
        toy_loss(model, seed)
    debugger.stop()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    dump = record.end()
    assert len(dump.names(0, "Module.l1.Linear.forward")) == tokens[1] - tokens[0] + 1
    # The root's own first pass has begun before the recording.
    assert len(dump.names(0, "Module.root.Toy.forward")) == tokens[1] - tokens[0]


def test_token_range_works_at_level_l1(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.start(model, token_range=(0, 0))
    for seed in range(3):
        toy_loss(model, seed)
    debugger.stop()
    names = record.end().names()
    assert "Functional.linear.1.forward" in names
    assert "Functional.linear.2.forward" not in names


def test_token_range_counts_anew_at_each_start(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    for _ in range(2):
        debugger.start(model, token_range=[0, 0])
        toy_loss(model)
        toy_loss(model)
        debugger.stop()
        debugger.step()
    dump = record.end()
    assert dump.names(0, "linear") == dump.names(1, "linear") != []


def test_a_copy_of_the_model_made_meanwhile_counts_nothing(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    debugger.start(model, token_range=[1, 1])
    twin = copy.deepcopy(model)
    toy_loss(twin)
    toy_loss(twin)
    assert record.dump.steps() == []
    debugger.stop()


# ------------------------------------------------------------------ wrong arguments and calls


@pytest.mark.parametrize(
    "call",
    [
        lambda: PrecisionDebugger.start(),
        lambda: PrecisionDebugger.stop(),
        lambda: PrecisionDebugger.step(),
        lambda: PrecisionDebugger.save(1, "x"),
        lambda: PrecisionDebugger.forward_backward_dump_end(),
        lambda: PrecisionDebugger.set_init_step(1),
        lambda: PrecisionDebugger.monitor(nn.Linear(1, 1)),
        lambda: PrecisionDebugger.register_custom_api(torch, "relu"),
        lambda: PrecisionDebugger.restore_custom_api(torch, "relu"),
        lambda: PrecisionDebugger.recording(),
    ],
)
def test_methods_need_a_debugger(call: Any) -> None:
    PrecisionDebugger.reset()
    with raising(Exception, "debugger-not-created"):
        call()


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_levels_with_modules_need_a_model(record: Recorder, level: str) -> None:
    debugger = record(level=level)
    with raising(InvalidInputError, "level-needs-model", level=level, what="modules"):
        debugger.start()
    told = debugger.recorder.session.outcome.lines(debugger.settings)
    assert told == [(True, said("no-dump-written", said("start-raised")))]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (5, "found int"),
        ({}, "found dict"),
        (nn.Linear, "found the class Linear"),
        ([5], r"model\[0\] must be .* found int"),
        ([], "empty list"),
        ((), "empty tuple"),
        (lambda x: x, "found function"),
    ],
)
def test_a_wrong_model_is_named(record: Recorder, model: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        record(level="L0").start(model)


def test_a_scripted_model_is_refused(record: Recorder) -> None:
    with pytest.raises(InvalidInputError, match="ScriptModule"):
        record(level="L0").start(torch.jit.script(nn.Linear(2, 2)))


@pytest.mark.parametrize("tokens", [5, [1], [2, 1], ["a", 2], [-1, 2], [0, 1.5], [0, True], [0, 1, 2], "01", {0: 1}])
def test_a_wrong_token_range_is_reported(record: Recorder, model: Toy, tokens: Any) -> None:
    with raising(InvalidInputError, "token-range-wrong"):
        record(level="L1").start(model, token_range=tokens)


def test_a_token_range_needs_a_model(record: Recorder) -> None:
    with raising(InvalidInputError, "token-range-needs-model"):
        record(level="L1").start(token_range=[0, 1])


@pytest.mark.parametrize("number", [-1, 1.5, True, "1", None])
def test_a_wrong_first_step_is_reported(record: Recorder, number: Any) -> None:
    with pytest.raises(InvalidInputError, match="set_init_step"):
        record().set_init_step(number)


@pytest.mark.parametrize("number", [-1, 1.5, True, "1"])
def test_a_wrong_rank_id_is_reported(record: Recorder, model: Toy, number: Any) -> None:
    with pytest.raises(InvalidInputError, match="rank_id"):
        record(level="L1").start(model, rank_id=number)


def test_a_failed_construction_leaves_no_debugger(tmp_path: Path) -> None:
    PrecisionDebugger.reset()
    with pytest.raises(MsprobeError):
        PrecisionDebugger(dump_path=str(tmp_path), level="L9")
    with raising(Exception, "debugger-not-created"):
        PrecisionDebugger.stop()


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MsprobeError, match="file"):
        PrecisionDebugger(dump_path=str(tmp_path / "file"))


def test_the_model_of_the_constructor_is_deprecated_and_used(record: Recorder, model: Toy, capsys: Any) -> None:
    debugger = record(level="L0", model=model)
    assert mentions(capsys.readouterr().out, "model-argument-deprecated")
    debugger.start()
    toy_loss(model)
    debugger.stop()
    assert record.end().names(part="l1.Linear.forward")


def test_monitor_leaves_model_and_recording_as_they_are(record: Recorder, model: Toy) -> None:
    debugger = record(level="L1")
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    debugger.monitor(model)
    assert {name: vars(module) for name, module in model.named_modules()} == before
    assert not debugger.recorder.session.recording
    step(debugger, model)
    assert record.end().names(part="linear.0.forward") == ["Functional.linear.0.forward"]


# ------------------------------------------------------------------ what is imported from here


@pytest.mark.parametrize("name", ["AclGraphDumper", "random_save"])
def test_tools_of_later_versions_can_be_imported_and_say_so(name: str) -> None:
    import msprobe.pytorch

    tool = getattr(msprobe.pytorch, name)
    with pytest.raises(NotAvailableError, match=name):
        tool("a.json")


def test_random_save_is_refused_as_what_it_is_and_names_what_lists_such_calls_here() -> None:
    from msprobe.pytorch import random_save

    with raising(NotAvailableError, "torch-name-not-available", name="random_save"):
        random_save("folder")


@pytest.mark.parametrize("tokens", [{"request": 3}, {}, [1, 2]])
def test_rows_of_one_request_are_refused_at_start_and_nothing_is_recorded(
    record: Recorder, model: Toy, tokens: object
) -> None:
    debugger = record(level="L0")
    with raising(NotAvailableError, "scheduled-tokens-not-available"):
        debugger.start(model, scheduled_tokens=tokens)
    assert record.end().steps() == []


def test_unknown_names_are_an_import_error() -> None:
    with pytest.raises(ImportError):
        from msprobe.pytorch import nonsense  # type: ignore[attr-defined]  # noqa: F401


def test_what_is_there_for_mindspore_only(record: Recorder) -> None:
    with raising(InvalidInputError, "summary-mode-for-torch", unknown='"hash", "nan count"'):
        record(summary_mode=["max", "hash", "nan count"])
    with raising(NotAvailableError, "exception-dump-for-torch"):
        record(task="exception_dump")

"""Optimizer steps: what went in and what came out, for every kind of optimizer."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger

optimizer_module = importlib.import_module("torch.optim.optimizer")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.last = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.first(x).tanh()) * self.scale
        return result


NAMES = ["scale", "first.weight", "first.bias", "last.weight", "last.bias"]


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def backward(model: nn.Module, factor: float = 1.0) -> torch.Tensor:
    loss: torch.Tensor = model(torch.arange(8.0).reshape(2, 4) / 8).square().mean() * factor
    loss.backward()
    return loss


class Recording:
    """What one recorded step left behind."""

    def __init__(self, folder: Path) -> None:
        self.data: dict[str, Any] = json.loads((folder / "dump.json").read_text())["data"]
        construct = folder / "construct.json"
        self.construct: dict[str, Any] = json.loads(construct.read_text())
        self.stack = json.loads((folder / "stack.json").read_text())
        self.files = {file.name for file in folder.glob("dump_tensor_data/*")}
        self.folder = folder

    def steps(self) -> list[str]:
        return [name for name in self.data if name.startswith("Optimizer.")]


Record = Callable[..., Recording]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Run a function while recording."""

    def run(work: Callable[[], Any], model: nn.Module | None = None, **settings: Any) -> Recording:
        settings = {"task": "statistics", "level": "L1", **settings}
        debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), **settings)
        debugger.start(model)
        try:
            work()
        finally:
            debugger.stop()
            debugger.step()
            PrecisionDebugger.reset()
        return Recording(tmp_path / "dump/step0/rank")

    yield run
    PrecisionDebugger.reset()


def value(info: dict[str, Any]) -> tuple[Any, Any]:
    return info["Max"], info["Norm"]


def expected(tensor: torch.Tensor) -> tuple[Any, Any]:
    return tensor.max().item(), pytest.approx(torch.linalg.vector_norm(tensor.double()).item(), rel=1e-6)


# ---------------------------------------------------------------- what a record says


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_step_shows_weights_gradients_and_state_before_and_after(record: Record, model: Model, level: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    backward(model)
    optimizer.step()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    moments = {name: optimizer.state[p]["exp_avg"].clone() for name, p in model.named_parameters()}

    def work() -> None:
        optimizer.zero_grad()
        backward(model)
        optimizer.step()

    recording = record(work, model, level=level)
    assert recording.steps() == ["Optimizer.AdamW.0.forward"]
    entry = recording.data["Optimizer.AdamW.0.forward"]
    given, made = entry["input_kwargs"], entry["output"][0]
    assert list(given) == list(made) == NAMES
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert value(given[name]["weight"]) == expected(before[name])
        assert value(given[name]["grad"]) == expected(parameter.grad)
        assert value(given[name]["exp_avg"]) == expected(moments[name])
        assert value(made[name]["weight"]) == expected(parameter.detach())
        for key in ("exp_avg", "exp_avg_sq"):
            assert value(made[name][key]) == expected(optimizer.state[parameter][key])
        assert (given[name]["step"]["Max"], made[name]["step"]["Max"]) == (1, 2)


def test_hyper_parameters_of_each_group_are_reported(record: Record, model: Model) -> None:
    groups = [
        {"params": model.first.parameters()},
        {"params": model.last.parameters(), "lr": 0.5, "betas": (0.5, 0.6)},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.25, weight_decay=0.125)
    entry = record(lambda: backward(model) + (optimizer.step() or 0), model).data["Optimizer.AdamW.0.forward"]
    assert entry["class"] == "torch.optim.adamw.AdamW"
    first, last = entry["groups"]
    assert first["params"] == ["first.weight", "first.bias"]
    assert last["params"] == ["last.weight", "last.bias"]
    assert (first["lr"]["value"], last["lr"]["value"]) == (0.25, 0.5)
    assert [beta["value"] for beta in last["betas"]] == [0.5, 0.6]
    assert first["weight_decay"] == {"type": "float", "value": 0.125}


def test_parameters_of_no_known_model_are_called_by_their_place(record: Record, model: Model) -> None:
    groups = [{"params": [model.scale]}, {"params": list(model.last.parameters())}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    entry = record(lambda: backward(model) + (optimizer.step() or 0)).data["Optimizer.SGD.0.forward"]
    assert list(entry["input_kwargs"]) == ["g0.p0", "g1.p0", "g1.p1"]


def test_several_models_have_their_index_before_the_name(record: Record, model: Model) -> None:
    other = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([model.scale, other.weight], lr=0.1)
    recording = record(lambda: backward(model) + (optimizer.step() or 0), [model, other], level="L0")  # type: ignore[arg-type]
    assert list(recording.data["Optimizer.SGD.0.forward"]["input_kwargs"]) == ["0.scale", "1.weight"]


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_loops_foreach_and_fused_steps_show_the_same(
    record: Record, model: Model, kind: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    optimizer = kind(model.parameters(), lr=0.1, **options)  # type: ignore[call-arg]

    def work() -> None:
        # The weights are looked at before and after, and a fused step does not count as a write.
        model(torch.ones(2, 4))
        backward(model)
        optimizer.step()
        model(torch.ones(2, 4))

    recording = record(work, model, level="mix")
    entry = recording.data[f"Optimizer.{kind.__name__}.0.forward"]
    for name, parameter in model.named_parameters():
        assert value(entry["output"][0][name]["weight"]) == expected(parameter.detach())
        assert entry["input_kwargs"][name]["weight"] != entry["output"][0][name]["weight"]
    later = recording.data["Module.first.Linear.forward.2"]
    assert value(later["parameters"]["weight"]) == expected(model.first.weight.detach())


def test_a_closure_is_run_once_and_its_last_gradients_are_reported(record: Record, model: Model) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    calls: list[int] = []

    def closure() -> torch.Tensor:
        calls.append(1)
        optimizer.zero_grad()
        return backward(model)

    alone = copy.deepcopy(model)
    other = torch.optim.LBFGS(alone.parameters(), max_iter=3)

    def alone_closure() -> torch.Tensor:
        other.zero_grad()
        return backward(alone)

    recording = record(lambda: optimizer.step(closure), model, level="mix")
    other.step(alone_closure)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    entry = recording.data["Optimizer.LBFGS.0.forward"]
    assert entry["closure"] is True
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert value(entry["input_kwargs"][name]["grad"]) == expected(parameter.grad)
    assert entry["output"][0]["scale"]["func_evals"] == {"type": "int", "value": len(calls)}
    # The closure is a pass of the model, not the work of the optimizer.
    assert recording.construct["Module.first.Linear.forward.0"] is None


def test_a_parameter_without_gradient_has_null(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def work() -> None:
        backward(model)
        model.scale.grad = None
        optimizer.step()

    entry = record(work, model).data["Optimizer.SGD.0.forward"]
    assert entry["input_kwargs"]["scale"]["grad"] is None
    assert entry["input_kwargs"]["scale"]["weight"] == entry["output"][0]["scale"]["weight"]


def test_a_sparse_gradient_is_reported(record: Record) -> None:
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    entry = record(lambda: (table(torch.tensor([1, 3])).sum().backward(), optimizer.step())).data
    gradient = entry["Optimizer.SparseAdam.0.forward"]["input_kwargs"]["g0.p0"]["grad"]
    assert gradient["shape"] == [5, 2]
    assert gradient["Max"] == 1


def test_two_optimizers_and_two_steps_are_numbered(record: Record, model: Model) -> None:
    first = torch.optim.SGD(model.first.parameters(), lr=0.1)
    last = torch.optim.Adam(model.last.parameters(), lr=0.1)

    def work() -> None:
        backward(model)
        first.step()
        last.step()
        first.step()

    assert record(work, model).steps() == [
        "Optimizer.SGD.0.forward",
        "Optimizer.Adam.0.forward",
        "Optimizer.SGD.1.forward",
    ]


def test_a_step_that_calls_the_step_of_its_base_is_one_step(record: Record, model: Model) -> None:
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    # Both classes get torch's hooks once they have been used.
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Own(model.parameters(), lr=0.1)
    recording = record(lambda: backward(model) + (optimizer.step() or 0), model, level="mix")
    assert recording.steps() == ["Optimizer.Own.0.forward"]


def test_an_optimizer_that_keeps_its_state_elsewhere_gets_no_empty_state(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    record(lambda: backward(model) + (optimizer.step() or 0), model, optimizer=True)
    assert not any(optimizer.state.values())
    bare = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    record(bare.step, optimizer=True)
    assert len(bare.state) == 0


# ---------------------------------------------------------------- the region


def test_calls_of_the_step_belong_to_the_optimizer_and_later_ones_do_not(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        backward(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        torch.ones(2).exp()

    construct = record(work, model, level="mix").construct
    assert (construct["optimizer"], construct["clip_grad"]) == (None, None)
    steps = [name for name in construct if name.startswith("Tensor.add_.")]
    assert steps
    assert {construct[name] for name in steps} == {"optimizer"}
    assert construct["Optimizer.SGD.0.forward"] == "optimizer"
    assert construct["Tensor.exp.0.forward"] is None
    assert list(construct).count("optimizer") == 1


def test_a_step_that_raises_leaves_the_region_and_is_marked(record: Record, model: Model) -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            torch.ones(2).sin()
            raise ValueError("not today")

    optimizer = Failing(model.parameters(), lr=0.1)

    def work() -> None:
        backward(model)
        with pytest.raises(ValueError, match="not today"):
            optimizer.step()
        torch.ones(2).cos()

    recording = record(work, model, level="mix")
    assert recording.construct["Tensor.sin.0.forward"] == "optimizer"
    assert recording.construct["Tensor.cos.0.forward"] is None
    entry = recording.data["Optimizer.Failing.0.forward"]
    assert entry["error"] == "ValueError: not today"
    assert entry["output"] == [None]


def test_at_level_L0_modules_of_a_closure_have_no_parent_that_is_not_there(record: Record, model: Model) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)
    construct = record(lambda: optimizer.step(lambda: backward(model)), model, level="L0").construct
    assert {parent for parent in construct.values() if parent is not None} <= set(construct)


# ---------------------------------------------------------------- when it is recorded


@pytest.mark.parametrize(("asked", "steps"), [(None, 0), (True, 1), (False, 0)])
def test_a_list_leaves_the_optimizer_out_unless_it_was_asked_for(
    record: Record, model: Model, asked: bool | None, steps: int
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    work = lambda: backward(model) + (optimizer.step() or 0)  # noqa: E731
    assert len(record(work, model, list=["tanh"], optimizer=asked).steps()) == steps


def test_the_optimizer_can_be_left_out(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    work = lambda: backward(model) + (optimizer.step() or 0)  # noqa: E731
    recording = record(work, model, optimizer=False, level="mix")
    assert recording.steps() == []
    assert recording.construct["optimizer"] is None


@pytest.mark.parametrize(("asked", "saved"), [(None, False), (True, True)])
def test_whole_weights_are_saved_only_when_asked_for(
    record: Record, model: Model, asked: bool | None, saved: bool
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = model.first.weight.detach().clone()
    work = lambda: backward(model) + (optimizer.step() or 0)  # noqa: E731
    recording = record(work, model, task="tensor", optimizer=asked)
    files = {name for name in recording.files if name.startswith("Optimizer.")}
    assert bool(files) == saved
    if saved:
        folder = recording.folder / "dump_tensor_data"
        path = "Optimizer.SGD.0.forward.{}.first.weight.{}.pt"
        old = torch.load(folder / path.format("kwargs", "weight"), weights_only=True)
        new = torch.load(folder / path.format("output.0", "weight"), weights_only=True)
        assert torch.equal(old, before)
        assert torch.equal(new, model.first.weight.detach())
        assert path.format("kwargs", "grad") in files
        assert path.format("output.0", "momentum_buffer") in files


def test_input_and_output_of_data_mode_are_obeyed(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    work = lambda: backward(model) + (optimizer.step() or 0)  # noqa: E731
    entry = record(work, model, data_mode=["forward", "output"]).data["Optimizer.SGD.0.forward"]
    assert "input_kwargs" not in entry
    assert "output" in entry


def test_an_overflow_check_keeps_a_step_with_infinite_gradients_only(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def work() -> None:
        backward(model)
        optimizer.step()
        assert model.scale.grad is not None
        model.scale.grad.fill_(1e38).mul_(1e38)
        optimizer.step()

    recording = record(work, model, task="overflow_check", overflow_nums=-1)
    assert recording.steps() == ["Optimizer.SGD.1.forward"]


# ---------------------------------------------------------------- scaled gradients


def scaled_steps(model: Model, record: Record, factors: list[float], unscale: bool = False) -> Recording:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def work() -> None:
        for factor in factors:
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 4)).square().mean() * factor).backward()
            if unscale:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            scaler.step(optimizer)
            scaler.update()

    return record(work, model, level="mix")


@pytest.mark.parametrize("unscale", [False, True])
def test_a_scaled_step_shows_unscaled_gradients_and_the_scale(record: Record, model: Model, unscale: bool) -> None:
    plain = copy.deepcopy(model)
    plain(torch.ones(2, 4)).square().mean().backward()
    entry = scaled_steps(model, record, [1.0], unscale).data["Optimizer.SGD.0.forward"]
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        assert entry["input_kwargs"][name]["grad"]["Norm"] == pytest.approx(
            torch.linalg.vector_norm(parameter.grad).item(), rel=1e-5
        )
    assert entry["grad_scaler"]["scale"]["Max"] == 8
    assert entry["grad_scaler"]["found_inf"]["cpu"]["Max"] == 0


def test_a_step_that_the_scaler_skipped_is_reported(record: Record, model: Model) -> None:
    recording = scaled_steps(model, record, [1.0, float("inf"), 1.0])
    assert recording.steps() == [f"Optimizer.SGD.{n}.forward" for n in range(3)]
    skipped = recording.data["Optimizer.SGD.1.forward"]
    assert skipped["skipped"] is True
    assert skipped["output"] == [None]
    assert skipped["grad_scaler"]["found_inf"]["cpu"]["Max"] == 1
    last = recording.data["Optimizer.SGD.2.forward"]
    assert "skipped" not in last
    assert last["grad_scaler"]["scale"]["Max"] == 4


# ---------------------------------------------------------------- innocence


def test_the_optimizer_can_be_copied_pickled_and_saved_while_recording(record: Record, model: Model) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def work() -> None:
        backward(model)
        optimizer.step()
        copied = copy.deepcopy(optimizer)
        loaded = pickle.loads(pickle.dumps(optimizer))
        assert len(copied.state) == len(loaded.state) == 5

    record(work, model, level="mix")


def test_nothing_is_left_after_stop(record: Record, model: Model) -> None:
    from torch.autograd.profiler import record_function

    before = (record_function.__exit__, torch.amp.GradScaler.step, torch.amp.GradScaler.unscale_)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    record(lambda: backward(model) + (optimizer.step() or 0), model)
    assert (record_function.__exit__, torch.amp.GradScaler.step, torch.amp.GradScaler.unscale_) == before
    assert not optimizer_module._global_optimizer_pre_hooks
    assert not optimizer_module._global_optimizer_post_hooks
    assert not optimizer._optimizer_step_pre_hooks


def test_a_compiled_model_in_a_closure_does_not_end_the_step(record: Record, model: Model) -> None:
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        return backward(compiled)

    def work() -> None:
        optimizer.step(closure)
        torch.ones(2).cos()

    recording = record(work, model, level="mix")
    assert "error" not in recording.data["Optimizer.LBFGS.0.forward"]
    assert recording.construct["Tensor.cos.0.forward"] is None
    assert not optimizer_module._global_optimizer_pre_hooks


def test_users_own_hooks_and_profiler_ranges_work_as_ever(record: Record, model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))

    def work() -> None:
        with torch.autograd.profiler.record_function("Optimizer.step#mine"):
            backward(model)
        optimizer.step()

    assert record(work, model).steps() == ["Optimizer.SGD.0.forward"]
    assert seen == ["before", "after"]


def test_a_hook_of_a_step_may_import_what_nobody_has_imported_yet(tmp_path: Path) -> None:
    """torch goes through its hooks of optimizers meanwhile, and an import takes most of ours away."""
    name = "torch.utils.bundled_inputs"
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    imported = []

    def before(*_: Any) -> None:
        sys.modules.pop(name, None)
        imported.append(importlib.import_module(name))

    handle = optimizer_module.register_optimizer_step_pre_hook(before)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="mix")
    try:
        with debugger.recording(model):
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    finally:
        handle.remove()
        PrecisionDebugger.reset()
    (file,) = tmp_path.rglob("dump.json")
    assert imported
    assert "Optimizer.SGD.0.forward" in json.loads(file.read_text())["data"]

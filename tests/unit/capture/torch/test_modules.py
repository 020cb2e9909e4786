"""Passes through modules: what goes in and out, parameters and their gradients, names; hooks that leave no trace."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import Dump, ModelT, is_value_of, loss_of, record
from torch import nn

from msprobe.capture.torch.modules.models import name_modules
from msprobe.pytorch import PrecisionDebugger

Tensor = torch.Tensor


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor, *, shift: Tensor | None = None) -> Tensor:
        self.count += 1  # type: ignore[operator]
        y = self.linear(x) * self.scale + self.frozen
        return y if shift is None else y + shift


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(F.relu(self.first(x)), shift=x)
        return result


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


# ---------------------------------------------------------------- forward


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_pass_shows_inputs_keywords_results_and_parameters(tmp_path: Path, net: Net, x: Tensor, level: str) -> None:
    dump = record(tmp_path, lambda: net(x), net, level=level)
    entry = dump.data["Module.second.Block.forward.0"]
    hidden = F.relu(copy.deepcopy(net.first)(x))
    assert is_value_of(entry["input_args"][0], hidden)
    assert is_value_of(entry["input_kwargs"]["shift"], x)
    assert is_value_of(entry["output"][0], net.second(hidden, shift=x))
    # Its own parameters only, also those that are frozen.
    assert list(entry["parameters"]) == ["scale", "frozen"]
    assert entry["parameters"]["frozen"]["requires_grad"] is False
    assert dump.construct["Module.second.linear.Linear.forward.0"] == "Module.second.Block.forward.0"


def test_inputs_are_those_from_before(tmp_path: Path) -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(10)

    model = nn.Sequential(Writes())
    entry = record(tmp_path, lambda: model(torch.ones(2)), model, level="L0").data["Module.0.Writes.forward.0"]
    assert entry["input_args"][0]["Max"] == 1
    assert entry["output"][0]["Max"] == 10


def test_evaluation_is_reported_and_training_is_not(tmp_path: Path, net: Net, x: Tensor) -> None:
    net.second.eval()
    data = record(tmp_path, lambda: net(x), net, level="L0").data
    assert data["Module.second.Block.forward.0"]["training"] is False
    assert "training" not in data["Module.first.Block.forward.0"]


def test_buffers_when_asked_for(tmp_path: Path, net: Net, x: Tensor) -> None:
    data = record(tmp_path, lambda: net(x), net, level="L0", buffers=True).data
    assert data["Module.first.Block.forward.0"]["buffers"]["count"]["Max"] == 1
    assert "buffers" not in record(tmp_path / "b", lambda: net(x), net, level="L0").data["Module.first.Block.forward.0"]


def test_passes_are_numbered_by_module_and_step(tmp_path: Path, net: Net, x: Tensor) -> None:
    def work() -> None:
        net(x)
        net.first(x)

    names = record(tmp_path, work, net, level="L0").names
    assert [n for n in names if n.startswith("Module.first.Block")] == [
        "Module.first.Block.forward.0",
        "Module.first.Block.forward.1",
    ]
    assert "Module.second.Block.forward.1" not in names


def test_a_module_that_is_there_twice_has_its_first_name(tmp_path: Path, x: Tensor) -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": shared, "b": shared})

    def work() -> None:
        loss_of(model["b"](model["a"](x))).backward()

    dump = record(tmp_path, work, model, level="L0")
    assert dump.names == [
        "Module.a.Linear.forward.0",
        "Module.a.Linear.forward.1",
        "Module.a.Linear.backward.1",
        "Module.a.Linear.backward.0",
    ]
    assert shared.weight.grad is not None
    assert is_value_of(dump.data["Module.a.Linear.parameters_grad"]["weight"][0], shared.weight.grad)


def test_a_module_that_calls_itself(tmp_path: Path, x: Tensor) -> None:
    class Again(nn.Module):
        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            return torch.tanh(self(x, depth - 1)) if depth else x

    model = nn.Sequential(Again())
    dump = record(tmp_path, lambda: model(x), model, level="mix")
    parents = dump.construct
    assert parents["Module.0.Again.forward.2"] == "Module.0.Again.forward.1"
    assert parents["Module.0.Again.forward.1"] == "Module.0.Again.forward.0"
    assert parents["Module.0.Again.forward.0"] is None
    assert parents["Torch.tanh.0.forward"] == "Module.0.Again.forward.1"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_pass_that_raises_is_recorded_with_what_it_said(tmp_path: Path, x: Tensor, error: type) -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise error("not today")

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Tanh(), Fails())
            self.after = nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            with pytest.raises(error):
                self.inner(x)
            result: Tensor = self.after(x)
            return result

    model = nn.Sequential(Catches())
    dump = record(tmp_path, lambda: model(x), model, level="mix")
    for name in ("Module.0.inner.1.Fails.forward.0", "Module.0.inner.Sequential.forward.0"):
        told = f"{error.__name__}: not today"
        assert dump.data[name]["error"] == told
        assert dump.data[name]["output"] == [None]
    assert "error" not in dump.data["Module.0.Catches.forward.0"]
    assert dump.construct["Module.0.after.Tanh.forward.0"] == "Module.0.Catches.forward.0"


def test_an_error_that_is_being_handled_is_not_the_module_s(tmp_path: Path, x: Tensor) -> None:
    """A module that runs inside an `except` block, and returns None."""

    class Silent(nn.Module):
        def forward(self, x: Tensor) -> None:
            return None

    model = nn.Sequential(Silent())

    def work() -> None:
        try:
            raise ValueError("somebody else's")
        except ValueError:
            model(x)

    entry = record(tmp_path, work, model, level="L0").data["Module.0.Silent.forward.0"]
    assert "error" not in entry
    assert entry["output"] == [None]


# ---------------------------------------------------------------- names


def test_names_are_paths_and_classes(net: Net) -> None:
    names = [name for name, _ in name_modules(net, record_root=False)]
    assert names == [
        "Module.first.Block",
        "Module.first.linear.Linear",
        "Module.second.Block",
        "Module.second.linear.Linear",
    ]
    assert next(name for name, _ in name_modules(net, record_root=True)) == "Module.root.Net"
    assert [name for name, _ in name_modules([net, nn.Sequential(nn.ReLU())], record_root=False)][::4] == [
        "Module.0.first.Block",
        "Module.1.0.ReLU",
    ]


@pytest.mark.parametrize("models", [list, tuple])
def test_several_models_are_distinguished_by_their_place(tmp_path: Path, x: Tensor, models: Any) -> None:
    first, second = nn.Sequential(nn.Tanh()), nn.Sequential(nn.ReLU())

    def work() -> None:
        second(first(x))

    names = record(tmp_path, work, models([first, second]), level="L0").names
    assert names == ["Module.0.0.Tanh.forward.0", "Module.1.0.ReLU.forward.0"]


def test_a_model_without_modules_inside_is_recorded_itself(
    tmp_path: Path, x: Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(4, 4)
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level="L0")
    assert dump.names == ["Module.root.Linear.forward.0", "Module.root.Linear.backward.0"]
    assert "Module.root.Linear.parameters_grad" in dump.data
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "single Linear" in line]
    assert "[INFO]" in line


def test_the_root_when_asked_for(tmp_path: Path, net: Net, x: Tensor) -> None:
    dump = record(tmp_path, lambda: net(x), net, level="L0", record_root=True)
    assert dump.construct["Module.first.Block.forward.0"] == "Module.root.Net.forward.0"


# ---------------------------------------------------------------- gradients of parameters


def gradient(dump: Dump, entry: str, key: str) -> Any:
    (found,) = dump.data[entry][key]
    return found


def test_a_gradient_that_never_came_is_null(tmp_path: Path, net: Net, x: Tensor) -> None:
    dump = record(tmp_path, lambda: net(x), net, level="L0")
    assert dump.data["Module.first.linear.Linear.parameters_grad"] == {"weight": [None], "bias": [None]}
    dump = record(tmp_path / "b", lambda: loss_of(net.second(net.first(x).detach())).backward(), net, level="L0")
    assert dump.data["Module.first.Block.parameters_grad"] == {"scale": [None]}
    assert gradient(dump, "Module.second.Block.parameters_grad", "scale") is not None


def test_a_gradient_on_top_of_one_that_is_there_is_reported_without_it(tmp_path: Path, net: Net, x: Tensor) -> None:
    loss_of(net(x)).backward()
    before = net.first.scale.grad
    assert before is not None
    alone = before.clone()
    dump = record(tmp_path, lambda: loss_of(net(x)).backward(), net, level="L0")
    assert is_value_of(gradient(dump, "Module.first.Block.parameters_grad", "scale"), alone)
    assert torch.allclose(before, 2 * alone)


def test_tied_parameters_are_reported_at_each_of_their_modules(tmp_path: Path) -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["embedding"].weight
    tokens = torch.tensor([0, 2])
    dump = record(tmp_path, lambda: loss_of(model["head"](model["embedding"](tokens))).backward(), model, level="L0")
    whole = model["head"].weight.grad
    for entry in ("Module.embedding.Embedding.parameters_grad", "Module.head.Linear.parameters_grad"):
        assert is_value_of(gradient(dump, entry, "weight"), whole)


def test_a_parameter_that_is_thawed_while_recording(tmp_path: Path, net: Net, x: Tensor) -> None:
    def work() -> None:
        loss_of(net(x)).backward()
        net.first.frozen.requires_grad_()
        loss_of(net(x)).backward()

    dump = record(tmp_path, work, net, level="L0")
    net.first.frozen.grad = None
    loss_of(net(x)).backward()
    assert is_value_of(gradient(dump, "Module.first.Block.parameters_grad", "frozen"), net.first.frozen.grad)


def test_a_parameter_that_is_exchanged_while_recording(tmp_path: Path, net: Net, x: Tensor) -> None:
    def work() -> None:
        loss_of(net(x)).backward()
        net.first.scale = nn.Parameter(torch.full((4,), 3.0))
        loss_of(net(x)).backward()

    dump = record(tmp_path, work, net, level="L0")
    name = "Module.first.Block.parameters_grad"
    assert is_value_of(gradient(dump, name, "scale"), net.first.scale.grad)
    assert [k for k in dump.data if k.startswith(name + ".")] == [f"{name}.0", f"{name}.1"]


def test_gradients_of_modules_that_are_used_without_gradients_do_not_come(tmp_path: Path, net: Net, x: Tensor) -> None:
    def work() -> None:
        with torch.no_grad():
            net(x)

    dump = record(tmp_path, work, net, level="L0")
    assert not [name for name in dump.names if "backward" in name]
    assert all(value == [None] for name in dump.data if "parameters_grad" in name for value in dump.data[name].values())


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_gradients_of_parameters_follow_the_filter(tmp_path: Path, net: Net, x: Tensor, task: str) -> None:
    work = lambda: loss_of(net(x)).backward()  # noqa: E731
    dump = record(tmp_path, work, net, level="L0", list=["second.linear"], task=task)
    assert [name for name in dump.data if "parameters_grad" in name] == ["Module.second.linear.Linear.parameters_grad"]
    if task == "tensor":
        assert net.second.linear.bias.grad is not None
        saved = dump.load("Module.second.linear.Linear.parameters_grad.bias.pt")
        assert torch.equal(saved, net.second.linear.bias.grad)


# ---------------------------------------------------------------- hooks


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_hooks_of_the_user_work_as_ever(tmp_path: Path, net: Net, x: Tensor) -> None:
    order: list[str] = []
    alone = copy.deepcopy(net)

    def watch(model: Net) -> None:
        model.first.register_forward_pre_hook(lambda m, args: order.append("pre") or (args[0] * 2,))
        model.first.register_forward_hook(lambda m, args, result: order.append("post") or result * 3)
        model.first.register_full_backward_hook(lambda m, gi, go: order.append("backward"))
        model.first.scale.register_hook(lambda g: order.append("parameter") or g * 5)

    watch(alone)
    loss_of(alone(x)).backward()
    expected, order[:] = list(order), []
    watch(net)
    dump = record(tmp_path, lambda: loss_of(net(x)).backward(), net, level="L0")
    assert order == expected
    for ours, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        if theirs.grad is not None:
            assert ours.grad is not None
            assert torch.equal(ours.grad, theirs.grad)
    # What is recorded is what the module was given and gave; ours are the last hooks.
    hidden = dump.data["Module.second.Block.forward.0"]["input_args"][0]
    assert dump.data["Module.first.Block.forward.0"]["output"][0]["Max"] == hidden["Max"]


def test_a_model_can_be_copied_and_saved_while_recording(tmp_path: Path, net: Net, x: Tensor) -> None:
    results: list[Any] = []

    def work() -> None:
        net(x)
        copied = copy.deepcopy(net)
        loaded = pickle.loads(pickle.dumps(net))
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        results.extend(m(x) for m in (copied, loaded, torch.load(buffer, weights_only=False)))
        results.append(net(x))

    names = record(tmp_path, work, net, level="L0").names
    # Passes of the copies are no passes of the model.
    assert [n for n in names if n.startswith("Module.first.Block")] == [
        "Module.first.Block.forward.0",
        "Module.first.Block.forward.1",
    ]
    assert all(torch.equal(result, results[-1]) for result in results)


def test_modules_in_other_threads_have_parents_of_their_own(tmp_path: Path, x: Tensor) -> None:
    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            barrier.wait(10)
            result: Tensor = self.inner(x)
            barrier.wait(10)
            return result

    barrier = threading.Barrier(2)
    model = nn.ModuleList([Waits(), Waits()])

    def work() -> None:
        threads = [threading.Thread(target=module, args=(x,)) for module in model]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    parents = record(tmp_path, work, model, level="L0").construct
    for n in (0, 1):
        assert parents[f"Module.{n}.inner.Tanh.forward.0"] == f"Module.{n}.Waits.forward.0"
        assert parents[f"Module.{n}.Waits.forward.0"] is None


def test_a_module_that_starts_the_recording_inside_itself(tmp_path: Path, x: Tensor) -> None:
    class Starts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            PrecisionDebugger.start(self)
            result: Tensor = self.inner(x)
            return result

    model = Starts()
    PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="mix")
    try:
        model(x)
        model.inner(x)
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
    finally:
        PrecisionDebugger.reset()
    dump = Dump(tmp_path / "step0/rank")
    assert dump.construct["Module.inner.Tanh.forward.0"] is None
    assert dump.construct["Module.inner.Tanh.forward.1"] is None


def test_a_module_that_stops_the_recording_inside_itself(tmp_path: Path, x: Tensor) -> None:
    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            PrecisionDebugger.stop()
            return torch.relu(y)

    model = nn.Sequential(Stops())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="mix")
    try:
        debugger.start(model)
        expected = torch.relu(torch.tanh(x))
        assert torch.equal(model(x), expected)
        debugger.step()
        with debugger.recording(model):
            model[0].inner(x)
    finally:
        PrecisionDebugger.reset()
    first, second = (Dump(tmp_path / f"step{n}/rank") for n in (0, 1))
    assert "Module.0.inner.Tanh.forward.0" in first.data
    assert second.construct["Module.0.inner.Tanh.forward.0"] is None


def test_a_pass_in_the_closure_of_an_optimizer_is_no_work_of_the_optimizer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ModelT()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    x = torch.randn(3, 8)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        return loss

    dump = record(tmp_path, lambda: optimizer.step(closure), model, level="mix")
    assert dump.construct["Module.l1.Linear.forward.0"] is None
    assert dump.construct["Functional.linear.0.forward"] == "Module.l1.Linear.forward.0"

"""Functions of the user's choice, and single modules."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.coded_texts import mentions, raising
from support.torch_dumps import Recorder, Toy, record, toy_loss
from torch import nn

from msprobe.errors import InvalidInputError
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end

__all__ = ["record"]


def make_module(name: str = "mod") -> Any:
    module = types.ModuleType(name)
    exec("import torch\ndef f(x, k=1):\n    return torch.relu(x * k)\n", module.__dict__)
    return module


# ------------------------------------------------------------------ register_custom_api


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_registered_function_is_one_call(record: Recorder, level: str) -> None:
    mod = make_module()
    original = mod.f
    debugger = record(level=level)
    debugger.register_custom_api(mod, "f")
    x = torch.tensor([1.0, -1.0], requires_grad=True)
    debugger.start(Toy())
    mod.f(x, k=3).sum().backward()
    debugger.stop()
    debugger.restore_custom_api(mod, "f")
    debugger.start(Toy())
    mod.f(x, k=3)
    debugger.stop()
    dump = record.end()
    forward = dump.data()["mod.f.0.forward"]
    assert forward["input_args"][0]["Max"] == 1.0
    assert forward["input_kwargs"] == {"k": {"type": "int", "value": 3}}
    assert forward["output"][0]["Max"] == 3.0
    backward = dump.data()["mod.f.0.backward"]
    assert backward["input"][0]["Max"] == 1.0
    assert "mod.f.1.forward" not in dump.data()
    # What it calls is part of it; after restore it is seen for itself.
    names = dump.names()
    assert names.index("Torch.relu.0.forward") > names.index("mod.f.0.backward")
    assert mod.f is original


def test_the_function_is_itself_outside_of_recording(record: Recorder) -> None:
    mod = make_module()
    original = mod.f
    debugger = record(level="L1")
    debugger.register_custom_api(mod, "f")
    assert mod.f is original
    debugger.start()
    assert mod.f is not original
    assert mod.f.__wrapped__ is original
    debugger.stop()
    assert mod.f is original
    debugger.start()
    debugger.restore_custom_api(mod, "f")
    assert mod.f is original


def test_registered_while_recording(record: Recorder) -> None:
    mod = make_module()
    debugger = record(level="L1")
    debugger.start()
    debugger.register_custom_api(mod, "f")
    debugger.register_custom_api(mod, "f")
    mod.f(torch.ones(2))
    debugger.stop()
    assert record.end().names(part="mod.f") == ["mod.f.0.forward"]


@pytest.mark.parametrize(
    ("holder", "prefix", "name"),
    [
        (make_module("pkg.mod"), None, "pkg.mod.f"),
        (make_module(), "Mine", "Mine.f"),
        (types.SimpleNamespace(f=torch.relu), None, "Custom.f"),
    ],
)
def test_prefixes(record: Recorder, holder: Any, prefix: str | None, name: str) -> None:
    debugger = record(level="L1")
    debugger.register_custom_api(holder, "f", prefix)
    debugger.start()
    holder.f(torch.ones(2))
    debugger.stop()
    assert record.end().names(part=".f.") == [f"{name}.0.forward"]


class Kinds:
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @classmethod
    def of_class(cls, x: torch.Tensor) -> str:
        return cls.__name__


class Derived(Kinds):
    pass


def test_methods_of_every_kind(record: Recorder) -> None:
    debugger = record(level="L1")
    for name in ("method", "static", "of_class"):
        debugger.register_custom_api(Kinds, name)
    before = dict(vars(Kinds))
    x = torch.ones(2)
    debugger.start()
    assert torch.equal(Kinds().method(x), x + 1)
    assert torch.equal(Derived.static(x), x + 1)
    assert Derived.of_class(x) == "Derived"
    debugger.stop()
    assert dict(vars(Kinds)) == before
    assert record.end().names(part="Kinds") == [
        "Kinds.method.0.forward",
        "Kinds.static.0.forward",
        "Kinds.of_class.0.forward",
    ]


def test_an_exception_inside_is_marked_and_passed_on(record: Recorder) -> None:
    mod = make_module()
    mod.f = lambda x: x.view(7)
    debugger = record(level="L1")
    debugger.register_custom_api(mod, "f")
    debugger.start()
    with pytest.raises(RuntimeError, match="shape"):
        mod.f(torch.ones(2))
    torch.relu(torch.ones(2))
    debugger.stop()
    data = record.end().data()
    assert "shape" in data["mod.f.0.forward"]["error"]
    assert "Torch.relu.0.forward" in data


@pytest.mark.parametrize(
    ("arguments", "name", "found"),
    [
        ((torch, "no_such_function"), "custom-api-missing", {"api": "no_such_function"}),
        ((torch, "float32"), "custom-api-missing", {"api": "float32"}),
        ((torch, 5), "custom-api-is-no-text", {}),
        ((torch, "relu", 5), "custom-prefix-is-no-text", {}),
        ((None, "f"), "custom-api-missing", {"holder": "NoneType"}),
    ],
)
def test_what_cannot_be_registered(record: Recorder, arguments: Any, name: str, found: dict[str, str]) -> None:
    with raising(InvalidInputError, name, **found):
        record(level="L1").register_custom_api(*arguments)


def test_restoring_what_was_not_registered_is_a_warning(record: Recorder, capsys: Any) -> None:
    record(level="L1").restore_custom_api(torch, "relu")
    assert mentions(capsys.readouterr().out, "custom-api-not-registered", holder="torch", api="relu")


# ------------------------------------------------------------------ module_dump


@pytest.fixture(autouse=True)
def _no_module_dump_left() -> Iterator[None]:
    yield
    module_dump_end()


def test_only_the_module_is_recorded_for_a_while(record: Recorder) -> None:
    debugger = record(level="L1")
    sequence, linear = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 3)
    x = torch.ones(2, 3, requires_grad=True)
    debugger.start()
    y = F.gelu(x)
    module_dump(sequence, "MyM")
    y = sequence(y)
    torch.tanh(y)
    module_dump_end()
    y = F.relu(y)
    module_dump(linear, "L")
    y = linear(linear(y))
    module_dump_end()
    y.sum().backward()
    debugger.stop()
    dump = record.end()
    wanted = [n for n in dump.names() if not n.startswith(("Torch.ones_like", "Tensor.sum"))]
    assert wanted == [
        "Functional.gelu.0.forward",
        "Module.MyM.Sequential.forward.0",
        "Functional.relu.0.forward",
        "Module.L.Linear.forward.0",
        "Module.L.Linear.parameters_grad",
        "Module.L.Linear.forward.1",
        "Module.L.Linear.backward.1",
        "Module.L.Linear.backward.0",
        "Functional.relu.0.backward",
        "Module.MyM.Sequential.backward.0",
        "Functional.gelu.0.backward",
    ]
    assert dump.data()["Module.L.Linear.forward.0"]["parameters"].keys() == {"weight", "bias"}
    assert dump.data()["Module.L.Linear.parameters_grad"]["weight"][0]["shape"] == [3, 3]
    assert not sequence._forward_hooks
    assert not linear._forward_pre_hooks


def test_a_module_that_is_recorded_anyway_is_left_alone(record: Recorder, capsys: Any) -> None:
    debugger = record(level="mix")
    model = Toy()
    debugger.start(model)
    module_dump(model.l1, "again")
    toy_loss(model)
    module_dump_end()
    debugger.stop()
    names = record.end().names()
    assert "Module.l1.Linear.forward.0" in names
    assert "Functional.linear.0.forward" in names
    assert not [n for n in names if "again" in n]
    assert mentions(capsys.readouterr().out, "module-recorded-already", known="Module.l1.Linear")


def test_it_survives_stop_and_start(record: Recorder) -> None:
    debugger = record(level="L1")
    linear = nn.Linear(3, 3)
    module_dump(linear, "L")
    for _ in range(2):
        with debugger.recording():
            linear(torch.ones(1, 3)).relu()
    module_dump_end()
    debugger.start()
    linear(torch.ones(1, 3))
    debugger.stop()
    dump = record.end()
    for number in (0, 1):
        assert dump.names(number) == ["Module.L.Linear.forward.0", "Module.L.Linear.parameters_grad"]
    assert dump.names(2, "linear") == ["Functional.linear.0.forward"]


def test_a_second_one_ends_the_first(record: Recorder) -> None:
    debugger = record(level="L1")
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    debugger.start()
    module_dump(first, "first")
    module_dump(second, "second")
    first(torch.ones(1, 2))
    second(torch.ones(1, 2))
    module_dump_end()
    module_dump_end()
    torch.relu(second.weight)
    debugger.stop()
    assert record.end().names(part="forward") == ["Module.second.Linear.forward.0", "Torch.relu.0.forward"]


def test_a_copy_of_the_module_is_not_recorded(record: Recorder) -> None:
    debugger = record(level="L1")
    linear = nn.Linear(2, 2)
    debugger.start()
    module_dump(linear, "L")
    copy.deepcopy(linear)(torch.ones(1, 2))
    module_dump_end()
    debugger.stop()
    assert record.dump.names() == []


@pytest.mark.parametrize(
    "arguments", [(5, "x"), (nn.Linear, "x"), (nn.Linear(1, 1), 5), (nn.Linear(1, 1), ""), (None, None)]
)
def test_wrong_arguments(record: Recorder, arguments: Any) -> None:
    record(level="L1")
    with pytest.raises(InvalidInputError, match="module_dump"):
        module_dump(*arguments)


def test_without_a_debugger_it_warns(capsys: Any) -> None:
    PrecisionDebugger.reset()
    module_dump(nn.Linear(1, 1), "x")
    module_dump_end()
    assert mentions(capsys.readouterr().out, "module-dump-without-debugger")

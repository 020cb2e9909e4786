"""Calls: their arguments before, their results after, at every level of oddness, without touching anything."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import is_value_of, record
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.capture.torch.calls.function_mode import enter_mode, remove_mode

Tensor = torch.Tensor


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def entry_of(folder: Path, work: Callable[[], Any], name: str, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = record(folder, work, **settings).data[name]
    return found


# ---------------------------------------------------------------- before and after


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_values_are_those_of_the_moment(tmp_path: Path, level: str) -> None:
    """The same tensor again and again, written to in every way there is: no stale number."""
    x = torch.zeros(4)
    steps: list[Callable[[], Any]] = [
        lambda: x.add_(1),
        lambda: x[1:3].fill_(5.0),
        lambda: x.view(2, 2).t().mul_(2),
        lambda: torch.mul(x, 3, out=x),
        lambda: x.__setitem__(0, 7.0),
        lambda: x.data.copy_(torch.arange(4.0)),
        lambda: torch._foreach_add_([x], 1.0),
        lambda: x.set_(torch.full((4,), 9.0)),
        lambda: x.zero_(),
    ]
    expected: list[Tensor] = []

    def work() -> None:
        for step in steps:
            torch.relu(x)
            expected.append(x.clone())
            step()
        torch.relu(x)
        expected.append(x.clone())

    data = record(tmp_path, work, nn.Sequential(nn.ReLU()), level=level).data
    for number, value in enumerate(expected):
        assert is_value_of(data[f"Torch.relu.{number}.forward"]["input_args"][0], value)


def test_an_out_argument_is_shown_before_and_after(tmp_path: Path) -> None:
    out = torch.full((2,), 9.0)
    entry = entry_of(tmp_path, lambda: torch.add(torch.ones(2), 1, out=out), "Torch.add.0.forward")
    assert entry["input_kwargs"]["out"]["Max"] == 9
    assert entry["output"][0]["Max"] == 2


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_results_of_several_values(tmp_path: Path, task: str) -> None:
    x = torch.tensor([[1.0, 5.0], [7.0, 3.0]])

    def work() -> None:
        torch.max(x, 1)
        torch.split(x, 1)
        torch.meshgrid(x[0], x[1], indexing="ij")
        torch.broadcast_tensors(x, x[0])
        x.tolist()
        torch.is_tensor(x)
        x.__setitem__(0, 1.0)
        pair(x)
        x.clone().size()

    model = nn.Sequential(pair := Calls(lambda x: Pair(x * 2, x * 3)))
    dump = record(tmp_path, work, model, task=task, level="mix")
    data = dump.data
    # A tuple of any kind is flat, a list is one value.
    assert [d["Max"] for d in data["Torch.max.0.forward"]["output"]] == [7, 1]
    assert [d["Max"] for d in data["Module.0.Calls.forward.0"]["output"]] == [14, 21]
    if task == "tensor":
        assert torch.equal(dump.load("Torch.max.0.forward.output.1.pt"), torch.tensor([1, 0]))
        assert torch.equal(dump.load("Module.0.Calls.forward.0.output.1.pt").max(), torch.tensor(21.0))
    assert [d["shape"] for d in data["Torch.split.0.forward"]["output"]] == [[1, 2], [1, 2]]
    assert data["Tensor.tolist.0.forward"]["output"][0][0][1] == {"type": "float", "value": 5.0}
    assert data["Tensor.__setitem__.0.forward"]["output"] == [None]
    assert not [name for name in data if "is_tensor" in name]


def test_arguments_that_are_no_tensors(tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    generator = torch.Generator().manual_seed(1)

    def work() -> None:
        x.to(torch.float16, memory_format=torch.preserve_format)
        torch.zeros((2, 3), dtype=torch.int32, device="cpu", layout=torch.strided)
        x[:, 1:]
        x[..., None]
        torch.randn(2, generator=generator)
        x.expand(torch.Size([2, 2, 3]))
        x.apply_(lambda v: v)

    data = record(tmp_path, work).data
    assert data["Tensor.to.0.forward"]["input_args"][1] == {"type": "torch.dtype", "value": "torch.float16"}
    kwargs = data["Torch.zeros.0.forward"]["input_kwargs"]
    assert kwargs["device"] == {"type": "str", "value": "cpu"}
    assert kwargs["layout"]["value"] == "torch.strided"
    (first, second) = data["Tensor.__getitem__.0.forward"]["input_args"][1]
    assert first == {"type": "slice", "value": [None, None, None]}
    assert second == {"type": "slice", "value": [1, None, None]}
    assert data["Tensor.__getitem__.1.forward"]["input_args"][1] == [{"type": "ellipsis", "value": "..."}, None]
    assert data["Torch.randn.0.forward"]["input_kwargs"]["generator"]["type"] == "torch.Generator"
    assert data["Tensor.expand.0.forward"]["input_args"][1] == {"type": "torch.Size", "value": [2, 2, 3]}
    assert data["Tensor.apply_.0.forward"]["input_args"][1]["type"] == "function"


def test_nested_arguments_and_what_is_written_in_them(tmp_path: Path) -> None:
    parts = [torch.ones(2), torch.zeros(2)]

    def work() -> None:
        torch.cat(parts)
        torch._foreach_add_(parts, 5.0)
        torch.cat(parts)

    data = record(tmp_path, work).data
    shown = [[d["Max"] for d in data[f"Torch.cat.{n}.forward"]["input_args"][0]] for n in (0, 1)]
    assert shown == [[1, 0], [6, 5]]


# ---------------------------------------------------------------- exceptions


def test_a_failed_call_has_its_arguments_and_what_it_said(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="shapes cannot"):
                torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.relu(torch.ones(2))

    dump = record(tmp_path, work)
    for number in range(2):
        entry = dump.data[f"Torch.mm.{number}.forward"]
        assert [d["shape"] for d in entry["input_args"]] == [[2, 3], [2, 3]]
        assert entry["output"] == [None]
        assert entry["error"].startswith("RuntimeError: ")
        assert "mat1 and mat2 shapes" in entry["error"]
    assert dump.forward()[-1] == "Torch.relu.0"


def test_the_exception_is_the_user_s_own(tmp_path: Path) -> None:
    class Strange(BaseException):
        pass

    def work() -> None:
        x = torch.ones(2)
        with pytest.raises(Strange) as caught:
            x.apply_(lambda value: (_ for _ in ()).throw(Strange("mine")))
        assert caught.value.args == ("mine",)
        assert caught.value.__context__ is None
        torch.relu(x)

    assert "error" in record(tmp_path, work).data["Tensor.apply_.0.forward"]


def test_after_an_exception_that_leaves_the_region_all_is_as_it_was(tmp_path: Path) -> None:
    def work() -> None:
        torch.relu(torch.ones(2))
        raise ValueError("the user's")

    with pytest.raises(ValueError, match="the user's"):
        record(tmp_path, work)
    assert _get_current_function_mode_stack() == []
    assert "Torch.relu.0.forward" in record(tmp_path / "again", lambda: torch.relu(torch.ones(2))).data


# ---------------------------------------------------------------- grad modes


def test_autocast_shows_tensors_as_they_were_passed(tmp_path: Path) -> None:
    linear, x = nn.Linear(4, 4), torch.randn(2, 4)

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            linear(x).float().sum().backward()

    data = record(tmp_path, work).data
    entry = data["Functional.linear.0.forward"]
    assert entry["input_args"][0]["dtype"] == "torch.float32"
    assert entry["output"][0]["dtype"] == "torch.bfloat16"
    assert data["Functional.linear.0.backward"]["input"][0]["dtype"] == "torch.bfloat16"
    assert linear.weight.grad is not None
    assert linear.weight.grad.dtype == torch.float32


# ---------------------------------------------------------------- modes of the user


class Counting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def some_calls() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    y = F.gelu(F.linear(x, torch.ones(5, 4)))
    y.add_(1)[0].sum().backward()


@pytest.mark.parametrize("settings", [{}, {"summary_mode": "md5"}, {"task": "tensor"}], ids=str)
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("kind", [Counting, Watching])
def test_modes_of_the_user_see_the_user_s_calls_only(
    tmp_path: Path, kind: type[Any], outside: bool, settings: dict[str, Any]
) -> None:
    with kind() as alone:
        some_calls()
    mode = kind()
    if outside:
        with mode:
            dump = record(tmp_path, some_calls, **settings)
    else:

        def inside() -> None:
            with mode:
                some_calls()

        dump = record(tmp_path, inside, **settings)
    assert mode.seen == alone.seen
    assert "Functional.gelu.0" in dump.forward()
    assert "Functional.gelu.0" in dump.backward()


def test_modes_may_be_left_in_any_order(tmp_path: Path) -> None:
    mode = Counting()
    order: list[list[Any]] = []

    class Plain(TorchFunctionMode):
        pass

    below, own, above = Plain(), Plain(), Plain()
    with below:
        enter_mode(own)
        order.append(_get_current_function_mode_stack())
        with above:
            assert remove_mode(own)
            assert not remove_mode(own)
            order.append(_get_current_function_mode_stack())
        order.append(_get_current_function_mode_stack())
    assert order == [[own, below], [below, above], [below]]
    assert _get_current_function_mode_stack() == []
    assert mode.seen == []


def test_a_default_device_stays_in_force(tmp_path: Path) -> None:
    found: list[Any] = []

    def work() -> None:
        torch.set_default_device("meta")
        try:
            found.append(torch.ones(2).device.type)
            with torch.device("cpu"):
                found.append(torch.ones(2).device.type)
        finally:
            torch.set_default_device(None)
        found.append(torch.ones(2).device.type)

    dump = record(tmp_path, work)
    assert found == ["meta", "cpu", "cpu"]
    assert dump.forward() == [f"Torch.ones.{n}" for n in range(3)]
    assert _get_current_function_mode_stack() == []


# ---------------------------------------------------------------- what is transformed


def test_transforms_of_torch_func_see_through(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(3, 2)

    def f(row: Tensor) -> Tensor:
        return torch.sin(row).sum()

    found: list[Tensor] = []

    def work() -> None:
        found.append(torch.vmap(f)(x))
        found.append(torch.func.grad(f)(x[0]))
        found.append(torch.func.jacrev(torch.sin)(x[0]))
        found.append(torch.func.vmap(torch.func.grad(f))(x))

    dump = record(tmp_path, work)
    assert torch.equal(found[0], torch.sin(x).sum(1))
    assert torch.allclose(found[1], torch.cos(x[0]))
    assert torch.equal(found[3], torch.cos(x))
    assert len([name for name in dump.forward() if name.startswith("Torch.sin.")]) == 4
    assert not list(tmp_path.rglob("dump_error_info.log"))


# ---------------------------------------------------------------- nothing is kept, nothing is changed


def test_arguments_and_results_are_let_go(tmp_path: Path) -> None:
    references: list[Any] = []

    def work() -> None:
        for _ in range(3):
            a, b = torch.ones(10), torch.ones(10, requires_grad=True)
            c = torch.cat([a * b, a])
            references.extend(weakref.ref(t) for t in (a, b, c))
            del a, b, c
            assert [reference() for reference in references] == [None] * len(references)

    gc.disable()
    try:
        record(tmp_path, work)
    finally:
        gc.enable()


def test_counters_are_those_of_names_not_of_filters(tmp_path: Path) -> None:
    """A call that is filtered away counts all the same."""

    def work() -> None:
        for n in range(4):
            torch.relu(torch.full((1,), float(n)))

    dump = record(tmp_path, work, list=["relu.2", "relu.3"])
    assert dump.forward() == ["Torch.relu.2", "Torch.relu.3"]
    assert dump.data["Torch.relu.2.forward"]["output"][0]["Max"] == 2


def test_the_source_line_is_the_user_s(tmp_path: Path) -> None:
    linear = nn.Linear(2, 2)

    def work() -> None:
        linear(torch.ones(1, 2))

    dump = record(tmp_path, work)
    entry = dump.data["Functional.linear.0.forward"]
    line = work.__code__.co_firstlineno + 1
    assert entry["msprobe"]["source"] == f"{__file__}:{line}"
    frames = dump.frames_of("Functional.linear.0.forward")
    frame = f"File {__file__}, line {line}, in work, \n linear(torch.ones(1, 2))"
    assert frame in frames
    assert not any("msprobe/capture" in frame for frame in frames)

"""Level L2: every operator that reaches the dispatcher, forward and backward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_dumps import Dump, Recorder, Toy, record, toy_loss
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.capture.torch.operators import dispatch_watch
from msprobe.pytorch import PrecisionDebugger

__all__ = ["record"]


@pytest.fixture(params=["key", "mode"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to watch; where torch can do the first, the second is forced."""
    if request.param == "mode":
        monkeypatch.setattr(dispatch_watch, "_watch_by_key", lambda: None)
    return str(request.param)


def operators(dump: Dump, step: int = 0) -> list[str]:
    return [record["msprobe"]["operator"] for record in dump.data(step).values()]


def one_step(record: Recorder, **settings: Any) -> Dump:
    debugger = record(level="L2", **settings)
    model = Toy()
    with debugger.recording(model):
        toy_loss(model).backward()
    return record.end()


def test_operators_of_forward_and_backward(record: Recorder, way: str) -> None:
    dump = one_step(record)
    data = dump.data()
    assert dump.file()["level"] == "L2"
    assert all(name.endswith(".forward") for name in data)
    forward = [name for name, one in data.items() if "in_backward" not in one["msprobe"]]
    backward = [name for name, one in data.items() if one["msprobe"].get("in_backward")]
    compute = ["addmm.0", "native_layer_norm.0", "gelu.0", "add.0", "addmm.1", "_softmax.0", "pow.0", "sum.0"]
    assert [n[5:-8] for n in forward if n[5:-8] in compute] == compute
    for name in ("_softmax_backward_data.0", "gelu_backward.0", "native_layer_norm_backward.0", "mm.0"):
        assert f"Aten.{name}.forward" in backward
    # Numbers go on: the power of the derivative is not the first.
    assert "Aten.pow.1.forward" in backward
    # Composite functions are seen as what they are made of.
    assert not [n for n in data if n.split(".")[1] in ("linear", "layer_norm", "softmax", "reshape", "matmul")]


def test_a_record_has_arguments_results_and_place(record: Recorder) -> None:
    data = one_step(record).data()
    call = data["Aten.addmm.0.forward"]
    assert call["msprobe"]["operator"] == "aten.addmm.default"
    assert [len(one["shape"]) for one in call["input_args"]] == [1, 2, 2]
    assert call["output"][0]["shape"] == [3, 16]
    assert call["msprobe"]["source"].partition(":")[0].endswith("recorded.py")
    orders = [one["msprobe"]["order"] for one in data.values()]
    assert orders == sorted(orders)
    assert data["Aten.add.0.forward"]["input_args"][1] == {"type": "int", "value": 1}


def test_stacks_are_written(record: Recorder) -> None:
    dump = one_step(record)
    stacks = dump.file(0, "stack.json")
    of_addmm = next(frames for names, frames in stacks.values() if "Aten.addmm.0.forward" in names)
    assert any("torch_dumps.py" in frame for frame in of_addmm)
    assert not any("capture/torch/operators/dispatch.py" in frame for frame in of_addmm)


@pytest.mark.parametrize("level", ["L2"])
def test_training_is_the_same_bit_for_bit(record: Recorder, level: str, way: str) -> None:
    def train(debugger: PrecisionDebugger | None) -> list[torch.Tensor]:
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        seen = []
        for seed in range(3):
            if debugger:
                debugger.start(model)
            loss = toy_loss(model, seed)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if debugger:
                debugger.stop()
                debugger.step()
            seen += [loss.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]
            optimizer.zero_grad()
        return [*seen, *[p.detach() for p in model.parameters()], torch.get_rng_state()]

    bare = train(None)
    recorded = train(record(level=level))
    assert len(bare) == len(recorded)
    assert all(torch.equal(a, b) for a, b in zip(bare, recorded, strict=True))
    assert record.end().data(2)


def test_numbers_take_part_in_promotion_as_numbers(record: Recorder) -> None:
    """C++ makes tensors of them on the way, which are numbers again for Python."""
    x, whole = torch.tensor(1.5), torch.tensor([3, 4])
    work: list[Callable[[], torch.Tensor]] = [
        lambda: x * 2.5,
        lambda: whole + 2,
        lambda: whole / 2,
        lambda: whole * 1.5,
        lambda: torch.true_divide(whole, 2),
        lambda: whole.half().div_(3),
        lambda: 1 - x,
        lambda: torch.remainder(7, whole),
        lambda: whole > 3.5,
        lambda: x * True,
        lambda: x * 2j,
        lambda: F.dropout(torch.ones(4), 0.5),
    ]
    torch.manual_seed(1)
    plain = [one() for one in work]
    debugger = record(level="L2")
    torch.manual_seed(1)
    debugger.start()
    seen = [one() for one in work]
    debugger.stop()
    for a, b in zip(plain, seen, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    assert "aten.mul.Tensor" in operators(record.end())


def test_in_place_operators_show_old_arguments_and_new_results(record: Recorder) -> None:
    debugger = record(level="L2")
    x = torch.ones(3)
    debugger.start()
    x.add_(1)
    x.add_(1)
    debugger.stop()
    data = record.end().data()
    for number, value in ((0, 1.0), (1, 2.0)):
        call = data[f"Aten.add_.{number}.forward"]
        assert call["input_args"][0]["Max"] == value
        assert call["output"][0]["Max"] == value + 1


def test_memory_without_values_has_no_statistics(record: Recorder) -> None:
    debugger = record(level="L2", task="overflow_check")
    debugger.start()
    torch.empty_strided((100,), (1,)).fill_(1)
    torch.empty_like(torch.ones(4))
    (torch.ones(2) / 0).sum()
    debugger.stop()
    assert record.end().names() == ["Aten.div.0.forward"]
    debugger = record(level="L2")
    debugger.start()
    torch.empty_like(torch.ones(4))
    debugger.stop()
    call = record.end().data()["Aten.empty_like.0.forward"]
    assert call["output"][0]["unset"] is True
    assert call["output"][0]["Max"] is None


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_what_is_only_written_over_has_no_numbers(record: Recorder, way: str, task: str) -> None:
    debugger = record(level="L2", task=task)
    x, out = torch.full((2,), float("nan")), torch.full((3,), float("nan"))
    debugger.start()
    x.normal_()
    x.copy_(torch.ones(2))
    torch.add(torch.ones(3), 1, out=out)
    x.add_(1)
    debugger.stop()
    dump = record.end()
    data = dump.data()
    numbers = ("Max", "Min", "Mean", "Norm")
    for name in ("Aten.normal_.0.forward", "Aten.copy_.0.forward"):
        written = data[name]["input_args"][0]
        assert written["shape"] == [2]
        assert [written[key] for key in numbers] == [None] * 4
        assert written["unset"] is True
    assert data["Aten.copy_.0.forward"]["input_args"][1]["Max"] == 1.0
    assert data["Aten.copy_.0.forward"]["output"][0]["Max"] == 1.0
    assert data["Aten.add.0.forward"]["input_kwargs"]["out"]["unset"] is True
    assert data["Aten.add.0.forward"]["input_args"][0]["Max"] == 1.0
    assert data["Aten.add.0.forward"]["output"][0]["Max"] == 2.0
    # This one reads what it writes to.
    assert data["Aten.add_.0.forward"]["input_args"][0]["Max"] == 1.0
    if task == "tensor":
        assert "Aten.normal_.0.forward.input.0.pt" not in dump.tensors()
        assert "Aten.copy_.0.forward.input.1.pt" in dump.tensors()


def test_lists_of_tensors(record: Recorder, way: str) -> None:
    debugger = record(level="L2", task="tensor")
    debugger.start()
    parts = torch.arange(6.0).split(2)
    torch.cat(parts)
    debugger.stop()
    dump = record.end()
    assert len(dump.data()["Aten.cat.0.forward"]["input_args"][0]) == 3
    assert torch.equal(dump.tensors()["Aten.cat.0.forward.input.0.1.pt"], torch.tensor([2.0, 3.0]))
    assert torch.equal(dump.tensors()["Aten.split.0.forward.output.0.2.pt"], torch.tensor([4.0, 5.0]))


@pytest.mark.parametrize(("mode", "parts"), [("forward", {False}), ("backward", {True})])
def test_data_mode_selects_the_direction(record: Recorder, mode: str, parts: set[bool]) -> None:
    dump = one_step(record, data_mode=[mode])
    assert {one["msprobe"].get("in_backward", False) for one in dump.data().values()} == parts


def test_list_selects_operators(record: Recorder) -> None:
    assert set(operators(one_step(record, list=["gelu"]))) == {
        "aten.gelu.default",
        "aten.gelu_backward.default",
    }


def test_recomputed_operators_are_marked(record: Recorder) -> None:
    from torch.utils.checkpoint import checkpoint

    debugger = record(level="L2")
    linear = nn.Linear(4, 4)
    debugger.start()
    checkpoint(linear, torch.ones(2, 4), use_reentrant=False).sum().backward()
    debugger.stop()
    data = record.end().data()
    assert [data[f"Aten.addmm.{n}.forward"]["is_recompute"] for n in (0, 1)] == [False, True]


# ------------------------------------------------------------------ others who watch


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("order", ["around", "inside", "interleaved"])
def test_dispatch_modes_of_the_user_see_what_they_would_see(record: Recorder, order: str, way: str) -> None:
    if way == "mode" and order != "around":
        pytest.skip("a mode below another one changes what that one sees: why the other way is there")

    def run(debugger: PrecisionDebugger | None) -> list[str]:
        model, counting = Toy(), Counting()
        if debugger and order == "around":
            debugger.start(model)
        with counting:
            if debugger and order != "around":
                debugger.start(model)
            toy_loss(model).backward()
            if debugger and order == "inside":
                debugger.stop()
        if debugger:
            debugger.stop()
        return counting.seen

    torch.manual_seed(0)
    bare = run(None)
    torch.manual_seed(0)
    assert run(record(level="L2")) == bare
    assert torch._C._len_torch_dispatch_stack() == 0
    names = record.end().names()
    assert "Aten.addmm.0.forward" in names
    assert "Aten.gelu_backward.0.forward" in names


def test_operators_of_named_calls_alone(record: Recorder, way: str) -> None:
    """The second linear layer backward, the first forward, as a call that L1 found to differ is looked into."""

    def train(debugger: PrecisionDebugger | None) -> Any:
        torch.manual_seed(0)
        model = Toy()
        losses = []
        for _ in range(2):
            if debugger:
                debugger.start(model)
            loss = toy_loss(model)
            loss.backward()
            if debugger:
                debugger.stop()
                debugger.step()
            losses.append(loss.item())
        return losses, [one.grad.tolist() for one in model.parameters() if one.grad is not None], torch.get_rng_state()

    bare = train(None)
    seen = train(record(level="L2", list=["Functional.linear.0.forward", "Functional.linear.1.backward"]))
    assert seen[:2] == bare[:2]
    assert torch.equal(seen[2], bare[2])
    dump = record.end()
    for step in (0, 1):
        data = dump.data(step)
        calls = [(one["msprobe"]["call"], one["msprobe"]["operator"].split(".")[1]) for one in data.values()]
        forward = [name for call, name in calls if call == "Functional.linear.0.forward"]
        backward = [name for call, name in calls if call == "Functional.linear.1.backward"]
        assert len(forward) + len(backward) == len(calls)
        assert "addmm" in forward
        assert "mm" not in forward
        assert backward.count("mm") == 2
        assert "sum" in backward
    # Numbers are those that the operators have when all are recorded.
    assert "Aten.mm.0.forward" in dump.names()


def test_parameters_of_all_modules_are_reported(record: Recorder) -> None:
    """No pass has a record at this level, so that a weight would look like data."""
    data = one_step(record).data()
    held = {name for one in data.values() for name in one["msprobe"].get("held", {}).values()}
    assert held == {f"parameters.{name}" for name, _ in Toy().named_parameters()}
    (first,) = [one for one in data.values() if "parameters.l1.bias" in one["msprobe"].get("held", {}).values()]
    assert first["msprobe"]["operator"] == "aten.addmm.default"


def test_a_named_call_that_fails_ends(record: Recorder) -> None:
    with record(level="L2", list=["Functional.linear.0.forward", "Functional.nothing.0.forward"]).recording():
        with pytest.raises(RuntimeError):
            F.linear(torch.ones(2, 3), torch.ones(4, 5))
        torch.ones(3).mul(2)
    assert {one["msprobe"]["call"] for one in record.end().data().values()} <= {"Functional.linear.0.forward"}


def test_function_modes_of_the_user_do_not_see_us(record: Recorder) -> None:
    def run(debugger: PrecisionDebugger | None) -> list[Any]:
        functions = Functions()
        if debugger:
            debugger.start()
        with functions:
            x = torch.ones(3) * 2.5
            x.div_(2).sum().item()
        if debugger:
            debugger.stop()
        return functions.seen

    assert run(record(level="L2")) == run(None)


class Wrapped(torch.Tensor):
    """A tensor with a mind of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        found = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        found.inner = inner
        return found

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [a.inner if isinstance(a, Wrapped) else a for a in args]
        result = func(*plain, **(kwargs or {}))
        return Wrapped(result) if isinstance(result, torch.Tensor) else result


class Named(torch.Tensor):
    pass


def test_tensors_of_other_types_stay_what_they_are(record: Recorder) -> None:
    debugger = record(level="L2")
    debugger.start()
    wrapped = Wrapped(torch.ones(2)) * 2.0
    named = torch.ones(2).as_subclass(Named) + 1
    parameter = nn.Parameter(torch.ones(2))
    again = Named([1.0, 2.0])
    debugger.stop()
    assert isinstance(wrapped, Wrapped)
    assert torch.equal(wrapped.inner, torch.full((2,), 2.0))
    assert isinstance(named, Named)
    assert isinstance(again, Named)
    assert isinstance(parameter, nn.Parameter)
    names = record.end().names()
    # What a tensor does to answer a call is part of that call.
    assert names.count("Aten.mul.0.forward") == 1
    assert "Aten.mul.1.forward" not in names


def test_functional_transforms(record: Recorder) -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (w * x).sin().sum()

    w, x = torch.ones(3), torch.arange(6.0).reshape(2, 3)
    plain = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
    debugger = record(level="L2")
    debugger.start()
    seen = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
    debugger.stop()
    assert torch.equal(plain, seen)
    dump = record.end()
    assert "aten.sin.default" in operators(dump)
    assert not dump.errors()


# ------------------------------------------------------------------ nothing left behind


def key_is_on() -> bool:
    key = torch._C._parse_dispatch_key(dispatch_watch.KEY_NAME)
    return bool(torch._C._dispatch_tls_is_dispatch_key_included(key))


def test_a_guard_of_the_user_cannot_bring_it_back(record: Recorder) -> None:
    """Leaving inference mode restores what was on when it was entered."""
    debugger = record(level="L2")
    debugger.start()
    with torch.inference_mode():
        torch.ones(2).sin()
        debugger.stop()
    torch.ones(2).cos()
    assert not key_is_on()
    debugger.step()
    assert not [n for n in record.end().names() if "cos" in n]


def test_a_failing_operator_is_marked_and_fails_as_ever(record: Recorder, way: str) -> None:
    debugger = record(level="L2")
    debugger.start()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    torch.ones(2).sin()
    debugger.stop()
    data = record.end().data()
    assert "mat1 and mat2 shapes" in data["Aten.mm.0.forward"]["error"]
    assert data["Aten.mm.0.forward"]["output"] == [None]
    assert "Aten.sin.0.forward" in data
    assert not key_is_on()


def test_other_threads_are_not_recorded(record: Recorder) -> None:
    debugger = record(level="L2")
    debugger.start()
    other = threading.Thread(target=lambda: torch.ones(2).cos())
    other.start()
    other.join()
    torch.ones(2).sin()
    debugger.stop()
    names = record.end().names()
    assert "Aten.sin.0.forward" in names
    assert "Aten.cos.0.forward" not in names


def test_an_error_of_ours_costs_the_training_nothing(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    debugger = record(level="L2")

    def fail(*_: Any) -> Any:
        raise ValueError("ours")

    monkeypatch.setattr(debugger.recorder.describer, "describe", fail)
    debugger.start()
    assert torch.ones(2).sin().sum().item() == pytest.approx(2 * 0.8414709568)
    debugger.stop()
    assert not key_is_on()


def test_operators_made_later_are_seen_from_the_next_start_on(record: Recorder) -> None:
    library = torch.library.Library("msprobe_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    try:
        debugger = record(level="L2")
        debugger.start()
        torch.ops.msprobe_test.twice(torch.ones(2))
        debugger.stop()
    finally:
        library._destroy()
    names = record.end().names()
    assert "Ops.msprobe_test_twice.0.forward" in names
    assert not [n for n in names if n.startswith("Aten.mul")]

"""Which name a call gets: every API of the list its own, operators apart from methods, the rest names of that form."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import record
from torch import nn
from torch.overrides import TorchFunctionMode

from msprobe.capture.torch.calls.names import ApiNames, listed_names
from msprobe.errors import InvalidInputError


@pytest.fixture(scope="module")
def names() -> ApiNames:
    return ApiNames()


def resolve(holder: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        holder = getattr(holder, part, None)
    return holder


def listed(group: str, holder: Any) -> list[tuple[str, Any]]:
    found = [(name, resolve(holder, name)) for name in sorted(listed_names()[group])]
    return [(name, function) for name, function in found if callable(function)]


GROUPS: dict[str, tuple[str, Any]] = {
    "functional": ("Functional", F),
    "tensor": ("Tensor", torch.Tensor),
    "torch": ("Torch", torch),
}


# ---------------------------------------------------------------- the list


def test_the_list_has_the_groups_and_sizes_that_are_known() -> None:
    sizes = {group: len(found) for group, found in listed_names().items()}
    assert {group: sizes[group] for group in ("functional", "tensor", "torch", "_VF", "distributed")} == {
        "functional": 126,
        "tensor": 491,
        "torch": 509,
        "_VF": 1,
        "distributed": 18,
    }


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("group", GROUPS)
def test_every_function_on_the_list_has_its_listed_key(names: ApiNames, group: str) -> None:
    prefix, holder = GROUPS[group]
    earlier = [function for g in list(GROUPS)[: list(GROUPS).index(group)] for _, function in listed(g, GROUPS[g][1])]
    checked = 0
    for name, function in listed(group, holder):
        if function in earlier or name == "__rdiv__" or function == torch._VF.lstm:
            continue  # named by the first group that has it; what runs an LSTM is named by _VF
        api = names.table[function]
        assert api is not None, name
        assert api.listed, name
        # One function under two names of a group (`hsmm`, `hspmm`) is known by one of them.
        same = {other.rsplit(".", 1)[-1] for other, found in listed(group, holder) if found == function}
        keys = {api.key} | ({api.operator[0]} if api.operator else set())
        assert keys & {f"{prefix}.{other}" for other in same}, (name, api)
        checked += 1
    assert checked > 100


def test_operators_are_listed_as_the_list_says(names: ApiNames) -> None:
    tensor = listed_names()["tensor"]
    for function, api in names.table.items():
        if api is not None and api.operator is not None:
            assert api.operator[1] == (api.operator[0].removeprefix("Tensor.") in tensor), function


def test_only_listed_names_when_asked_for() -> None:
    names = ApiNames(include_unlisted=False)
    # Where an operator shares a method's function, which of the two it was decides at each call.
    assert all(api is None or api.transparent or api.listed or api.operator for api in names.table.values())
    assert names.find(torch.ops.aten.mul.Tensor) is None
    assert names.table[torch.Tensor.view] is None
    assert names.table[torch.Tensor.add].listed  # type: ignore[union-attr]


def test_a_list_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "support_wrap_ops.yaml"
    file.write_text("functional: [relu]\ntorch: [tanh, linalg.norm]\n")
    names = ApiNames(False, str(file))
    listed = {api.key for api in names.table.values() if api is not None and api.listed}
    assert listed == {"Functional.relu", "Torch.tanh", "Torch.norm"}
    file.with_name("other.yaml").write_text("functional: [relu, relx]\ntorsh: [tanh]\n")
    with pytest.raises(InvalidInputError, match=r"(?s)relx.*torsh"):
        ApiNames(False, str(file.with_name("other.yaml")))


def test_python_functions_off_the_list_are_transparent(names: ApiNames) -> None:
    for function in (F.rms_norm, torch.meshgrid, torch.Tensor.backward, torch.autograd.grad, torch.Tensor.__repr__):
        api = names.table.get(function) or names.find(function)
        assert api is not None, function
        assert api.transparent, function


def test_questions_about_a_tensor_are_no_calls(names: ApiNames) -> None:
    tensor = torch.Tensor
    questions: list[Any] = [tensor.dim, tensor.size, tensor.data_ptr, tensor.is_contiguous, tensor.register_hook]
    questions += [torch.is_tensor, torch.numel, torch.is_floating_point, torch.result_type]
    properties: list[Any] = [tensor.shape, tensor.dtype, tensor.grad, tensor.data, tensor.requires_grad, tensor.grad_fn]
    questions += [p.__get__ for p in properties]
    for question in questions:
        api = names.table[question] if question in names.table else names.find(question)
        assert api is None, question


# ---------------------------------------------------------------- calls as they are written


@pytest.fixture
def a() -> torch.Tensor:
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def in_place(a: torch.Tensor, work: str) -> None:
    b = a.clone()
    exec(f"b {work} a", {}, {"a": a, "b": b})


WRITTEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a + b": (lambda a: a + a, "Tensor.__add__"),
    "2 + a": (lambda a: 2 + a, "Tensor.__radd__"),
    "a.add(b)": (lambda a: a.add(a), "Tensor.add"),
    "torch.add(a, b)": (lambda a: torch.add(a, a), "Torch.add"),
    "a - b": (lambda a: a - a, "Tensor.__sub__"),
    "2 - a": (lambda a: 2 - a, "Tensor.__rsub__"),
    "a.sub(b)": (lambda a: a.sub(a), "Tensor.sub"),
    "a * b": (lambda a: a * a, "Tensor.__mul__"),
    "2 * a": (lambda a: 2 * a, "Tensor.__rmul__"),
    "a.mul(b)": (lambda a: a.mul(a), "Tensor.mul"),
    "a / b": (lambda a: a / a, "Tensor.__truediv__"),
    "a.div(b)": (lambda a: a.div(a), "Tensor.div"),
    "a // b": (lambda a: a // a, "Tensor.__floordiv__"),
    "a % b": (lambda a: a % a, "Tensor.__mod__"),
    "a.remainder(b)": (lambda a: a.remainder(a), "Tensor.remainder"),
    "a ** 2": (lambda a: a**2, "Tensor.__pow__"),
    "2 ** a": (lambda a: 2**a, "Tensor.__rpow__"),
    "a.pow(2)": (lambda a: a.pow(2), "Tensor.pow"),
    "a @ b": (lambda a: a @ a, "Tensor.__matmul__"),
    "a.matmul(b)": (lambda a: a.matmul(a), "Tensor.matmul"),
    "-a": (lambda a: -a, "Tensor.__neg__"),
    "a.neg()": (lambda a: a.neg(), "Tensor.neg"),
    "+a": (lambda a: +a, "Tensor.__pos__"),
    "abs(a)": (lambda a: abs(a), "Tensor.__abs__"),
    "a.abs()": (lambda a: a.abs(), "Tensor.abs"),
    "torch.abs(a)": (lambda a: torch.abs(a), "Torch.abs"),
    "a < b": (lambda a: a < a, "Tensor.__lt__"),
    "2 < a": (lambda a: 2 < a, "Tensor.__gt__"),  # noqa: SIM300
    "a.lt(b)": (lambda a: a.lt(a), "Tensor.lt"),
    "a == b": (lambda a: a == a, "Tensor.__eq__"),
    "a.eq(b)": (lambda a: a.eq(a), "Tensor.eq"),
    "torch.eq(a, b)": (lambda a: torch.eq(a, a), "Torch.eq"),
    "a != b": (lambda a: a != a, "Tensor.__ne__"),
    "a >= b": (lambda a: a >= a, "Tensor.__ge__"),
    "a[0]": (lambda a: a[0], "Tensor.__getitem__"),
    "bool(a)": (lambda a: bool(a.sum()), "Tensor.__bool__"),
    "a.__add__(b)": (lambda a: a.__add__(a), "Tensor.__add__"),
    "a += b": (lambda a: in_place(a, "+="), "Tensor.__iadd__"),
    "a -= b": (lambda a: in_place(a, "-="), "Tensor.__isub__"),
    "a *= b": (lambda a: in_place(a, "*="), "Tensor.__imul__"),
    "a /= b": (lambda a: in_place(a, "/="), "Tensor.__itruediv__"),
    "a.clone().add_(b)": (lambda a: a.clone().add_(a), "Tensor.add_"),
    "a.clone().mul_(b)": (lambda a: a.clone().mul_(a), "Tensor.mul_"),
    "sum([a, b])": (lambda a: sum([a, a], a), "Tensor.__add__"),
    "operator.mul(a, b)": (lambda a: operator.mul(a, a), "Tensor.__mul__"),
    "reduce(operator.add)": (lambda a: functools.reduce(operator.add, [a, a]), "Tensor.__add__"),
    "F.relu(a)": (lambda a: F.relu(a), "Functional.relu"),
    "torch.relu(a)": (lambda a: torch.relu(a), "Torch.relu"),
    "a.relu()": (lambda a: a.relu(), "Tensor.relu"),
    "torch.mm(a, b)": (lambda a: torch.mm(a, a), "Torch.mm"),
    "a.mm(b)": (lambda a: a.mm(a), "Tensor.mm"),
    "torch.dsmm(a, b)": (lambda a: torch.dsmm(a, a), "Torch.mm"),
    "torch.hspmm": (lambda a: torch.hspmm(a.to_sparse(), a), "Torch.hspmm"),
    "torch.linalg.norm(a)": (lambda a: torch.linalg.norm(a), "Torch.norm"),
    "torch.fft.fft(a)": (lambda a: torch.fft.fft(a), "Torch.fft"),
    "torch.special.expit(a)": (lambda a: torch.special.expit(a), "Torch.expit"),
    "torch.ops.aten.relu": (lambda a: torch.ops.aten.relu(a), "Ops.aten_relu"),
    "torch.ops.aten.add.Tensor": (lambda a: torch.ops.aten.add.Tensor(a, a), "Ops.aten_add"),
    "a.T": (lambda a: a.T, "Tensor.T"),
    "a.real": (lambda a: a.real, "Tensor.real"),
    "a.view(4)": (lambda a: a.view(4), "Tensor.view"),
    "a.item()": (lambda a: a[0, 0].item(), "Tensor.item"),
    "torch.zeros(2)": (lambda a: torch.zeros(2), "Torch.zeros"),
    "torch.tensor(1.)": (lambda a: torch.tensor(1.0), "Torch.tensor"),
    "torch._VF.lstm": (lambda a: nn.LSTM(2, 2)(a), "VF.lstm"),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_the_name_of_a_call(tmp_path: Path, a: torch.Tensor, text: str) -> None:
    work, expected = WRITTEN[text]
    found = [name.rpartition(".")[0] for name in record(tmp_path, lambda: work(a)).forward()]
    assert expected in found
    if expected.startswith("Tensor."):
        plain = "Tensor." + expected.removeprefix("Tensor.").strip("_").removeprefix("r").removeprefix("i")
        assert plain == expected or plain not in found


def test_operators_are_reported_wherever_they_stand(tmp_path: Path, a: torch.Tensor) -> None:
    class Body:
        found = a + 1  # in a class body

    def nested() -> torch.Tensor:
        def inside() -> torch.Tensor:
            return a + 2

        return inside()

    def generator() -> Any:
        yield a + 3

    def work() -> None:
        nested()
        list(generator())
        [a + n for n in range(2)]
        {n: a + n for n in range(2)}
        (lambda b: b + 1)(a)
        list(map(lambda b: b + 1, [a]))  # noqa: C417
        assert (a + 1 if a is not None else a) is not None
        f"{(a + 1).shape}"
        a.add(a + 1)

    assert record(tmp_path, work).forward() == [*(f"Tensor.__add__.{n}" for n in range(11)), "Tensor.add.0"]


class Watching(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs)


def test_modes_and_subclasses_of_the_user_change_no_name(tmp_path: Path, a: torch.Tensor) -> None:
    own = a.as_subclass(Own)

    def work() -> None:
        for value in (a, own):
            for context in (torch.device("cpu"), Watching()):
                with context:
                    value + 1
                    value.add(1)
                    value += 1
                    abs(value)

    expected = ["Tensor.__add__", "Tensor.add", "Tensor.__iadd__", "Tensor.__abs__"] * 4
    found = [name.rpartition(".")[0] for name in record(tmp_path, work).forward()]
    assert [name for name in found if name in expected] == expected
    assert len(found) == len(expected)


def test_unlisted_operators_and_methods_are_left_out_when_only_the_list_is_wanted(tmp_path: Path) -> None:
    def work() -> None:
        x = torch.ones(2)
        +x, -x, abs(x)
        x.positive(), x.neg(), x.abs(), x.view(2)

    assert record(tmp_path, work, api_scope="listed").forward() == ["Tensor.neg.0", "Tensor.abs.0"]


def test_numbers_count_each_name_for_itself(tmp_path: Path, a: torch.Tensor) -> None:
    def work() -> None:
        a + 1
        a.add(1)
        a + 1
        torch.matmul(a, a)
        torch.linalg.matmul(a, a)

    # Only the last part of a dotted name counts: both have one counter.
    assert record(tmp_path, work).forward() == [
        "Tensor.__add__.0",
        "Tensor.add.0",
        "Tensor.__add__.1",
        "Torch.matmul.0",
        "Torch.matmul.1",
    ]


def test_only_the_outermost_listed_call_is_recorded(tmp_path: Path, a: torch.Tensor) -> None:
    def work() -> None:
        F.cross_entropy(a, torch.tensor([0, 1]))
        F.multi_head_attention_forward(
            a[:, None], a[:, None], a[:, None], 2, 1, torch.ones(6, 2), None, None, None, False, 0.0, torch.ones(2, 2),
            None,
        )  # fmt: skip

    found = record(tmp_path, work).forward()
    assert "Functional.cross_entropy.0" in found
    assert "Functional.multi_head_attention_forward.0" in found
    assert not {n for n in found if n.split(".")[1] in ("log_softmax", "nll_loss", "linear", "softmax", "bmm")}


def test_printing_and_backward_are_seen_through(tmp_path: Path, a: torch.Tensor) -> None:
    a.requires_grad_()

    def work() -> None:
        str(a)
        a.sum().backward()

    found = record(tmp_path, work).forward()
    assert not {name for name in found if "repr" in name or "backward" in name}
    assert "Torch.isfinite.0" in found
    assert found[-1] == "Torch.ones_like.0"


def test_a_listed_api_that_somebody_wrapped_keeps_its_name(
    tmp_path: Path, a: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    @functools.wraps(torch.relu)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    original = torch.relu
    monkeypatch.setattr(torch, "relu", wrapper)
    assert record(tmp_path, lambda: torch.relu(a)).forward() == ["Torch.relu.0"]

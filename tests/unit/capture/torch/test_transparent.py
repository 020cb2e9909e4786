"""Functions that are seen through: what they call inside is recorded, they themselves run exactly as ever."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import record
from torch.overrides import handle_torch_function, has_torch_function_unary

from msprobe.capture.torch import private
from msprobe.capture.torch.calls.transparent import past_question, without_question

x = torch.arange(4.0).reshape(2, 2)


@pytest.fixture(params=["skip one hop", "copy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways past a function's own question; older torch has the second only."""
    if request.param == "copy":
        monkeypatch.setattr(private, "skip_one_hop", None)
    elif private.skip_one_hop is None:
        pytest.skip("this torch cannot skip a question")
    name: str = request.param
    return name


CALLS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "rms_norm": (lambda: F.rms_norm(x, (2,)), ["Torch.rms_norm"]),
    "relu_ on its own": (lambda: F.relu(x), ["Functional.relu"]),
    "meshgrid": (lambda: torch.meshgrid(x[0], x[1], indexing="ij"), ["VF.meshgrid"]),
    "softmin": (lambda: F.softmin(x, dim=1), ["Functional.softmin"]),
    "unravel_index": (lambda: torch.unravel_index(torch.tensor(3), (2, 2)), ["Tensor.floor_divide", "Tensor.__mod__"]),
    "repr": (lambda: repr(x), ["Torch.isfinite", "Torch.masked_select"]),
    "a tensor in an f-string": (lambda: f"{x.sum()}", ["Tensor.item"]),
    "deepcopy": (lambda: __import__("copy").deepcopy(x), []),
    "iteration": (lambda: list(x), ["Tensor.unbind"]),
    "unpacking": (lambda: [a for a, _ in [x]], ["Tensor.unbind"]),
    "contains": (lambda: 1.0 in x, ["Tensor.any"]),
    "backward": (lambda: (x.clone().requires_grad_() * 2).sum().backward(), ["Torch.ones_like"]),
    "autograd.grad": (
        lambda: (lambda y: torch.autograd.grad((y * 2).sum(), y))(x.clone().requires_grad_()),
        ["Torch.ones_like"],
    ),
    "split of a tensor": (lambda: x.split(1), ["Tensor.split"]),
    "stft": (lambda: torch.stft(torch.ones(64), 16, return_complex=True), ["Torch.stft"]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_what_happens_inside_is_recorded(tmp_path: Path, way: str, name: str) -> None:
    call, expected = CALLS[name]
    if (name, way) == ("meshgrid", "copy"):
        expected = ["Torch.meshgrid"]  # asks twice, and can be entered by a skip only
    dump = record(tmp_path, call)
    found = [entry.rpartition(".")[0] for entry in dump.forward()]
    assert [entry for entry in expected if entry not in found] == []
    assert not {entry for entry in found if entry.split(".")[1] in ("rms_norm_", "__repr__", "backward", "grad")}
    assert not list(tmp_path.rglob("dump_error_info.log"))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same(tmp_path: Path, way: str, name: str) -> None:
    call, _ = CALLS[name]
    found: list[Any] = []
    record(tmp_path, lambda: found.append(call()))
    assert repr(found[0]) == repr(call())


def test_an_exception_inside_leaves_the_mode_in_place(tmp_path: Path, way: str) -> None:
    def work() -> None:
        for _ in range(3):
            with pytest.raises(RuntimeError):
                F.rms_norm(x, (5,))
        torch.relu(x)

    assert record(tmp_path, work).forward()[-1] == "Torch.relu.0"


# ---------------------------------------------------------------- functions of others


def asks(tensor: torch.Tensor, depth: int = 0) -> torch.Tensor:
    """A function as libraries write them: it asks whether somebody overrides it."""
    if has_torch_function_unary(tensor):
        result: torch.Tensor = handle_torch_function(asks, (tensor,), tensor, depth=depth)
        return result
    return asks(torch.relu(tensor), depth - 1) if depth else torch.sigmoid(tensor)


def asks_for_ever(tensor: torch.Tensor) -> torch.Tensor:
    if has_torch_function_unary(tensor):
        result: torch.Tensor = handle_torch_function(asks_for_ever, (tensor,), tensor)
        return result
    return tensor


def test_a_function_of_a_library_is_seen_through(tmp_path: Path, way: str) -> None:
    assert record(tmp_path, lambda: asks(x)).forward() == ["Torch.sigmoid.0"]


def test_a_function_that_calls_itself_is_seen_through_each_time(tmp_path: Path, way: str) -> None:
    found = record(tmp_path, lambda: asks(x, 3)).forward()
    assert found == ["Torch.relu.0", "Torch.relu.1", "Torch.relu.2", "Torch.sigmoid.0"]


def test_a_function_that_does_nothing_else_ends(tmp_path: Path, way: str) -> None:
    found: list[Any] = []
    record(tmp_path, lambda: found.append(asks_for_ever(x)))
    assert found[0] is x


class Asking(torch.Tensor):
    """A subclass that answers for itself."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs)


def test_subclasses_are_still_asked(tmp_path: Path, way: str) -> None:
    own = x.as_subclass(Asking)
    found: list[Any] = []
    dump = record(tmp_path, lambda: found.append(F.rms_norm(own, (2,))))
    assert type(found[0]) is Asking
    assert "Torch.rms_norm.0" in dump.forward()


# ---------------------------------------------------------------- the copy that does not ask


def test_the_copy_is_the_function_but_for_its_question() -> None:
    def scaled(tensor: Any, by: float = 2.0, *, plus: float = 1.0) -> Any:
        return tensor * by + plus

    module = types.ModuleType("library")
    names = {"__name__": "library", "has_torch_function": lambda args: True, "answer": 5}
    import sys

    sys.modules["library"] = module
    try:
        vars(module).update(names)
        text = (
            "def asking(tensor, by=2.0, *, plus=1.0):\n"
            "    return 'asked' if has_torch_function((tensor,)) else (tensor * by + plus, answer)"
        )
        exec(text, vars(module))
        function = vars(module)["asking"]
        copy = without_question(function)
        assert function(x) == "asked"
        value, answer = copy(x, plus=3.0)
        assert torch.equal(value, scaled(x, plus=3.0))
        assert answer == 5
        assert (copy.__name__, copy.__defaults__, copy.__kwdefaults__) == ("asking", (2.0,), {"plus": 1.0})
        assert without_question(function) is copy
    finally:
        del sys.modules["library"]


def test_a_function_without_a_question_is_no_copy() -> None:
    def plain() -> int:
        return 1

    space: dict[str, Any] = {"__name__": "plain"}
    exec("def f(): return 1", space)
    assert without_question(space["f"]) is space["f"]


def test_closures_are_kept_by_the_copy() -> None:
    captured = []

    def asking(tensor: Any) -> Any:
        captured.append(1)
        return has_torch_function_unary(tensor)

    assert without_question(asking)(x) is False
    assert captured == [1]


def test_callables_that_are_no_functions_are_called(way: str) -> None:
    if way == "copy":
        function, args, words = past_question(torch.relu, (), (x,), None)
        assert function(*args, **(words or {})) is not None

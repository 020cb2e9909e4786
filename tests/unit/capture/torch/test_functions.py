"""Custom autograd Functions: each one unit, under its class's name; what runs inside is recorded as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.recorded import is_value_of, loss_of, record
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Tensor = torch.Tensor

#: True in torch 2.15: ``apply`` is no Python function any more.
COMPILED_APPLY = not hasattr(Function.apply, "__func__")


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.mul(2 * x, gradients[0])


class SetUp(Function):
    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


class Several(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, name: str, options: dict[str, Any]) -> tuple[Tensor, Tensor, str]:
        ctx.mark_non_differentiable()
        return x + y, x - y, name

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, None, None]:
        a, b, _ = gradients
        return a + b, a - b, None, None


class InPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 3


class Fails(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        raise ValueError("not today")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class Outer(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = Square.apply(ctx.x)
        return ctx.y.detach()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(ctx.y, ctx.x, gradients[0])
        return result


@pytest.fixture
def x() -> Tensor:
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def test_a_function_is_one_unit_with_its_inside(tmp_path: Path, x: Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(Square.apply(x)).backward())
    assert dump.forward()[:2] == ["Function.Square.0", "Tensor.__mul__.0"]
    entry = dump.data["Function.Square.0.forward"]
    assert is_value_of(entry["input_args"][0], x)
    assert is_value_of(entry["output"][0], x**2)
    assert x.grad is not None
    backward = dump.data["Function.Square.0.backward"]
    assert is_value_of(backward["input"][0], 2 * x.detach() ** 2)
    assert is_value_of(backward["output"][0], x.grad)
    # What its own backward calls is recorded, and is no recomputation.
    assert dump.forward()[-2:] == ["Tensor.__rmul__.0", "Torch.mul.0"]
    assert dump.data["Torch.mul.0.forward"]["is_recompute"] is False


CASES: dict[str, Callable[[Tensor], Any]] = {
    "Square": lambda x: loss_of(Square.apply(x)),
    "SetUp": lambda x: loss_of(SetUp.apply(x, 3.0)),
    "Several": lambda x: loss_of(sum(Several.apply(x, x * 2, "n", {"k": 1})[:2])),  # type: ignore[arg-type]
    "InPlace": lambda x: loss_of(InPlace.apply(x * 1)),
    "Outer": lambda x: loss_of(Outer.apply(x)),
}


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_without_recording(tmp_path: Path, x: Tensor, name: str, level: str) -> None:
    CASES[name](x).backward()
    assert x.grad is not None
    alone, x.grad = x.grad, None
    dump = record(tmp_path, lambda: CASES[name](x).backward(), nn.Sequential(nn.ReLU()), level=level)
    assert x.grad is not None
    assert torch.equal(x.grad, alone)
    if level in ("L1", "mix"):
        assert f"Function.{name}.0.forward" in dump.data
        assert f"Function.{name}.0.backward" in dump.data
    assert not list(tmp_path.rglob("dump_error_info.log"))


def test_arguments_of_every_kind(tmp_path: Path, x: Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(Several.apply(x, x.detach(), "n", {"k": 1})[0]).backward())
    entry = dump.data["Function.Several.0.forward"]
    assert entry["input_args"][2:] == [{"type": "str", "value": "n"}, {"k": {"type": "int", "value": 1}}]
    assert len(entry["output"]) == 3
    backward = dump.data["Function.Several.0.backward"]
    # Of its tensor arguments, in their order.
    assert [d["shape"] for d in backward["output"]] == [[3], [3]]


def test_an_in_place_function_shows_what_was_and_what_is(tmp_path: Path, x: Tensor) -> None:
    entry = record(tmp_path, lambda: InPlace.apply(x * 1)).data["Function.InPlace.0.forward"]
    assert entry["input_args"][0]["Max"] == 3
    assert entry["output"][0]["Max"] == 9


def test_a_function_that_raises_is_reported(tmp_path: Path, x: Tensor) -> None:
    def work() -> None:
        with pytest.raises(ValueError, match="not today"):
            Fails.apply(x)
        Square.apply(x)

    dump = record(tmp_path, work)
    assert dump.data["Function.Fails.0.forward"]["error"] == "ValueError: not today"
    assert "Function.Square.0.forward" in dump.data


def test_functions_of_one_name_are_numbered(tmp_path: Path, x: Tensor) -> None:
    other = type("Square", (SetUp,), {})

    def work() -> None:
        loss_of(Square.apply(other.apply(Square.apply(x), 2.0))).backward()

    dump = record(tmp_path, work)
    assert [n for n in dump.forward() if "Square" in n] == [f"Function.Square.{n}" for n in range(3)]
    assert [n for n in dump.backward() if "Square" in n] == [f"Function.Square.{n}" for n in (2, 1, 0)]


def test_a_second_derivative_goes_through_a_function(tmp_path: Path, x: Tensor) -> None:
    found: list[Tensor] = []

    def work() -> None:
        (first,) = torch.autograd.grad(loss_of(Square.apply(x)), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        found.append(second)

    record(tmp_path, work)
    assert torch.allclose(found[0], 12 * x.detach() ** 2)


def test_without_gradients(tmp_path: Path, x: Tensor) -> None:
    def work() -> None:
        with torch.no_grad():
            Square.apply(x)

    dump = record(tmp_path, work)
    assert dump.forward() == ["Function.Square.0", "Tensor.__mul__.0"]
    assert dump.backward() == []


def test_transforms_run_as_ever(tmp_path: Path) -> None:
    class Mapped(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return 2 * ctx.saved_tensors[0] * gradients[0]

    x, found = torch.arange(3.0), []
    dump = record(tmp_path, lambda: found.append(torch.vmap(torch.func.grad(lambda v: Mapped.apply(v)))(x)))
    assert torch.equal(found[0], 2 * x)
    assert "Function.Mapped.0.forward" in dump.data
    assert not list(tmp_path.rglob("dump_error_info.log"))


@pytest.mark.skipif(COMPILED_APPLY, reason="this torch has a compiled Function.apply, which is replaced")
def test_apply_is_the_same_object_all_the_time(tmp_path: Path, x: Tensor) -> None:
    def apply() -> tuple[Any, Any]:
        return vars(Function)["apply"], Function.apply.__func__  # type: ignore[attr-defined]

    before, code = apply(), apply()[1].__code__
    during: list[Any] = []
    record(tmp_path, lambda: during.append(apply()))
    assert before == during[0] == apply()
    assert apply()[1].__code__ is code


def test_apply_that_was_bound_before_is_seen(tmp_path: Path, x: Tensor) -> None:
    """`square = Square.apply` at import time is the usual way to use a Function."""
    square = Square.apply
    dump = record(tmp_path, lambda: loss_of(square(x)).backward())
    if COMPILED_APPLY:
        # Nothing leads from a bound method of a compiled class to us; what runs inside is recorded.
        assert dump.forward()[0] == "Tensor.__mul__.0"
        return
    assert dump.forward()[:2] == ["Function.Square.0", "Tensor.__mul__.0"]
    assert "Function.Square.0.backward" in dump.data
    assert x.grad is not None
    assert torch.equal(x.grad, 4 * x.detach() ** 3)


def test_an_apply_of_its_own_that_calls_the_other(tmp_path: Path, x: Tensor) -> None:
    class Wraps(Square):
        @classmethod
        def apply(cls, *args: Any, **kwargs: Any) -> Any:
            return super().apply(*args, **kwargs) + 1

    dump = record(tmp_path, lambda: Wraps.apply(x))
    assert dump.forward() == ["Function.Wraps.0", "Tensor.__mul__.0", "Tensor.__add__.0"]


def test_the_stack_begins_at_the_caller(tmp_path: Path, x: Tensor) -> None:
    def work() -> None:
        Square.apply(x)

    dump = record(tmp_path, work)
    line = work.__code__.co_firstlineno + 1
    frame = f"File {__file__}, line {line}, in work, \n Square.apply(x)"
    assert dump.frames_of("Function.Square.0.forward")[0] == frame
    assert dump.data["Function.Square.0.forward"]["msprobe"]["source"] == f"{__file__}:{line}"


def test_functions_of_the_framework_are_no_units(tmp_path: Path, x: Tensor) -> None:
    from torch.utils.checkpoint import checkpoint

    def work() -> None:
        loss_of(checkpoint(torch.exp, x, use_reentrant=True)).backward()

    assert not [name for name in record(tmp_path, work).data if name.startswith("Function.")]

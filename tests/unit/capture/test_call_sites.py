"""What the caller's bytecode tells of a call. No framework is needed, so that every Python version can run this."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.row_by_row import for_each

from msprobe.capture.call_sites import Form, called_as_builtin, form_of_call, made_by_operator


def form(*args: Any, **kwargs: Any) -> Form | None:
    """How this very call was written."""
    frame = sys._getframe(1)
    return form_of_call(frame.f_code, frame.f_lasti)


class Thing:
    def form(self, *args: Any, **kwargs: Any) -> Form | None:
        frame = sys._getframe(1)
        return form_of_call(frame.f_code, frame.f_lasti)


def argument(*args: Any, **kwargs: Any) -> int:
    return 1


# ---------------------------------------------------------------- positional and keyword arguments

some, more = [1, 2], {"k": 1}

CALLS: dict[str, tuple[Callable[[], Any], Form | None]] = {
    "nothing": (lambda: form(), Form(0, ())),
    "one": (lambda: form(1), Form(1, ())),
    "positional": (lambda: form(1, 2, 3), Form(3, ())),
    "keyword": (lambda: form(k=1), Form(0, ("k",))),
    "both": (lambda: form(1, 2, a=3, b=4), Form(2, ("a", "b"))),
    "calls as arguments": (lambda: form(argument(1, k=2), a=argument(b=3)), Form(1, ("a",))),
    "a method": (lambda: Thing().form(1, k=2), Form(1, ("k",))),
    "a method without arguments": (lambda: Thing().form(), Form(0, ())),
    "a star": (lambda: form(*some), None),
    "a star behind": (lambda: form(1, *some), None),
    "two stars": (lambda: form(**more), None),
    "keyword and two stars": (lambda: form(1, a=2, **more), None),
    "a list comprehension": (lambda: [form(n, k=n) for n in range(2)][-1], Form(1, ("k",))),
    "a set comprehension": (lambda: next(iter({form(n, k=n) for n in range(2)})), Form(1, ("k",))),
    "a generator": (lambda: next(form(n, k=n) for n in range(2)), Form(1, ("k",))),
    "a lambda in a call": (lambda: (lambda f: f(1, k=2))(form), Form(1, ("k",))),
    "a conditional": (lambda: form(1 if some else 2, k=some or more), Form(1, ("k",))),
    "a subscript": (lambda: {"f": form}["f"](1, k=2), Form(1, ("k",))),
    "many": (lambda: form(1, 2, 3, 4, 5, a=1, b=2, c=3, d=4, e=5), Form(5, ("a", "b", "c", "d", "e"))),
}


@for_each("name", CALLS)
def test_the_form_of_a_call(name: str) -> None:
    call, expected = CALLS[name]
    assert call() == expected


def test_a_call_that_runs_often_keeps_its_form() -> None:
    # From 3.11 on the interpreter rewrites instructions that run often.
    found = {form(n, k=n) for n in range(500)} | {Thing().form(n, k=n) for n in range(500)}
    assert found == {Form(1, ("k",))}


def test_several_calls_in_one_line_are_distinguished() -> None:
    found = [form(), form(1), form(k=1), form(1, k=2)]
    assert found == [Form(0, ()), Form(1, ()), Form(0, ("k",)), Form(1, ("k",))]


@pytest.mark.parametrize("constants", [10, 300, 70_000])
def test_code_with_many_constants(constants: int) -> None:
    lines = ["def f():", *(f"    x = {1000 + n}" for n in range(constants)), "    return form(1, 2, some_word=3)"]
    names: dict[str, Any] = {"form": form}
    exec("\n".join(lines), names)
    assert names["f"]() == Form(2, ("some_word",))


@pytest.mark.parametrize(("count", "told"), [(25, True), (200, False)])
def test_calls_with_many_arguments(count: int, told: bool) -> None:
    # Python makes a tuple of very many arguments, as for a star.
    text = ", ".join(map(str, range(count)))
    assert eval(f"form({text}, k=1)", {"form": form}) == (Form(count, ("k",)) if told else None)


def test_a_call_across_lines() -> None:
    found = form(
        1,
        k=argument(
            2,
        ),
    )
    assert found == Form(1, ("k",))


def test_a_call_in_a_class_body_a_default_and_a_decorator() -> None:
    class Body:
        found = form(1, k=2)

        def method(self, default: Any = form(1, 2, j=3)) -> Any:  # noqa: B008
            return default

    assert Body.found == Form(1, ("k",))
    assert Body().method() == Form(2, ("j",))


def test_an_operator_has_no_form() -> None:
    class Adds:
        def __add__(self, other: object) -> Form | None:
            frame = sys._getframe(1)
            return form_of_call(frame.f_code, frame.f_lasti)

    assert Adds() + 1 is None  # type: ignore[comparison-overlap]


# ---------------------------------------------------------------- operators


class Number:
    """Every method answers whether an operator called it."""

    def add(self, other: object = None) -> Any:
        frame = sys._getframe(1)
        return made_by_operator(frame.f_code, frame.f_lasti, "add")

    __add__ = __radd__ = __iadd__ = __sub__ = __mul__ = __matmul__ = __truediv__ = __mod__ = __pow__ = add
    __and__ = __or__ = __xor__ = __floordiv__ = __lshift__ = __imul__ = __neg__ = __invert__ = __pos__ = add
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = add
    __eq__ = __ne__ = add  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __abs__(self) -> Any:
        frame = sys._getframe(1)
        return called_as_builtin(frame.f_code, frame.f_lasti, "abs")

    abs = __abs__


a = Number()


def in_place() -> Any:
    b: Any = Number()
    b += 1
    return b


BY_OPERATOR: dict[str, Callable[[], Any]] = {
    "+": lambda: a + 1,
    "reflected +": lambda: 1 + a,  # type: ignore[operator]
    "+=": in_place,
    "-": lambda: a - 1,
    "*": lambda: a * 1,
    "@": lambda: a @ a,
    "/": lambda: a / 1,
    "//": lambda: a // 1,
    "%": lambda: a % 1,
    "**": lambda: a**1,
    "&": lambda: a & 1,
    "<<": lambda: a << 1,
    "unary -": lambda: -a,
    "~": lambda: ~a,
    "<": lambda: a < 1,
    "==": lambda: a == 1,
    "!=": lambda: a != 1,
    ">=": lambda: a >= 1,
    "in a list comprehension": lambda: [a + n for n in range(2)][1],
    "in a generator": lambda: next(a + n for n in range(2)),
    "in a call": lambda: (lambda x: x)(a + 1),
    "often": lambda: all(a + n for n in range(300)),
    "sum": lambda: sum([a]),  # type: ignore[list-item]
    "reduce": lambda: functools.reduce(operator.sub, [a, 1]),  # type: ignore[arg-type]
    "operator.mul": lambda: operator.mul(a, 1),
    "operator.add": lambda: operator.add(a, 1),
    "reduce over operator.add": lambda: functools.reduce(operator.add, [a, 1]),  # type: ignore[arg-type]
}
BY_CALL: dict[str, Callable[[], Any]] = {
    "a method": lambda: a.add(1),
    "a method beside an operator": lambda: (a + 1, a.add(a - 1))[1],
    "a method beside a function of operators": lambda: (operator.add(1, 1), a.add(1))[1],
    "a method of a result": lambda: [a][0].add(1),
    "a method, often": lambda: any(a.add(n) for n in range(300)),
    "a method with a star": lambda: a.add(*[1]),
    "by keyword": lambda: a.add(other=1),
    "the class's function": lambda: Number.add(a, 1),
}


@for_each("name", BY_OPERATOR)
def test_an_operator_is_recognised(name: str) -> None:
    assert BY_OPERATOR[name]() is True


@for_each("name", BY_CALL)
def test_a_method_call_is_no_operator(name: str) -> None:
    assert BY_CALL[name]() is False


def test_abs_as_a_function_and_as_a_method() -> None:
    assert abs(a) is True
    assert a.abs() is False
    assert [abs(a), a.abs(), abs(a)] == [True, False, True]
    assert (a.abs(), abs(a)) == (False, True)
    assert [abs(x) for x in [a]] == [True]


def test_no_instruction_is_no_operator() -> None:
    assert made_by_operator(form.__code__, -1, "add") is False

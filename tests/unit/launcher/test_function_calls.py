"""Functions of a program by their names."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from msprobe.launcher.function_calls import code_runs, functions_named


def here() -> Any:
    return sys._getframe()


class Trainer:
    def train_step(self) -> Any:
        return self.look("Trainer.train_step"), self.look("train_step"), self.look("Other.train_step")

    @staticmethod
    def look(name: str) -> Any:
        return functions_named(name, sys._getframe())

    @classmethod
    def fit(cls) -> None: ...


@pytest.mark.parametrize("name", ["here", "Trainer.train_step", "Trainer.fit"])
def test_functions_of_the_script_and_of_modules_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected: Any = here if name == "here" else vars(Trainer)[name.split(".")[1]]
    expected = getattr(expected, "__func__", expected)
    assert functions_named(f"{__name__}.{name}", None) == [expected]
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    assert functions_named(name, None) == [expected]


@pytest.mark.parametrize("name", ["nothing", "no.module.here", "Trainer.missing", "pytest.raises.missing", "sys.path"])
def test_what_is_no_function_is_not_found(name: str) -> None:
    assert functions_named(name, sys._getframe()) == []


def test_a_function_that_runs_is_found_by_what_it_is_called() -> None:
    whole, last, other = Trainer().train_step()
    assert whole == last == [Trainer.train_step]
    assert other == []


def test_a_function_inside_of_a_function_is_found_while_it_runs() -> None:
    def inner() -> Any:
        return functions_named("inner", sys._getframe())

    assert inner() == [inner]
    assert functions_named("inner", None) == []


def test_code_that_runs() -> None:
    def inner() -> tuple[bool, bool]:
        frame: types.FrameType = here()
        return code_runs({inner.__code__}, frame), code_runs({Trainer.fit.__code__}, frame)

    assert inner() == (True, False)

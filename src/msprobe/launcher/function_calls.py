"""Functions of a program by the name that a user gives them."""

from __future__ import annotations

import gc
import inspect
import sys
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any


def functions_named(name: str, frame: types.FrameType | None) -> list[types.FunctionType]:
    """The functions that go by a qualified name: in the script (``train_step``, ``Trainer.train_step``), in a module
    that was imported (``package.module.train_step``), or among those that run in ``frame`` and its callers.
    """
    words = name.split(".")
    holders = [(sys.modules.get("__main__"), words)]
    holders += [(sys.modules.get(".".join(words[:count])), words[count:]) for count in range(len(words) - 1, 0, -1)]
    for holder, path in holders:
        function: Any = holder
        for word in path:
            function = inspect.getattr_static(function, word, None) if function is not None else None
        function = getattr(function, "__func__", function)
        if isinstance(function, types.FunctionType):
            return [function]
    while frame is not None:
        code = frame.f_code
        if code.co_name == words[-1] and _is_called(code, frame, words):
            return _functions_of(code, frame.f_globals)
        frame = frame.f_back
    return []


def _functions_of(code: types.CodeType, names: dict[str, Any]) -> list[types.FunctionType]:
    """The functions with this code: those in a module and its classes, and all that the collector knows. There is one
    more of it each time that a function around it is called.
    """
    held = [*names.values()]
    for value in names.values():
        if isinstance(value, type):
            held += vars(value).values()
    held = [value.__func__ if isinstance(value, (staticmethod, classmethod)) else value for value in held]
    held += gc.get_referrers(code)
    functions = {
        id(function): function
        for function in held
        if type(function) is types.FunctionType and function.__code__ is code
    }
    return list(functions.values())


def _is_called(code: types.CodeType, frame: types.FrameType, words: list[str]) -> bool:
    # Python 3.10 has no qualified names of code.
    qualified = getattr(code, "co_qualname", ".".join(words)).replace("<locals>.", "")
    whole = f"{frame.f_globals.get('__name__', '')}.{qualified}"
    return f".{whole}".endswith("." + ".".join(words))


def code_runs(codes: Collection[types.CodeType], frame: types.FrameType | None) -> bool:
    """Whether one of ``codes`` runs in ``frame`` or its callers."""
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


class CallsWhile:
    """Hands calls on to ``target`` as long as ``runs`` says so of the frame that they come from; none behind that."""

    def __init__(self, runs: Callable[[types.FrameType], bool], target: Any) -> None:
        self._runs = runs
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any] | None, *more: Any) -> Any:
        if not self._runs(sys._getframe(1)):
            return None
        return self._target.begin_call(key, args, kwargs, *more)

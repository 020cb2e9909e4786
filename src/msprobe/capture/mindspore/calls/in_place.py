"""What writes into tensors that are there already: before it does, values that are still to be read are read.

Between its recording and the end of the step a tensor is only held (:mod:`msprobe.capture.mindspore.tensors`), so every
way to write into it is watched while recording:

- methods and functions whose names end with ``_``, the operators ``+=`` and its kin, assignment to elements, functions
  that are given ``inplace=True``;
- primitives that say that they write, wherever they are called from: functions that a program has imported by name
  come to them, too;
- compiled functions, optimizers among them: what they write is not seen from outside;
- optimizers, whatever they are made of.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn, ops

from msprobe.capture.mindspore.calls import writing_primitives
from msprobe.capture.mindspore.graphs.executor import jit_executor_class, pynative_executor
from msprobe.capture.mindspore.patches import Patches, Replacement
from msprobe.capture.mindspore.tensors import MindSporeTensors

_OPERATORS = tuple(
    f"__i{name}__" for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
)
_METHODS = ("__setitem__", "set_data", "assign_value", "scatter_add_", *_OPERATORS)
_FUNCTIONS = ("assign", "scatter_", "inplace_")
_PLACES = ("mindspore.ops", "mindspore.mint", "mindspore.mint.nn.functional", "mindspore.mint.distributed")


def writes(name: str) -> bool:
    """True for the name of a function or method that writes into an argument."""
    return name in _METHODS or (name.endswith("_") and not name.endswith("__")) or name.startswith(_FUNCTIONS)


def reading_first(read: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, called when everything that waits to be read has been."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        read()
        return original(*args, **kwargs)

    return replacement


def reading_first_if_in_place(read: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a function that writes if it is asked to."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("inplace") or any(value is True for value in args):
            read()
        return original(*args, **kwargs)

    return replacement


def _writers() -> Iterator[tuple[Any, str, bool]]:
    """(holder, name, whether it writes in any case) of all that writes."""
    for name in dir(Tensor):
        if (writes(name) and not name.startswith("_")) or name in _METHODS:
            yield Tensor, name, True
            if name in vars(Parameter):
                yield Parameter, name, True
    for place in _PLACES:
        try:
            module = importlib.import_module(place)
        except ImportError:
            continue
        for name, function in list(vars(module).items()):
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if writes(name):
                yield module, name, True
            elif (
                "inplace"
                in function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
            ):
                yield module, name, False


def _calling_classes() -> list[type]:
    """Classes whose objects may write into anything when they are called: optimizers and compiled functions."""
    kinds: list[type] = [nn.Optimizer]
    with contextlib.suppress(ImportError, AttributeError):
        kinds.append(importlib.import_module("mindspore.experimental.optim").Optimizer)
    executor = jit_executor_class()
    return kinds if executor is None else [*kinds, executor]


class InPlaceWatch:
    """Has what is held read before anything writes. What is recorded as a call sees to it itself."""

    def __init__(self, tensors: MindSporeTensors) -> None:
        self.tensors = tensors
        self._patches = Patches()
        self._is_filled = False

    def attach(self, without: set[tuple[int, str]]) -> None:
        """Begin to watch. ``without``: (identity of the holder, name) of functions that others have replaced."""
        if not self._is_filled:
            self._is_filled = True
            self._fill(without)
        self._patches.attach()

    def detach(self) -> None:
        """Leave everything as it was."""
        self._patches.detach()

    def _fill(self, without: set[tuple[int, str]]) -> None:
        for holder, name, always in _writers():
            if (id(holder), name) not in without:
                make = reading_first if always else reading_first_if_in_place
                self._patches.add(holder, name, functools.partial(make, self.tensors.flush))
        for kind in _calling_classes():
            self._watch(kind, "__call__", lambda owner, args: self.tensors.flush())
        for kind in writing_primitives.writing_classes():
            self._watch(kind, "__call__", self._before_primitive)
        executor = pynative_executor()
        if executor is not None and hasattr(type(executor), "run_op_async"):
            self._watch(type(executor), "run_op_async", self._before_run)

    def _watch(self, holder: type, name: str, before: Callable[[Any, Sequence[Any]], None]) -> None:
        """Do ``before(object, arguments)`` first. Others may have replaced the method when it is attached again."""
        tensors, inherited = self.tensors, getattr(holder, name)

        @functools.wraps(inherited)
        def method(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if tensors.has_late():
                tensors.session.guard(before, owner, args)
            return replacement.below(inherited)(owner, *args, **kwargs)

        replacement = Replacement(holder, name, method)
        self._patches.add_replacement(replacement)

    def _before_primitive(self, primitive: Any, args: Sequence[Any]) -> None:
        if writing_primitives.writes_averages(primitive):
            self.tensors.flush_for_averages(args)
        elif writing_primitives.writes(primitive):
            self.tensors.flush()

    def _before_run(self, executor: Any, args: Sequence[Any]) -> None:
        # The arguments are the primitive, its name and its own arguments.
        if args and isinstance(args[0], ops.Primitive):
            self._before_primitive(args[0], args[-1])

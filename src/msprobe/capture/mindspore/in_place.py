"""What writes into tensors that are there already: before it does, values that are still to be read are read.

Between its recording and the end of the step a tensor is only held (:mod:`msprobe.capture.mindspore.tensors`), so every
way to write into it is watched while recording: methods and functions whose names end with ``_``, the operators
``+=`` and its kin, assignment to elements, functions that are told ``inplace=True``. Parameters are written to by
primitives and compiled optimizers as well; they are copied instead of held.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from mindspore import Tensor

from msprobe.capture.mindspore.patches import Patches

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


def reading_first_if_told(read: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a function that writes if it is told so."""

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
    for place in _PLACES:
        try:
            module = importlib.import_module(place)
        except ImportError:
            continue
        for name, found in list(vars(module).items()):
            if name.startswith("_") or not inspect.isfunction(found):
                continue
            if writes(name):
                yield module, name, True
            elif (
                "inplace" in found.__code__.co_varnames[: found.__code__.co_argcount + found.__code__.co_kwonlyargcount]
            ):
                yield module, name, False


class InPlaceWatch:
    """Puts :func:`reading_first` around everything that writes, but for what is recorded as a call."""

    def __init__(self, read: Callable[[], None]) -> None:
        self.read = read
        self._patches = Patches()
        self._is_filled = False

    def attach(self, without: set[tuple[int, str]]) -> None:
        """Begin to watch. ``without``: (identity of the holder, name) of functions that others have replaced."""
        if not self._is_filled:
            self._is_filled = True
            for holder, name, always in _writers():
                if (id(holder), name) not in without:
                    make = reading_first if always else reading_first_if_told
                    self._patches.add(holder, name, functools.partial(make, self.read))
        self._patches.attach()

    def detach(self) -> None:
        """Leave everything as it was."""
        self._patches.detach()

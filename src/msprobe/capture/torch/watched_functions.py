"""Calls of Python functions, seen without replacing the functions.

While attached, a watched function runs other code: a few instructions that hand the call to its observer. The
function object stays the same one, so names that were imported long before are seen as well, and everything
that knows a function by its identity still does: ``P2POp`` distinguishes sends from receives by it, compilers find
collectives by it, ``is`` in the user's program holds. Detached, the function runs the very code object it
had.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from typing import Any

from msprobe.messages import said

# What to do with a call: (the function as it was before, positional arguments, keyword arguments) -> its
# result.
Observer = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
# What the entrance of a function calls with (positional arguments, keyword arguments).
Entrance = Callable[[tuple[Any, ...], dict[str, Any]], Any]
# Makes an entrance of the function as it was before.
MakeEntrance = Callable[[types.FunctionType], Entrance]

# Number of a function -> what its code calls while it is watched. Never shrinks: a thread that was about to
# make the call when the function was let go ends up at the original.
ENTRANCES: list[Entrance] = []

# The code of watched functions, by identity; kept by those who are known.
_entrances: set[int] = set()
_known: dict[types.FunctionType, _Watched] = {}


def is_entrance(code: types.CodeType) -> bool:
    """True for the code that a watched function has in place of its own."""
    return id(code) in _entrances


class _Watched:
    """One function, and the code that is exchanged."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.number = len(ENTRANCES)
        self.observer: Observer | None = None
        self._learn()
        ENTRANCES.append(self.call)

    def _learn(self) -> None:
        function = self.function
        self.own_code = code = function.__code__
        self.original = types.FunctionType(
            code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self.original.__kwdefaults__ = function.__kwdefaults__
        # What follows __wrapped__ finds the inner function, which keeps its code.
        self.signature = None if hasattr(function, "__wrapped__") else _signature(function)
        self.entrance = _entrance(self.number, code)
        _entrances.add(id(self.entrance))

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        observer = self.observer
        if observer is None:
            return self.original(*args, **kwargs)
        return observer(self.original, args, kwargs)

    def attach(self, observer: Observer | None, make: MakeEntrance | None = None) -> None:
        function = self.function
        if function.__code__ is self.entrance:
            raise RuntimeError(said("function-watched-already", function.__qualname__))
        if function.__code__ is not self.own_code:
            self._learn()
        self.observer = observer
        ENTRANCES[self.number] = self.call if make is None else make(self.original)
        if self.signature is not None:
            function.__dict__["__signature__"] = self.signature
        function.__code__ = self.entrance

    def detach(self) -> None:
        function = self.function
        if function.__code__ is self.entrance:
            function.__code__ = self.own_code
        if self.signature is not None and function.__dict__.get("__signature__") is self.signature:
            del function.__dict__["__signature__"]
        self.observer = None
        ENTRANCES[self.number] = self.call


def _signature(function: types.FunctionType) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _entrance(number: int, code: types.CodeType) -> types.CodeType:
    """Code that hands its arguments to entrance ``number``.

    It has as many free variables as ``code`` (Python insists), and its place, so that who looks at files,
    tracebacks and compilers see the function where it was.
    """
    free = [f"free{i}" for i in range(len(code.co_freevars))]
    # All in one line: the first line of the function is what a traceback shows.
    mention = f" if True else ({', '.join(free)},)" if free else ""
    source = (
        f"def outer({', '.join(free)}):\n"
        f" def inner(*args, **kwargs):"
        f" from {__name__} import ENTRANCES; return ENTRANCES[{number}](args, kwargs){mention}\n"
        f" return inner\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, code.co_filename, "exec"), names)
    inner: types.FunctionType = names["outer"](*free)
    place: dict[str, Any] = {"co_firstlineno": code.co_firstlineno, "co_name": code.co_name}
    if hasattr(code, "co_qualname"):  # Python 3.11
        place["co_qualname"] = code.co_qualname
    return inner.__code__.replace(**place)


class FunctionCalls:
    """A set of functions whose calls are observed between attach and detach."""

    def __init__(self) -> None:
        self._wanted: dict[types.FunctionType, tuple[Observer | None, MakeEntrance | None]] = {}
        self._attached: list[_Watched] = []

    def add(self, function: Any, observer: Observer) -> bool:
        """Observe ``function``; False if it is no Python function (its code cannot be exchanged)."""
        if not isinstance(function, types.FunctionType):
            return False
        self._wanted.setdefault(function, (observer, None))
        return True

    def add_around(self, function: Any, make: MakeEntrance) -> bool:
        """Have ``make(original)`` called with ``(args, kwargs)`` in place of ``function``; False as for :meth:`add`."""
        if not isinstance(function, types.FunctionType):
            return False
        self._wanted.setdefault(function, (None, make))
        return True

    def attach(self) -> None:
        """Observe from now on."""
        if self._attached:
            return
        for function, (observer, make) in self._wanted.items():
            watched = _known.get(function)
            if watched is None:
                watched = _known[function] = _Watched(function)
            with contextlib.suppress(RuntimeError, ValueError):
                watched.attach(observer, make)
                self._attached.append(watched)

    @property
    def is_attached(self) -> bool:
        """True between attach and detach."""
        return bool(self._attached)

    def detach(self) -> None:
        """Give all functions their own code back."""
        attached, self._attached = self._attached, []
        for watched in reversed(attached):
            watched.detach()

"""Doing something before and after a call of another function.

With the C extension no frame of ours is on the stack while the function runs: what it warns of is attributed to the
user's line, its traceback shows the user's program alone, and who counts frames counts right.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from msprobe.capture import native

# What to call, with what, and what to say `after` (None: it is not called).
Plan = tuple[Callable[..., Any], Sequence[Any], "dict[str, Any] | None", Any]


class AroundPython:
    """Calls ``before(*args, **kwargs)``, runs what that plans, and hands ``after(token, result, error)`` what came of
    it: the error, which goes on its way, is None if there is a result. ``after`` answers None, or ``(other,)`` for
    another result. Both must not raise.
    """

    def __init__(self, before: Callable[..., Plan], after: Callable[[Any, Any, Any], Any]) -> None:
        self.before = before
        self.after = after

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __reduce__(self) -> str:
        """Pickled and copied as a function is: by its name, where it stands in the place of one."""
        return str(self.__dict__["__name__"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, given, words, token = self.before(*args, **kwargs)
        if not isinstance(function, types.FunctionType):
            # What C++ warns of is attributed to the innermost frame.
            given, function = (function, *given), _call_from(sys._getframe(1))
        if token is None:
            return function(*given, **(words or {}))
        try:
            result = function(*given, **(words or {}))
        except BaseException as error:
            self.after(token, None, error)
            raise
        other = self.after(token, result, None)
        return result if other is None else other[0]


Around: Any = native.Around or AroundPython
# How many frames of ours there are between the caller and `before`, and the caller and the function.
FRAMES = 0 if native.Around is not None else 1

_MOST_PLACES = 10_000
# (code, instruction) -> the code that stands for it; by identity, and kept so that it stays its own.
_places: dict[tuple[int, int], tuple[types.CodeType, types.CodeType]] = {}
_stand_ins: set[int] = set()


def is_stand_in(code: types.CodeType) -> bool:
    """True for the code of a frame that stands in the user's place, and is one too many."""
    return id(code) in _stand_ins


def _call_from(frame: types.FrameType) -> Callable[..., Any]:
    """A function that calls another one, and looks as if the line that ``frame`` is at did."""
    code, line = frame.f_code, frame.f_lineno
    key = id(code), line
    known = _places.get(key)
    if known is None:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
            _stand_ins.clear()
        # In one line, so that all of it is at that one.
        names: dict[str, Any] = {}
        source = "def call(function, /, *args, **kwargs): return function(*args, **kwargs)"
        exec(compile(source, code.co_filename, "exec"), names)
        place = names["call"].__code__.replace(co_name=code.co_name, co_firstlineno=line)
        known = _places[key] = code, place
        _stand_ins.add(id(place))
    return types.FunctionType(known[1], frame.f_globals)

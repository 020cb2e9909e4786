"""Arguments in the form in which the user gave them.

A Python function of torch reaches the mode with its arguments in the form in which it passes them on, all defaults
filled in. A record holds them as they were given: which by position, which by keyword, and no defaults. The call
instruction in the caller's code tells how many there were of each.
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple


class Form(NamedTuple):
    """How a call was written: the number of positional arguments, and the keywords."""

    positional: int
    keywords: tuple[str, ...]


@lru_cache(maxsize=4096)
def parameters_of(function: Any) -> tuple[str, ...] | None:
    """The names of a function's parameters in order; None if it takes ``*args`` or ``**kwargs``, or cannot be asked."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(p.kind in loose for p in signature.parameters.values()):
        return None
    return tuple(signature.parameters)


@lru_cache(maxsize=100_000)
def form_of_call(code: types.CodeType, lasti: int) -> Form | None:
    """How the call at ``lasti`` of ``code`` was written; None if the code does not tell (``f(*args)``, operators)."""
    instructions = list(dis.get_instructions(code))
    # While a Python function runs, its caller may stand on the inline cache behind the call.
    place = bisect_right(instructions, lasti, key=lambda instruction: instruction.offset) - 1
    if place < 0:
        return None
    call = instructions[place]
    count = call.arg or 0
    if call.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD"):
        keywords: tuple[str, ...] = ()
        # 3.11 and 3.12: the keywords stand in an instruction before the call, with PRECALL or EXTENDED_ARG between.
        for earlier in reversed(instructions[max(0, place - 3) : place]):
            if earlier.opname == "KW_NAMES":
                found = earlier.argval
                keywords = found if isinstance(found, tuple) else code.co_consts[earlier.arg or 0]
                break
            if earlier.opname not in ("PRECALL", "EXTENDED_ARG", "CACHE"):
                break
        return Form(count - len(keywords), keywords)
    if call.opname in ("CALL_FUNCTION_KW", "CALL_KW") and place:
        found = instructions[place - 1].argval
        if isinstance(found, tuple):
            return Form(count - len(found), found)
    return None


def as_given(
    function: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    frame: types.FrameType | None,
    is_method: bool,
) -> tuple[Sequence[Any], dict[str, Any] | None]:
    """``args`` and ``kwargs`` in the form of the call that ``frame`` is making; unchanged where that cannot be told."""
    names = parameters_of(function)
    if names is None or frame is None:
        return args, kwargs
    form = form_of_call(frame.f_code, frame.f_lasti)
    if form is None:
        return args, kwargs
    values = dict(zip(names, args, strict=False))
    if kwargs:
        values.update(kwargs)
    positional = form.positional + (1 if is_method else 0)
    if positional > len(names) or any(word not in values for word in form.keywords):
        return args, kwargs
    first = names[:positional]
    if any(name not in values for name in first):
        return args, kwargs
    return [values[name] for name in first], {word: values[word] for word in form.keywords}


def calling_frame(function: Any, depth: int) -> types.FrameType | None:
    """The frame that called ``function``, looked for outward from ``depth`` frames above the caller of this."""
    code = getattr(function, "__code__", None)
    frame: types.FrameType | None = sys._getframe(depth + 1)
    for _ in range(6):
        if frame is None:
            return None
        if frame.f_code is code:
            return frame.f_back
        frame = frame.f_back
    return None

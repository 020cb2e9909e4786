"""Arguments in the form in which the user gave them.

A Python function of torch reaches the mode with its arguments in the form in which it passes them on, all defaults
filled in. A record holds them as they were given: which by position, which by keyword, and no defaults. The call
instruction in the caller's code tells how many there were of each.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msprobe.capture.call_sites import form_of_call


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

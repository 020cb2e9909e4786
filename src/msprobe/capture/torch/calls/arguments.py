"""Arguments in the form in which the user gave them.

A Python function of torch reaches the mode with its arguments in the form in which it passes them on, all defaults
filled in. A record holds them as they were given: which by position, which by keyword, and no defaults. The call
instruction in the caller's code says how many there were of each.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msprobe.capture.call_sites import form_of_call
from msprobe.capture.stacks import program_frame

_LOOSE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_MISSING = object()


class Parameters(NamedTuple):
    """The parameters of a function: their names in order, and the defaults of those that have one."""

    names: tuple[str, ...]
    defaults: dict[str, Any]


@lru_cache(maxsize=4096)
def parameters_of(function: Any) -> Parameters | None:
    """The parameters of a function; None if it takes ``*args`` or ``**kwargs``, or cannot be asked."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(p.kind in loose for p in parameters.values()):
        return None
    defaults = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}
    return Parameters(tuple(parameters), defaults)


def as_given(
    function: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    frame: types.FrameType | None,
    is_method: bool,
) -> tuple[Sequence[Any], dict[str, Any] | None]:
    """``args`` and ``kwargs`` as the caller of ``function`` gave them; as they are where that is not known.

    ``frame``: the one in which ``function`` runs.
    """
    if frame is None:
        return args, kwargs
    parameters = parameters_of(function)
    if parameters is None:
        return _loose_arguments(frame) or (args, kwargs)
    caller = frame.f_back
    form = form_of_call(caller.f_code, caller.f_lasti) if caller is not None else None
    if form is None:
        # `f(*args)`: what has its default was hardly given.
        given = {k: v for k, v in (kwargs or {}).items() if v is not parameters.defaults.get(k, _MISSING)}
        return args, given
    names = parameters.names
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


def _loose_arguments(frame: types.FrameType) -> tuple[Sequence[Any], dict[str, Any]] | None:
    """The arguments of a running function ``f(*args, **kwargs)`` that hands them on untouched."""
    code = frame.f_code
    if code.co_flags & _LOOSE != _LOOSE or code.co_argcount or code.co_kwonlyargcount:
        return None
    values = frame.f_locals
    args, kwargs = (values.get(name) for name in code.co_varnames[:2])
    return (args, kwargs) if type(args) is tuple and type(kwargs) is dict else None


def running_frame(function: Any) -> types.FrameType | None:
    """The frame in which ``function`` runs, looked for outward from the program's innermost one."""
    code = getattr(function, "__code__", None)
    frame: types.FrameType | None = program_frame()
    for _ in range(6):
        if frame is None:
            return None
        if frame.f_code is code:
            return frame
        frame = frame.f_back
    return None


def chosen_by(dispatcher: Any, function: Any, caller: types.FrameType | None) -> bool:
    """True if ``caller`` is a run of ``dispatcher`` that has chosen ``function``."""
    return (
        caller is not None
        and caller.f_code is dispatcher.__code__
        and any(value is function for value in caller.f_locals.values())
    )

"""Running a Python function of torch so that the calls inside it are seen by the mode that has just seen the function.

Such a function begins by asking whether a mode wants it; run again with the mode in place it would end up in the mode
again, without end. From torch 2.13 the next such question can be skipped. Before, the function is run as a copy that
does not ask: the same code over a copy of its module's names in which the question is always answered by no.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from msprobe.capture.torch import private

Planned = tuple[Callable[..., Any], Sequence[Any], "dict[str, Any] | None"]

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no(*args: Any) -> bool:
    return False


@functools.lru_cache(maxsize=64)
def _names_without_questions(module: str) -> dict[str, Any]:
    import sys

    names = dict(vars(sys.modules[module]))
    names.update({question: _no for question in _QUESTIONS if question in names})
    return names


@functools.lru_cache(maxsize=4096)
def without_question(function: types.FunctionType) -> Callable[..., Any]:
    """A copy of ``function`` that does not ask for modes itself."""
    names = function.__globals__
    module = names.get("__name__", "")
    if not any(question in names for question in _QUESTIONS) or not module:
        return function
    copy = types.FunctionType(
        function.__code__,
        _names_without_questions(module),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def past_question(function: Any, kinds: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Planned:
    """What to call, and with what, so that ``function`` runs past its own question, the mode being in place."""
    if private.skip_one_hop is not None:
        return private.skip_one_hop, (function, kinds, args, kwargs or {}), None
    if isinstance(function, types.FunctionType):
        function = without_question(function)
    return function, args, kwargs

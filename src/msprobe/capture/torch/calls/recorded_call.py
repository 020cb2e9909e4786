"""One call of a function, recorded around it: for all that stands in a function's place, or around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msprobe.capture.relayed_units import arguments_of
from msprobe.capture.torch import private
from msprobe.guard import attempt

_without_functions = private.without_functions


def run_call(
    target: Any,
    key: str,
    run: Callable[[Sequence[Any], dict[str, Any]], Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *more: Any,
) -> Any:
    """``run(args, kwargs)``, recorded by ``target`` (:class:`msprobe.capture.targets.Calls`) as a call of ``key``.

    ``more``: what else ``target`` is given to begin the call.
    """
    call = attempt(_begin, target, key, args, kwargs, *more)
    if call is None:
        return run(args, kwargs)
    given, words = attempt(arguments_of, call, args, kwargs) or (args, kwargs)
    try:
        result = run(given, words)
    except BaseException as error:
        attempt(_fail, target, call, error)
        raise
    other = attempt(_end, target, call, result)
    return result if other is None else other[0]


def _begin(target: Any, key: str, args: Sequence[Any], kwargs: dict[str, Any], *more: Any) -> Any:
    with _without_functions():
        return target.begin_call(key, args, kwargs, *more)


def _fail(target: Any, call: Any, error: BaseException) -> None:
    with _without_functions():
        target.fail_call(call, error)


def _end(target: Any, call: Any, result: Any) -> Any:
    with _without_functions():
        return target.end_call(call, result)

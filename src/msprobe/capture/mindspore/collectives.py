"""Calls between ranks: waited for, so that what is recorded is final."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from msprobe.capture.units import UnitRecorder, run_recorded


class _Done:
    """In place of the handle of a collective that was waited for."""

    def wait(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to wait for."""

    def is_completed(self) -> bool:
        """It is."""
        return True


def recorded_collective(
    units: UnitRecorder, key: str, original: Callable[..., Any], read: Callable[[], None]
) -> Callable[..., Any]:
    """``original`` with its calls recorded when the values have arrived."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        def final(result: Any) -> tuple[Any, Any]:
            result = _waited(result)
            return result, _outputs(result, args, kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            # Many write into their arguments.
            read()
            return original(*args, **kwargs)

        return run_recorded(units, key, run, args, kwargs, final=final)

    return replacement


def _waited(result: Any) -> Any:
    """The same result; handles have been waited for, and what takes their place has no more to do."""
    if callable(getattr(result, "wait", None)):
        result.wait()
        return _Done()
    if isinstance(result, (list, tuple)) and any(callable(getattr(part, "wait", None)) for part in result):
        return type(result)(_waited(part) for part in result)
    return result


def _outputs(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What to record as results: of a call that writes to its arguments, these."""
    parts = result if type(result) is tuple else (result,)
    kept = tuple(part for part in parts if part is not None and not isinstance(part, _Done))
    if kept:
        return kept
    return (*args, *kwargs.values())

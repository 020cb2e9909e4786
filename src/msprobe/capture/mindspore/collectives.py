"""Calls between ranks: waited for, so that what is recorded is final."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from msprobe.capture.units import UnitRecorder


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
    session = units.session
    thread = session.thread

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if thread.muted or not session.recording:
            return original(*args, **kwargs)
        thread.muted += 1
        try:
            unit = units.begin_call(key, args, kwargs, 1)
            # Many write into their arguments.
            read()
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                if unit is not None:
                    units.fail_call(unit, error)
                raise
            if unit is None:
                return result
            result = _waited(result)
            units.end_call(unit, result, _outputs(result, args, kwargs))
            return result
        finally:
            thread.muted -= 1

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

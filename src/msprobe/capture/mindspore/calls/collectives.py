"""Calls between ranks: waited for, so that what is recorded and reported is final."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from msprobe.capture.session import Session
from msprobe.capture.targets import Targets


class _Done:
    """In place of the handle of a collective that was waited for."""

    def wait(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to wait for."""

    def is_completed(self) -> bool:
        """It is."""
        return True


def is_collective(key: str) -> bool:
    """True if the calls of this key are communication between ranks."""
    return key.partition(".")[0] in ("Distributed", "MintDistributed")


def recorded_collective(
    session: Session,
    targets: Targets,
    key: str,
    original: Callable[..., Any],
    read: Callable[[], None],
    wait: Callable[[], Callable[[], None] | None],
) -> Callable[..., Any]:
    """``original`` with its calls reported when the values have arrived. ``read`` reads what waits to be read, as many
    write into their arguments; ``wait()`` gives what waits until a call is done, where that is to be.
    """

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        thread = session.thread
        if thread.muted or not session.recording:
            return original(*args, **kwargs)
        thread.muted += 1
        target = targets.collectives
        try:
            # Without guard.
            begun = session.guard(target.begin_collective, key, args, kwargs)
            read()
            if begun is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
                done = wait()
                if done is not None:
                    done()
            except BaseException as error:
                session.guard(target.fail_collective, begun, error)
                raise
            result = _waited(result)
            session.guard(target.end_collective, begun, _outputs(result, args, kwargs), {}, result)
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

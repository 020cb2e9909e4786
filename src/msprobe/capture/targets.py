"""Targets: whoever is told of what happens by those who notice it.

A target is the dumper, where it is alone, or who hands on to it and to listeners (:mod:`msprobe.capture.heard`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Calls(Protocol):
    """Whoever is told of calls; the dumper is one."""

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any], skip: int) -> Any:
        """A call is about to be made, ``skip`` frames above. What to give to the other two, None for neither."""

    def end_call(self, call: Any, result: Any, outputs: Any = None) -> Any:
        """It has returned. ``(result,)`` for another one in its place, else None."""

    def fail_call(self, call: Any, error: BaseException) -> None:
        """It has raised."""


class Passes(Protocol):
    """Whoever is told of passes of modules; the dumper is one."""

    def enter(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The module is about to run. ``(args, kwargs)`` for other arguments, else None."""

    def leave(self, name: str, module: Any, result: Any) -> Any:
        """It has run, or raised. ``(result,)`` for another result, else None."""


class Targets:
    """Who is told in this step."""

    def __init__(self, calls: Calls, passes: Passes) -> None:
        self.calls = calls
        # Also of passes that no hook tells of, as those of compiled modules.
        self.passes = passes

"""When a pass of a whole model begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe.capture.events import Direction, EventKind
from msprobe.capture.listeners import Observer, Wants


class ModelPasses(Observer):
    """Calls ``begin`` when a pass of a whole model begins."""

    is_careful = True
    wants = Wants(
        kinds=frozenset[EventKind](("pass",)), modules=("root",), directions=frozenset[Direction](("forward",))
    )

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def before(self, event: Any) -> None:
        """It begins."""
        self._begin()

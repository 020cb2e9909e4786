"""What a monitor follows beside what it measures: that a step is over, and that a pass of the whole model begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msprobe.capture.events import Direction, EventKind
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.training import PartsOfStep
from msprobe.monitor.ends import is_skipped

_FORWARD: tuple[Direction, ...] = ("forward",)


class Ticking(Protocol):
    """The monitor, as far as it is known here."""

    @property
    def parts_of_step(self) -> int:
        """How many steps of optimizers make one of the training."""

    def is_step_of(self, optimizer: Any) -> bool:
        """True if a step of this optimizer is one of the training."""

    def afterwards(self, work: Callable[[], None], place: int) -> None:
        """Do ``work`` when the step of the optimizer is over."""

    def tick(self) -> None:
        """A step is over."""

    def tick_again(self) -> None:
        """A step was left out, and comes again."""

    def begin_pass(self) -> None:
        """A pass of a whole model begins."""


class Ticks(Observer):
    """Says when a step is over: has the configuration changed, and is the next step to be recorded?"""

    is_careful = True
    wants = Wants(kinds=frozenset[EventKind](("optimizer",)))

    def __init__(self, monitor: Ticking) -> None:
        self._monitor = monitor
        self._parts = PartsOfStep(monitor.parts_of_step)

    def failed(self, event: Any) -> None:
        """It has not."""
        self._parts.begin_again()
        if is_skipped(event) and self._monitor.is_step_of(event.event.optimizer):
            self._monitor.afterwards(self._monitor.tick_again, place=1)

    def after(self, event: Any, result: Any) -> None:
        """An optimizer has stepped."""
        if self._monitor.is_step_of(event.optimizer) and self._parts.is_last():
            self._monitor.afterwards(self._monitor.tick, place=1)


class Passes(Observer):
    """Says when a pass of a whole model begins."""

    is_careful = True
    wants = Wants(kinds=frozenset[EventKind](("pass",)), modules=("root",), directions=_FORWARD)

    def __init__(self, monitor: Ticking) -> None:
        self._monitor = monitor

    def before(self, event: Any) -> None:
        """It begins."""
        self._monitor.begin_pass()

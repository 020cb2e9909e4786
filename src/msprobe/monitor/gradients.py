"""Gradients of parameters before they are reduced over ranks."""

from __future__ import annotations

from typing import Any

from msprobe.capture.events import EventKind
from msprobe.capture.listeners import Observer, Wants
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.watched import WatchedParameter


class UnreducedGradients(Observer):
    """Measures what backward passes have added up, in the last micro step, or in each.

    ``kind``: of the events that bring it.
    """

    is_careful = True

    def __init__(self, state: ConfiguredState, kind: EventKind) -> None:
        self.state = state
        # All modules by name: without one, the model itself is left out, and with it the parameters that it owns.
        self.wants = Wants(kinds=(kind,), modules=("*",))
        # How many backward passes have brought one in this step.
        self._times: dict[WatchedParameter, int] = {}

    def step_begin(self, event: Any) -> None:
        """Nothing of the last step is left."""
        self._times.clear()

    def gradient(self, event: Any) -> None:
        """A backward pass has brought the gradient of a parameter."""
        watched = self.state.watched.by_place.get((event.key, event.parameter))
        if watched is not None:
            self.take(watched, self.gradient_of(event))

    def gradient_of(self, event: Any) -> Any:
        """The tensor that is measured."""
        return event.gradient

    def take(self, watched: WatchedParameter, gradient: Any) -> None:
        """The gradient of a parameter after one more backward pass."""
        state = self.state
        number = self._times.get(watched, 0)
        self._times[watched] = number + 1
        every = state.config.monitor_mbs_grad
        if not every and number < state.micro_steps - 1:
            return
        cells = state.meter.measure(gradient)
        if number < state.micro_steps:
            state.gathering.add("grad_unreduced", watched.stage, watched.name, cells, number if every else None)
        else:
            # More backward passes than the user has said there are: the last one has what the optimizer gets.
            last = state.micro_steps - 1 if every else None
            state.gathering.put("grad_unreduced", watched.stage, watched.name, cells, last)

    def end(self) -> None:
        """The gradients of this step are complete."""

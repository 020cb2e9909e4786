"""Gradients of parameters before they are reduced over ranks."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.capture.events import AccumulatedGradient, Kind
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.torch import private
from msprobe.monitor.torch.flat_parameters import FlatParameters
from msprobe.monitor.torch.state import State
from msprobe.monitor.torch.watched import WatchedParameter


class UnreducedGradients(Observer):
    """Measures what backward passes have added up, in the last micro step, or in each.

    ``sharded``: parameters that a wrapper keeps in shards, as FSDP does: what gathers is out of sight there, so what
    each backward pass brings is measured; as with ``micro_delta``.
    """

    is_careful = True

    def __init__(self, state: State, sharded: bool, flat: FlatParameters) -> None:
        self.state = state
        kind: Kind = "parameter_gradient" if sharded or state.config.micro_delta else "accumulated_gradient"
        self.wants = Wants(kinds=(kind,))
        self._has_main = any(hasattr(weight, "main_grad") for _, weight in state.watched.alive())
        self._flat = flat
        # How many backward passes have brought one in this step.
        self._times: dict[WatchedParameter, int] = {}

    def step_begin(self, event: Any) -> None:
        """Nothing of the last step is left."""
        self._times.clear()
        self._flat.attach(self._show)

    def gradient(self, event: Any) -> None:
        """A backward pass has brought the gradient of a parameter."""
        watched = self.state.watched.by_place.get((event.key, event.parameter))
        if watched is None:
            return
        gradient = event.gradient
        if self._has_main and isinstance(event, AccumulatedGradient):
            # Where the wrapper lets gradients gather elsewhere, as Megatron does.
            main = getattr(event.weight, "main_grad", None)
            gradient = gradient if main is None else main
        self._take(watched, gradient)

    def _show(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """The same, of a parameter that is a piece of a flat one."""
        watched = self.state.watched.parameter(parameter)
        if watched is not None:
            with private.without_functions():
                self._take(watched, gradient)

    def _take(self, watched: WatchedParameter, gradient: torch.Tensor) -> None:
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
        self._flat.detach()

"""Gradients of MindSpore's parameters before they are reduced over ranks."""

from __future__ import annotations

from typing import Any

from msprobe import log
from msprobe.capture.mindspore.tensors import sum_of
from msprobe.messages import said
from msprobe.monitor import gradients
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.watched import WatchedParameter


class UnreducedGradients(gradients.UnreducedGradients):
    """A backward pass of MindSpore adds to nothing: what several micro steps bring is added up
    here, as the program does it elsewhere; a copy of each gradient is kept for it.
    """

    def __init__(self, state: ConfiguredState) -> None:
        super().__init__(state, "parameter_gradient")
        self._adds = state.micro_steps > 1 and not state.config.micro_delta
        self._sums: dict[WatchedParameter, Any] = {}

    def step_begin(self, event: Any) -> None:
        super().step_begin(event)
        self._sums.clear()

    def take(self, watched: WatchedParameter, gradient: Any) -> None:
        if self._adds:
            known = self._sums.get(watched)
            gradient = self._sums[watched] = gradient if known is None else sum_of(known, gradient)
        super().take(watched, gradient)

    def end(self) -> None:
        self._sums.clear()
        if self.state.watched.parameters and not self._times:
            log.once(("monitor", "unreduced"), "warning", said("no-unreduced-gradients-in-mindspore"))

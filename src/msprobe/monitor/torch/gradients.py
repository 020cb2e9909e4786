"""Gradients of PyTorch's parameters before they are reduced over ranks."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.capture.events import AccumulatedGradient
from msprobe.capture.torch import private
from msprobe.monitor import gradients
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.torch.flat_parameters import FlatParameters


class UnreducedGradients(gradients.UnreducedGradients):
    """See the base class.

    ``sharded``: parameters that a wrapper keeps in shards, as FSDP does: what gathers is out of sight there, so what
    each backward pass brings is measured; as with ``micro_delta``.
    """

    def __init__(self, state: ConfiguredState, sharded: bool, flat: FlatParameters) -> None:
        super().__init__(state, "parameter_gradient" if sharded or state.config.micro_delta else "accumulated_gradient")
        self._has_main = any(hasattr(weight, "main_grad") for _, weight in state.watched.alive())
        self._flat = flat

    def step_begin(self, event: Any) -> None:
        super().step_begin(event)
        self._flat.attach(self._show)

    def gradient_of(self, event: Any) -> Any:
        if self._has_main and isinstance(event, AccumulatedGradient):
            # Where the wrapper lets gradients gather elsewhere, as Megatron does.
            main = getattr(event.weight, "main_grad", None)
            return event.gradient if main is None else main
        return event.gradient

    def _show(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """The same, of a parameter that is a piece of a flat one."""
        watched = self.state.watched.parameter(parameter)
        if watched is not None:
            with private.without_functions():
                self.take(watched, gradient)

    def end(self) -> None:
        self._flat.detach()

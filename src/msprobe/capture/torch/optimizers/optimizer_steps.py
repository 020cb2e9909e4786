"""Steps of PyTorch's optimizers: what :mod:`msprobe.capture.optimizer_steps` asks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch

from msprobe.capture.events import OptimizedParameter
from msprobe.capture.optimizer_steps import Describe, NoticedStep
from msprobe.capture.torch.optimizers.parameter_names import ParameterNames


class Scaling:
    """A ``GradScaler.step`` that is running in this thread."""

    def __init__(self, scaler: Any, optimizer: Any) -> None:
        self.scaler = scaler
        self.optimizer = optimizer
        self.stepped = False

    def described(self, describe: Describe, forget: Callable[[Any], None]) -> dict[str, Any]:
        """The scale, and whether the gradients have infinities."""
        scaling: dict[str, Any] = {}
        scale = getattr(self.scaler, "_scale", None)
        if scale is not None:
            forget(scale)
            scaling["scale"] = describe(scale)
        states = getattr(self.scaler, "_per_optimizer_states", {})
        infinities = states.get(id(self.optimizer), {}).get("found_inf_per_device", {})
        for device, value in infinities.items():
            forget(value)
            scaling.setdefault("found_inf", {})[str(device)] = describe(value)
        return scaling


class TorchStep(NoticedStep):
    """A step that is running in this thread. ``forget``: what is known of a tensor is not true any more."""

    def __init__(
        self, optimizer: Any, names: ParameterNames, region_before: str | None, forget: Callable[[Any], None]
    ) -> None:
        super().__init__(optimizer)
        self._names = names
        self._forget = forget
        self.region_before = region_before
        self.scaling: Scaling | None = None
        # What the target made of it; and that it is over.
        self.target_step: Any = None
        self.done = False

    @cached_property
    def named(self) -> list[tuple[str, torch.Tensor]]:
        """Name and parameter, in the optimizer's order."""
        return list(self._names.of(self.optimizer))

    def parameters(self) -> Mapping[str, OptimizedParameter]:
        return {
            name: OptimizedParameter(parameter, parameter.grad, _state_of(self.optimizer, parameter))
            for name, parameter in self.named
        }

    def groups(self) -> list[dict[str, Any]]:
        names = iter(self.named)
        described = []
        for group in self.optimizer.param_groups:
            settings = {str(word): value for word, value in group.items() if word not in ("params", "param_names")}
            described.append({"params": [next(names)[0] for _ in group["params"]], **settings})
        return described

    def facts_after(self, describe: Describe) -> dict[str, Any]:
        return {} if self.scaling is None else {"grad_scaler": self.scaling.described(describe, self._forget)}


def _state_of(optimizer: Any, parameter: torch.Tensor) -> dict[Any, Any]:
    """What the optimizer keeps of a parameter."""
    # Not by index: looking up what is not there would make it.
    state = optimizer.state.get(parameter)
    return state if isinstance(state, dict) else {}

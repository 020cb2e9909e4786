"""What one configuration attaches to a training of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.listeners import Observer
from msprobe.capture.torch.modules.user_modules import modules, parameters
from msprobe.monitor import measuring
from msprobe.monitor.gradients import UnreducedGradients
from msprobe.monitor.torch import gradients
from msprobe.monitor.torch.flat_parameters import FlatParameters
from msprobe.monitor.torch.l2 import LayerFeatures
from msprobe.monitor.torch.optimizers import Optimizers
from msprobe.monitor.torch.steps import OptimizerSteps


class Watch(measuring.Watch):
    """See the base class."""

    optimizers: Optimizers

    def end(self) -> None:
        self._flat.detach()
        self.optimizers.leave_outer_step()

    def _new_listeners(self) -> list[Observer]:
        self._flat = FlatParameters(self.models)
        self._features: LayerFeatures | None = None
        return super()._new_listeners()

    def _new_unreduced(self) -> UnreducedGradients:
        return gradients.UnreducedGradients(self.state, _is_sharded(self.models), self._flat)

    def _new_steps(self, unreduced: Any) -> OptimizerSteps:
        return OptimizerSteps(
            self.state,
            self.optimizers,
            self.groups,
            unreduced,
            self.is_of_training,
            self._flat.pieces,
            self.left_out,
        )

    def _new_features(self) -> list[Observer]:
        self._features = LayerFeatures(self.state, self.is_of_training)
        return [self._features]

    def _collect(self) -> Callable[[], None]:
        measured = super()._collect()
        if self._features is None:
            return measured
        features = self._features.collect()

        def finish() -> None:
            measured()
            features()

        return finish

    def _finish_all_ranks(self, finish: Callable[[], None]) -> Callable[[], None]:
        shards = self._steps.shards if isinstance(self._steps, OptimizerSteps) else None
        if shards is None or shards.is_empty:
            return finish
        finish()
        shards.reduce(self.state.gathering.ops, _device_of(self.models))
        return _nothing


def _nothing() -> None:
    return


def _is_sharded(models: Sequence[nn.Module]) -> bool:
    """True if a wrapper shards parameters, so that gradients gather out of sight."""
    names = ("FullyShardedDataParallel", "FSDPModule")
    return any(base.__name__ in names for model in models for module in modules(model) for base in type(module).__mro__)


def _device_of(models: Sequence[nn.Module]) -> torch.device:
    for model in models:
        for parameter in parameters(model):
            return parameter.device
    return torch.device("cpu")

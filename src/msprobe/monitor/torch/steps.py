"""What an optimizer step of PyTorch finds and leaves, also where ranks have parts of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import unwrap
from msprobe.monitor import steps
from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.steps import MOMENTS, Groups, KeptParameter
from msprobe.monitor.torch.flat_parameters import WholeParameter
from msprobe.monitor.torch.global_scope import Shards
from msprobe.monitor.torch.gradients import UnreducedGradients
from msprobe.monitor.torch.optimizers import Optimizers
from msprobe.monitor.watched import WatchedParameter


class OptimizerSteps(steps.OptimizerSteps):
    """``pieces``: parameters of which ranks have pieces; ``left_out`` is called when a wrapper of
    the optimizer has returned without a step.
    """

    optimizers: Optimizers

    def __init__(
        self,
        state: ConfiguredState,
        optimizers: Optimizers,
        groups: Groups,
        unreduced: UnreducedGradients | None,
        is_of_training: Callable[[Any], bool],
        pieces: Mapping[int, WholeParameter],
        left_out: Callable[[bool], None],
    ) -> None:
        super().__init__(state, optimizers, groups, unreduced, is_of_training)
        self._left_out = left_out
        self.shards = Shards(pieces) if state.config.scope == "global" else None
        # The step that runs is measured.
        self._is_on = False
        self._has_gradients = False

    def step_begin(self, event: Any) -> None:
        """A step begins that is measured."""
        self._is_on = True
        self._has_gradients = False
        self.optimizers.watch_outer_step(self._ready, self._no_step)

    def step_end(self, event: Any) -> None:
        """It is over, and the next one may not be measured."""
        self._is_on = False

    def before(self, event: Any) -> None:
        if self.is_of_training(event.optimizer):
            self.optimizers.note_step()
        super().before(event)

    def _ready(self) -> None:
        """The gradients that the optimizer is about to clip are reduced and unscaled."""
        if not self._is_on or not (self.state.config.wg_distribution and self.groups.writes_reduced()):
            return
        with self.state.framework.unwatched():
            alive = {id(weight): (parameter, weight) for parameter, weight in self.state.watched.alive()}
            weights = {key: weight for key, (_, weight) in alive.items() if self.groups.writes(weight)}
            kept = self.optimizers.kept(None, weights, moments=False)
            super()._measure_gradients([(alive[key][0], kept[key]) for key in weights if key in kept])
        self._has_gradients = True

    def _no_step(self) -> None:
        if self._is_on:
            self._left_out(False)

    def _measure_gradients(self, owned: list[tuple[WatchedParameter, KeptParameter]]) -> None:
        if not self._has_gradients:
            super()._measure_gradients(owned)

    def _whole(self, parameter: WatchedParameter, tensor: Any, cells: TensorCells | None) -> TensorCells | None:
        # Other ranks may have of it what this one has not.
        return cells if self.shards is None else self.shards.note(parameter.reference(), tensor, cells)

    def _measure_updates(self) -> None:
        """What Adam has just changed each weight by, from its moments: lr * m / (sqrt(v) + eps), both moments corrected
        for their start (Kingma and Ba, Adam, ICLR 2015, algorithm 1), and that change against the weight.
        """
        state, rates = self.state, self.optimizers.rates()
        alive = {id(weight): parameter for parameter, weight in state.watched.alive() if self.groups.writes(weight)}
        weights = {id(weight): weight for _, weight in state.watched.alive()}
        state.gathering.columns["update"] = ("norm", "ratio")
        for key, kept in self.optimizers.kept(None, weights).items():
            parameter, rate = alive.get(key), rates.get(id(kept.weight))
            if parameter is None or rate is None or len(kept.moments) < 2 or not kept.step:
                continue
            lr, (beta1, beta2), eps = rate
            with OwnWork():
                first, second, weight = (
                    unwrap(value).values for value in (*(kept.moments[name] for name in MOMENTS), kept.weight)
                )
                if first is None or second is None or weight is None:
                    continue
                change = first.double() / (1 - beta1**kept.step)
                change /= (second.double() / (1 - beta2**kept.step)).sqrt_().add_(eps)
                changed, norm = float(change.norm()) * lr, float(weight.double().norm())
            cells = TensorCells(
                (changed, changed / norm if norm else math.nan), tuple(weight.shape), str(kept.weight.dtype)
            )
            state.gathering.add("update", parameter.stage, parameter.name, cells)

"""What an optimizer step of PyTorch finds and leaves, also where ranks have parts of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msprobe.capture.torch.statistics_framework import OwnWork
from msprobe.capture.torch.statistics_unusual import unwrap
from msprobe.monitor import steps
from msprobe.monitor.gathering import Cells
from msprobe.monitor.state import State
from msprobe.monitor.steps import MOMENTS, Groups
from msprobe.monitor.torch.flat_parameters import Piece
from msprobe.monitor.torch.global_scope import Shards
from msprobe.monitor.torch.gradients import UnreducedGradients
from msprobe.monitor.torch.optimizers import Optimizers
from msprobe.monitor.watched import WatchedParameter


class OptimizerSteps(steps.OptimizerSteps):
    """See the base class. ``pieces``: parameters of which ranks have pieces."""

    optimizers: Optimizers

    def __init__(
        self,
        state: State,
        optimizers: Optimizers,
        groups: Groups,
        unreduced: UnreducedGradients | None,
        pieces: Mapping[int, Piece],
        over: Callable[[Any], None],
        skipped: Callable[[Any], None],
    ) -> None:
        super().__init__(state, optimizers, groups, unreduced, over, skipped)
        self.shards = Shards(pieces) if state.config.scope == "global" else None

    def _whole(self, one: WatchedParameter, tensor: Any, cells: Cells | None) -> Cells | None:
        # Other ranks may have of it what this one has not.
        return cells if self.shards is None else self.shards.note(one.reference(), tensor, cells)

    def _measure_updates(self) -> None:
        """What Adam has just changed each weight by, from its moments: lr * m / (sqrt(v) + eps), both moments corrected
        for their start (Kingma and Ba, Adam, ICLR 2015, algorithm 1), and that change against the weight.
        """
        state, rates = self.state, self.optimizers.rates()
        alive = {id(weight): one for one, weight in state.watched.alive() if self.groups.writes(weight)}
        weights = {id(weight): weight for _, weight in state.watched.alive()}
        state.gathering.columns["update"] = ("norm", "ratio")
        for key, kept in self.optimizers.kept(None, weights).items():
            one, rate = alive.get(key), rates.get(id(kept.weight))
            if one is None or rate is None or len(kept.moments) < 2 or not kept.step:
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
            cells = Cells((changed, changed / norm if norm else math.nan), tuple(weight.shape), str(kept.weight.dtype))
            state.gathering.add("update", one.stage, one.name, cells)

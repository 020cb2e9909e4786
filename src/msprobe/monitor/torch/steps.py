"""What an optimizer step finds and leaves: reduced gradients, moments, weights before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from msprobe import log
from msprobe.capture.events import Kind
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.torch import private
from msprobe.capture.torch.statistics_framework import OwnWork
from msprobe.capture.torch.statistics_unusual import unwrap
from msprobe.monitor.gathering import Cells
from msprobe.monitor.measurements import Quantity
from msprobe.monitor.torch.flat_parameters import Piece
from msprobe.monitor.torch.global_scope import Shards
from msprobe.monitor.torch.gradients import UnreducedGradients
from msprobe.monitor.torch.optimizers import Kept, Optimizers
from msprobe.monitor.torch.state import State
from msprobe.monitor.torch.watched import WatchedParameter

_KINDS: frozenset[Kind] = frozenset(("optimizer",))
_MOMENTS: tuple[Quantity, ...] = ("exp_avg", "exp_avg_sq")


class OptimizerSteps(Observer):
    """Measures around the steps of the optimizer, and says when one is over.

    ``unreduced`` is told that gradients are complete; ``groups`` says whether this rank writes what all ranks of a
    group have alike.
    """

    is_careful = True
    wants = Wants(kinds=_KINDS)

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
        self.state = state
        self.optimizers = optimizers
        self.groups = groups
        self.unreduced = unreduced
        self.shards = Shards(pieces) if state.config.scope == "global" else None
        self._over = over
        self._skipped = skipped
        self._first: int | None = None

    def before(self, event: Any) -> None:
        """An optimizer is about to step."""
        if not self.optimizers.is_meant(event.optimizer):
            return
        if self._first is None:
            self._first = event.step
        config = self.state.config
        if config.wg_distribution or config.mv_distribution or config.param_distribution or config.mg_direction:
            with private.without_functions():
                self._measure(event.step)
        if self.unreduced is not None:
            self.unreduced.end()

    def _measure(self, step: int) -> None:
        config = self.state.config
        alive = [(one, weight) for one, weight in self.state.watched.alive() if self.groups.writes(weight)]
        moments = config.mv_distribution or config.mg_direction
        kept = self.optimizers.kept({id(weight): weight for _, weight in alive}, moments)
        owned = [(one, kept[id(weight)]) for one, weight in alive if id(weight) in kept]
        if config.wg_distribution and self.groups.writes_reduced():
            for one, found in owned:
                self._add("grad_reduced", one, found.gradient)
        if config.mv_distribution:
            self._measure_moments(step, owned)
        if config.mg_direction:
            for one, found in owned:
                self._add_direction(one, found, step)
        if config.param_distribution:
            for one, found in owned:
                self._add("param_origin", one, found.weight)

    def _measure_moments(self, step: int, owned: list[tuple[WatchedParameter, Kept]]) -> None:
        for quantity in _MOMENTS:
            for one, found in owned:
                self._add(quantity, one, found.moments.get(quantity))
        if not any(found.moments for _, found in owned) and step != self._first:
            name = type(self.optimizers.given).__name__
            log.once(
                ("moments", name), "warning", f"Monitor: {name} keeps no moments exp_avg and exp_avg_sq to be measured."
            )

    def after(self, event: Any, result: Any) -> None:
        """It has stepped."""
        if not self.optimizers.is_meant(event.optimizer):
            return
        if self.state.config.param_distribution:
            with private.without_functions():
                alive = [(one, weight) for one, weight in self.state.watched.alive() if self.groups.writes(weight)]
                kept = self.optimizers.kept({id(weight): weight for _, weight in alive}, moments=False)
                for one, weight in alive:
                    if id(weight) in kept:
                        self._add("param_updated", one, kept[id(weight)].weight)
        if self.state.config.ur_distribution:
            with private.without_functions():
                self._measure_updates()
        self._over(event)

    def failed(self, event: Any) -> None:
        """It has raised, or a scaler has left it out: what was measured is of no step."""
        if self.optimizers.is_meant(event.event.optimizer):
            if self._first == event.step:
                self._first = None
            self._skipped(event)

    def _measure_updates(self) -> None:
        """What Adam has just changed each weight by, from its moments: lr * m / (sqrt(v) + eps), both moments corrected
        for their start (Kingma and Ba, Adam, ICLR 2015, algorithm 1), and that change against the weight.
        """
        state, rates = self.state, self.optimizers.rates()
        alive = {id(weight): one for one, weight in state.watched.alive() if self.groups.writes(weight)}
        weights = {id(weight): weight for _, weight in state.watched.alive()}
        state.gathering.columns["update"] = ("norm", "ratio")
        for key, kept in self.optimizers.kept(weights).items():
            one, rate = alive.get(key), rates.get(id(kept.weight))
            if one is None or rate is None or len(kept.moments) < 2 or not kept.step:
                continue
            lr, (beta1, beta2), eps = rate
            with OwnWork():
                first, second, weight = (
                    unwrap(value).values for value in (*(kept.moments[name] for name in _MOMENTS), kept.weight)
                )
                if first is None or second is None or weight is None:
                    continue
                change = first.double() / (1 - beta1**kept.step)
                change /= (second.double() / (1 - beta2**kept.step)).sqrt_().add_(eps)
                changed, norm = float(change.norm()) * lr, float(weight.double().norm())
            cells = Cells((changed, changed / norm if norm else math.nan), tuple(weight.shape), str(kept.weight.dtype))
            state.gathering.add("update", one.stage, one.name, cells)

    # ---------------------------------------------------------------- one tensor

    def _add(self, quantity: Quantity, one: WatchedParameter, tensor: torch.Tensor | None) -> None:
        state, shards = self.state, self.shards
        cells: Cells | None = None
        if tensor is not None and tensor.numel():
            cells = state.meter.measure(tensor)
        if shards is not None:
            # Other ranks may have of it what this one has not.
            cells = shards.note(one.reference(), tensor, cells)
        if cells is not None:
            state.gathering.add(quantity, one.stage, one.name, cells)

    def _add_direction(self, one: WatchedParameter, found: Kept, step: int) -> None:
        """The share of elements in which gradient and first moment have one sign; one that is zero counts half."""
        moment = found.moments.get("exp_avg")
        gradient = found.gradient
        if gradient is None:
            return
        if moment is None:
            if step != self._first:
                return
            share = 1.0
        else:
            with OwnWork():
                signs = [unwrap(value).values for value in (gradient, moment)]
                if signs[0] is None or signs[1] is None or signs[0].shape != signs[1].shape or not signs[0].numel():
                    return
                agreement = (signs[0].sign() * signs[1].sign()).to(torch.float32).mean()
                share = (float(agreement) + 1) / 2
        cells = Cells((share,) * len(self.state.operators.names), tuple(gradient.shape), str(gradient.dtype))
        self.state.gathering.add("other", one.stage, one.name, cells)


class Groups:
    """Which rank writes what several have alike. ``data``: ranks with the same weights, of which the first writes
    reduced gradients; ``tensor``: ranks with parts of the model, of which the first writes what is not in parts.
    """

    def __init__(self, data: Any = None, tensor: Any = None) -> None:
        self._data = _place_in(data)
        self._tensor = _place_in(tensor)

    def writes_reduced(self) -> bool:
        """True if reduced gradients are this rank's to write."""
        return self._data in (None, 0)

    def writes(self, parameter: torch.Tensor) -> bool:
        """True if this parameter is this rank's to write."""
        return self._tensor in (None, 0) or bool(getattr(parameter, "tensor_model_parallel", False))


def _place_in(group: Any) -> int | None:
    if group is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return int(torch.distributed.get_rank(group))

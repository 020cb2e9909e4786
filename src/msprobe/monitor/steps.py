"""What an optimizer step finds and leaves: reduced gradients, moments, weights before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from msprobe import log
from msprobe.capture.events import EventKind
from msprobe.capture.listeners import Observer, Wants
from msprobe.messages import said
from msprobe.monitor.framework import MonitorFramework
from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.gradients import UnreducedGradients
from msprobe.monitor.measurements import Quantity
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.watched import WatchedParameter

_KINDS: frozenset[EventKind] = frozenset(("optimizer",))
#: The moments that are measured.
MOMENTS: tuple[Literal["exp_avg", "exp_avg_sq"], ...] = ("exp_avg", "exp_avg_sq")


class KeptParameter(NamedTuple):
    """What an optimizer keeps of one parameter. ``weight``: what it updates; ``moments``: exp_avg and exp_avg_sq, as
    far as there are any.
    """

    weight: Any
    gradient: Any
    moments: Mapping[str, Any]
    step: float
    #: The identity of what the optimizer has for it, where that is not ``weight`` itself.
    owner: int = 0


class Optimizers(Protocol):
    """The optimizer that the user has given, and what it is made of."""

    given: Any

    def steps_taken(self) -> int:
        """How many steps the optimizer says that it has taken; 0 where it does not say."""

    def followed(self) -> list[Any]:
        """The optimizers whose steps are those of the given one, each as often as it steps in one of them."""

    def kept(self, event: Any, parameters: Mapping[int, Any], moments: bool = True) -> Mapping[int, KeptParameter]:
        """What is kept of each of these parameters, as far as this step changes them, by their identities; ``moments``
        False: without them. ``event``: the step that is taken.
        """


class OptimizerSteps(Observer):
    """Measures around the steps of the optimizer.

    ``is_of_training`` says whether the steps of an optimizer are those of the training; ``unreduced`` is informed that
    gradients are complete; ``groups`` says whether this rank writes what all ranks of a group have alike.
    """

    is_careful = True
    wants = Wants(kinds=_KINDS)

    def __init__(
        self,
        state: ConfiguredState,
        optimizers: Optimizers,
        groups: Groups,
        unreduced: UnreducedGradients | None,
        is_of_training: Callable[[Any], bool],
    ) -> None:
        self.state = state
        self.optimizers = optimizers
        self.groups = groups
        self.unreduced = unreduced
        self.is_of_training = is_of_training
        self._first: int | None = None

    def before(self, event: Any) -> None:
        """An optimizer is about to step."""
        if not self.is_of_training(event.optimizer):
            return
        if self._first is None:
            self._first = event.step
        config = self.state.config
        if config.wg_distribution or config.mv_distribution or config.param_distribution or config.mg_direction:
            with self.state.framework.unwatched():
                self._measure(event)
        if not event.has_closure:
            self._end_gradients()

    def _measure(self, event: Any) -> None:
        config = self.state.config
        moments = config.mv_distribution or config.mg_direction
        owned = self._owned(event, moments)
        # A closure computes the gradients inside of the step: there are none yet, or those of the step before.
        if config.wg_distribution and self.groups.writes_reduced() and not event.has_closure:
            self._measure_gradients(owned)
        if config.mv_distribution:
            self._measure_moments(event.step, owned)
        if config.mg_direction and not event.has_closure:
            for parameter, kept in owned:
                self._add_direction(parameter, kept, event.step)
        if config.param_distribution:
            for parameter, kept in owned:
                self._add("param_origin", parameter, kept.weight)

    def _owned(self, event: Any, moments: bool) -> list[tuple[WatchedParameter, KeptParameter]]:
        alive = [(parameter, weight) for parameter, weight in self.state.watched.alive() if self.groups.writes(weight)]
        kept = self.optimizers.kept(event, {id(weight): weight for _, weight in alive}, moments)
        return [(parameter, kept[id(weight)]) for parameter, weight in alive if id(weight) in kept]

    def _end_gradients(self) -> None:
        if self.unreduced is not None:
            self.unreduced.end()

    def _measure_gradients(self, owned: list[tuple[WatchedParameter, KeptParameter]]) -> None:
        for parameter, kept in owned:
            self._add("grad_reduced", parameter, kept.gradient)

    def _measure_moments(self, step: int, owned: list[tuple[WatchedParameter, KeptParameter]]) -> None:
        for quantity in MOMENTS:
            for parameter, kept in owned:
                self._add(quantity, parameter, kept.moments.get(quantity))
        if not any(kept.moments for _, kept in owned) and step != self._first:
            name = type(self.optimizers.given).__name__
            log.once(("moments", name), "warning", said("optimizer-without-moments", name))

    def after(self, event: Any, result: Any) -> None:
        """It has stepped."""
        if not self.is_of_training(event.optimizer):
            return
        config = self.state.config
        if config.wg_distribution and self.groups.writes_reduced() and event.has_closure:
            with self.state.framework.unwatched():
                self._measure_gradients(self._owned(event, False))
        if event.has_closure:
            self._end_gradients()
        if config.param_distribution:
            with self.state.framework.unwatched():
                for parameter, kept in self._owned(event, False):
                    self._add("param_updated", parameter, kept.weight)

    def finish(self) -> None:
        """The step of the training is over."""
        config = self.state.config
        if config.state_distribution or config.ur_distribution:
            with self.state.framework.unwatched():
                if config.state_distribution:
                    self._measure_states()
                if config.ur_distribution:
                    self._measure_updates()

    def _measure_states(self) -> None:
        """What no optimizer owns, by its name in the model. It may be made anew at any time, so it is looked up."""
        state = self.state
        for stage, model in enumerate(state.models):
            for name, tensor in state.framework.states_of(model):
                if state.watched.targets.has_parameter(stage, name, name) and 0 not in tensor.shape:
                    state.gathering.add("state", stage, name, state.meter.measure(tensor))

    def _measure_updates(self) -> None:
        """What the step has changed each weight by, where the optimizer says how it steps."""

    # ---------------------------------------------------------------- one tensor

    def _add(self, quantity: Quantity, parameter: WatchedParameter, tensor: Any) -> None:
        state = self.state
        cells: TensorCells | None = None
        if tensor is not None and 0 not in tensor.shape:
            cells = state.meter.measure(tensor)
        cells = self._whole(parameter, tensor, cells)
        if cells is not None:
            state.gathering.add(quantity, parameter.stage, parameter.name, cells)

    def _whole(self, parameter: WatchedParameter, tensor: Any, cells: TensorCells | None) -> TensorCells | None:
        """The cells of the whole tensor, where this rank has measured a part of it."""
        return cells

    def _add_direction(self, parameter: WatchedParameter, kept: KeptParameter, step: int) -> None:
        """The share of elements in which gradient and first moment have one sign; one that is zero counts half."""
        moment = kept.moments.get("exp_avg")
        gradient = kept.gradient
        if gradient is None:
            return
        if moment is None:
            if step != self._first:
                return
            share = 1.0
        else:
            agreement = self.state.framework.agreement(gradient, moment)
            if agreement is None:
                return
            share = (agreement + 1) / 2
        cells = TensorCells((share,) * len(self.state.operators.names), tuple(gradient.shape), str(gradient.dtype))
        self.state.gathering.add("other", parameter.stage, parameter.name, cells)


class Groups:
    """Which rank writes what several have alike. ``data``: ranks with the same weights, of which the first writes
    reduced gradients; ``tensor``: ranks with parts of the model, of which the first writes what is not in parts.
    """

    def __init__(self, framework: MonitorFramework | None = None, data: Any = None, tensor: Any = None) -> None:
        self._data = _place_in(framework, data)
        self._tensor = _place_in(framework, tensor)

    def writes_reduced(self) -> bool:
        """True if reduced gradients are this rank's to write."""
        return self._data in (None, 0)

    def writes(self, parameter: Any) -> bool:
        """True if this parameter is this rank's to write."""
        return self._tensor in (None, 0) or bool(getattr(parameter, "tensor_model_parallel", False))


def _place_in(framework: MonitorFramework | None, group: Any) -> int | None:
    if group is None or framework is None or not framework.is_distributed():
        return None
    return framework.place_in(group)

"""What one configuration attaches to a training; a changed configuration gets a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msprobe import log
from msprobe.capture.events import EventKind, Step
from msprobe.capture.listeners import Cadence, Observer, Wants
from msprobe.foreign.nearest import near_words
from msprobe.messages import Wording, joined, said
from msprobe.monitor.activations import Activations
from msprobe.monitor.alerts.needs import unmeasured
from msprobe.monitor.communication import MeasuredCollectives
from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.framework import MonitorFramework
from msprobe.monitor.gathering import Gathering
from msprobe.monitor.gradients import UnreducedGradients
from msprobe.monitor.measurements import Quantity, Row, StepMetrics
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.steps import Groups, Optimizers, OptimizerSteps
from msprobe.monitor.structure import Stacks, Structure
from msprobe.monitor.tags import tag_of

_KINDS: frozenset[EventKind] = frozenset(("optimizer",))
_MOST_SHOWN = 5


class Watch:
    """The listeners of one configuration, and what they gather; frameworks derive from it.

    ``is_of_training`` says whether the steps of an optimizer are those of the training. ``left_out`` is called when
    there was no step where the training itself does not see it; its argument is True if something has raised.
    """

    def __init__(
        self,
        framework: MonitorFramework,
        config: MonitorConfig,
        models: Sequence[Any],
        micro_steps: int,
        optimizers: Optimizers,
        groups: Groups,
        is_of_training: Callable[[Any], bool],
        left_out: Callable[[bool], None],
    ) -> None:
        self.config = config
        self.models = models
        self.state = ConfiguredState(framework, config, models, micro_steps)
        self.structure: Structure | None = None
        self.collectives: MeasuredCollectives | None = None
        self.stacks: Stacks | None = None
        self._activations: Activations | None = None
        self._warn_of_unmatched()
        self._warn_of_unmeasured()
        self.optimizers = optimizers
        self.groups = groups
        self.is_of_training = is_of_training
        self.left_out = left_out
        self._steps: OptimizerSteps | None = None
        self.listeners = self._new_listeners()

    def begin_from(self, first: int) -> None:
        """Listen from this step on, in the interval of the configuration."""
        cadence = Cadence(every=self.config.step_interval, first=first)
        for listener in self.listeners:
            listener.cadence = cadence

    def has(self, step: int) -> bool:
        """True if this step is measured."""
        return self.listeners[0].cadence.has(step, None)

    @property
    def is_a_look(self) -> bool:
        """True if the training is to be stopped when it has been looked at once."""
        prints_stacks = self.collectives is not None and self.config.cc_distribution.log_only
        return self.config.print_struct is True or prints_stacks

    def start_again(self, step: Step) -> None:
        """What was measured so far in this step is of no step: the next batch begins it anew."""
        for listener in self.listeners:
            listener.step_begin(step)

    def finish(self) -> Callable[[], StepMetrics | None] | None:
        """The step is over; what makes its metrics, once the numbers are there. None: nothing was measured."""
        gathering = self.state.gathering
        if self._steps is not None:
            self._steps.finish()
        if self._activations is not None:
            self._activations.flush()
        finish = self._finish_all_ranks(self._collect())
        return None if gathering.is_empty else _Later(finish, gathering)

    def so_far(self) -> StepMetrics | None:
        """What the step that runs has measured; None where it has measured nothing."""
        state = self.state
        if state.gathering.is_empty:
            return None
        if self._activations is not None:
            self._activations.flush()
        self._collect()()
        return state.gathering.metrics()

    def attempt(self) -> Callable[[], StepMetrics | None]:
        """What makes the numbers of a step that is not finished, of this rank alone; what is measured goes on."""
        gathering = self.state.gathering
        if self._activations is not None:
            self._activations.flush()
        finish = self._collect()
        return _nothing if gathering.is_empty else _Later(finish, gathering)

    def take_stacks(self) -> Mapping[str, Sequence[str]]:
        """The call stacks of modules, when they have been noted; only once."""
        stacks, self.stacks = self.stacks, None
        if stacks is None:
            return {}
        stacks.is_on = False
        self.listeners.remove(stacks)
        return stacks.modules

    def end(self) -> None:
        """It is over: what the listeners have attached by themselves is taken away."""

    def _new_unreduced(self) -> UnreducedGradients:
        raise NotImplementedError

    def _new_steps(self, unreduced: UnreducedGradients | None) -> OptimizerSteps:
        return OptimizerSteps(self.state, self.optimizers, self.groups, unreduced, self.is_of_training)

    def _new_features(self) -> list[Observer]:
        """What measures features of layers (``recording_l2_features``)."""
        return []

    def _collect(self) -> Callable[[], None]:
        """The step is over; what completes the numbers of this rank."""
        return self.state.meter.collect()

    def _finish_all_ranks(self, finish: Callable[[], None]) -> Callable[[], None]:
        """What completes the numbers of this step; those of other ranks are asked for here."""
        return finish

    # ---------------------------------------------------------------- parts

    def _new_listeners(self) -> list[Observer]:
        state, config = self.state, self.config
        observers: list[Observer] = [_Begin(state)]
        if config.print_struct:
            self.structure = Structure(state)
            return [*observers, self.structure]
        if config.forward or config.backward:
            self._activations = Activations(state)
            observers.append(self._activations)
        if config.stack_info:
            self.stacks = Stacks(state)
            observers.append(self.stacks)
        unreduced = None
        if config.wg_distribution:
            unreduced = self._new_unreduced()
            observers.append(unreduced)
        if config.cc_distribution.enable:
            if state.framework.is_distributed():
                self.collectives = MeasuredCollectives(state)
                observers.append(self.collectives)
            else:
                log.warning(said("collectives-need-process-group"))
        if config.recording_l2_features and config.l2_targets:
            observers += self._new_features()
        self._steps = self._new_steps(unreduced)
        return [*observers, self._steps]

    def _warn_of_unmatched(self) -> None:
        watched = self.state.watched
        names = [module.full for module in watched.modules.values() if module.full]
        names += [name for model in self.models for name, _ in self.state.framework.parameters_of(model)]
        missing = [Wording("{}{}", target, _near(target, names)) for target in watched.targets.unmatched()]
        if missing:
            there = said("targets-there", ", ".join(names[:_MOST_SHOWN])) if names else ""
            log.warning(said("monitor-targets-unknown", joined(", ", missing), there))
        for target, begun in watched.targets.beginnings().items():
            more = ", ..." if len(begun) > _MOST_SHOWN else ""
            log.warning(
                said("monitor-target-is-prefix", target, _near(target, names), ", ".join(begun[:_MOST_SHOWN]), more)
            )

    def _warn_of_unmeasured(self) -> None:
        for lacking in unmeasured(self.config):
            log.once(("rules", lacking), "warning", said("monitor-rule-warning", lacking))


def _near(target: str, names: Sequence[str]) -> str:
    close = near_words(target.rpartition(":")[2], names, 1)
    return said("near-target", close[0]) if close else ""


def _nothing() -> None:
    return None


class _Begin(Observer):
    """Begins to gather when a step begins that is measured."""

    is_careful = True
    wants = Wants(kinds=_KINDS)

    def __init__(self, state: ConfiguredState) -> None:
        self.state = state

    def step_begin(self, event: Any) -> None:
        """A step begins."""
        self.state.begin(event.step)


class _Later:
    """A step whose numbers may still be on their way."""

    def __init__(self, finish: Callable[[], None], gathering: Gathering) -> None:
        self._finish = finish
        self._gathering = gathering

    def __call__(self) -> StepMetrics | None:
        """Wait for the numbers."""
        self._finish()
        return self._gathering.metrics()


def tagged(
    framework: MonitorFramework, metrics: StepMetrics, quantity: Quantity, rank: int
) -> dict[str, dict[str, Any]]:
    """The rows of a quantity as ``generate_*_metrics`` gives them: tag -> {operator: tensor, shape, dtype}."""
    ops = metrics.ops_of(quantity)
    kind = "pre_grad" if quantity == "grad_unreduced" else quantity
    return {
        tag_of(row.stage, row.name, row.micro_step, rank, kind): _values(framework, ops, row)
        for row in metrics.rows.get(quantity, ())
    }


def _values(framework: MonitorFramework, ops: Sequence[str], row: Row) -> dict[str, Any]:
    by_op: dict[str, Any] = {
        op: framework.as_tensor(float("nan") if value is None else value)
        for op, value in zip(ops, row.values, strict=True)
    }
    by_op["shape"] = None if row.shape is None else framework.as_shape(row.shape)
    by_op["dtype"] = None if row.dtype is None else framework.as_type(row.dtype)
    return by_op

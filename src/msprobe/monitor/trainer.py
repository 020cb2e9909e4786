"""What the monitors of all frameworks are: the interface of ``TrainerMon``, and what happens in which step."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from msprobe import log
from msprobe.capture.debugger import Debugger
from msprobe.capture.events import Step
from msprobe.capture.training import TrainingListening
from msprobe.errors import InvalidInputError
from msprobe.foreign.console import say
from msprobe.guard import answers_user
from msprobe.messages import said
from msprobe.monitor.alerts.attempts import Attempt, Why
from msprobe.monitor.alerts.needs import unnoted
from msprobe.monitor.alerts.rules import SkippedSteps
from msprobe.monitor.alerts.sink import OnAlert
from msprobe.monitor.config import MonitorConfig, checked_operators, load
from msprobe.monitor.ends import end_at_exit, warn_of_forgotten_start
from msprobe.monitor.framework import MonitorFramework
from msprobe.monitor.measurements import Quantity, StepMetrics
from msprobe.monitor.measuring import Watch, tagged
from msprobe.monitor.model_passes import ModelPasses
from msprobe.monitor.outputs import Output
from msprobe.monitor.record_steps import RecordSteps
from msprobe.monitor.sinks import Sink
from msprobe.monitor.sinks.memory import OnMetrics
from msprobe.monitor.steps import Groups, Optimizers
from msprobe.monitor.structure import MonitorStop
from msprobe.monitor.switch import Switch

_Own = TypeVar("_Own", bound="Monitor")


class Monitor:
    """Watches a training; the ``TrainerMon`` of each framework derives from it.

    ``framework``: what has to be known of it. The rest: see there.
    """

    #: What follows the training, what a configuration attaches to it, and what records a step behind an alert.
    training_class: type[TrainingListening]
    watch_class: type[Watch]
    debugger_class: type[Debugger]

    def __init__(
        self,
        framework: MonitorFramework,
        config_file_path: str | os.PathLike[str] | MonitorConfig,
        process_group: Any,
        on_metrics: OnMetrics | None,
        on_alert: OnAlert | None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.framework = framework
        file = None if isinstance(config_file_path, MonitorConfig) else config_file_path
        self.config = config_file_path if isinstance(config_file_path, MonitorConfig) else load(config_file_path)
        self._switch = Switch(file, self.config)
        self._rank = framework.rank()
        self._is_wanted = self._wants_this_rank()
        group_mates, stage = self._pipeline(process_group)
        callbacks = [self._note_alerts, *([on_alert] if on_alert is not None else [])]
        self._output = Output(
            self._rank, framework.world(), framework.name, stage, group_mates, on_metrics, callbacks, sinks
        )
        self._record: RecordSteps | None = None
        self._training: TrainingListening | None = None
        self._models: list[Any] = []
        self._optimizers: Optimizers | None = None
        self._watch: Watch | None = None
        self._micro_steps = 1
        self._groups = Groups()
        # Steps that a scaler has skipped in a row, and whether one was ever taken.
        self._skips = 0
        self._has_stepped = False
        self._at_exit: Callable[[], None] | None = None
        self._written = 0
        self._limit = self.config.collect_times
        # Names of numbers that the program has noted.
        self._noted: set[str] = set()
        # What holds from the next step on.
        self._next_ops: tuple[str, ...] | None = None
        self._next_config: MonitorConfig | None = None
        self._stop_handle: Any = None
        if self._is_wanted and not (self._switch.is_dynamic and not self.config.dynamic_on):
            self._output.open(self.config)

    # ---------------------------------------------------------------- the interface

    @answers_user
    def set_monitor(
        self,
        model: Any,
        optimizer: Any = None,
        grad_acc_steps: Any = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """Begin to watch.

        ``model``: a module (a cell), or the chunks of a virtual pipeline. ``grad_acc_steps``: micro batches in each
        step of the optimizer. ``start_iteration``: the number of the first step, of a training that is resumed.
        ``dp_group``: its first rank alone writes reduced gradients; ``tp_group``: its first rank alone writes
        parameters that are not ``tensor_model_parallel``. Also takes ``(model, grad_acc_steps, optimizer, dp_group,
        tp_group, ...)``, the order of older documents. Raises InvalidInputError without a model or an optimizer.
        """
        if isinstance(optimizer, int):
            optimizer, grad_acc_steps, tp_group, dp_group = grad_acc_steps, optimizer, dp_group, tp_group
        models: list[Any] = list(model) if isinstance(model, (list, tuple)) else [model]
        self._check(models, model, optimizer)
        if self._training is not None:
            raise InvalidInputError(said("monitor-watches-already"))
        self._models = models
        self._optimizers = self._new_optimizers(optimizer)
        self._micro_steps = _count(grad_acc_steps, 1, 1, "grad_acc_steps")
        first = _count(start_iteration, 0, 0, "start_iteration")
        self._groups = Groups(self.framework, dp_group, tp_group)
        if not self._is_wanted:
            return
        self._training = training = self.training_class()
        if self.config.alert is not None and self.config.alert.record:
            training.add(ModelPasses(self._begin_pass))
        if not self._switch.is_dynamic or self.config.dynamic_on:
            self._begin(self.config, first + 1)
        given, optimizers = models if len(models) > 1 else models[0], self._optimizers
        training.follow(given, optimizers.followed(), first, (self._end_measured, self._end_step), self._leave_out)
        names = ", ".join(type(model_part).__name__ for model_part in models)
        self._output.describe(first, names)
        if self._record is not None:
            self._record.begin(first, self._is_watched(first))
        if first == 0:
            warn_of_forgotten_start(self._output, optimizers.steps_taken())
        self._at_exit = end_at_exit(self)

    def set_wrapped_optimizer(self, optimizer: Any) -> None:
        """The optimizer, for :meth:`monitor_gnorm_with_ad`."""
        self._optimizers = self._new_optimizers(optimizer)

    @answers_user
    def monitor_gnorm_with_ad(
        self,
        model: Any,
        optimizer: Any = None,
        grad_acc_steps: int = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """As :meth:`set_monitor`; without an optimizer that of :meth:`set_wrapped_optimizer`, and where there is none
        either, nothing is watched.
        """
        if optimizer is None:
            if self._optimizers is None:
                log.error(said("monitor-without-optimizer"))
                return
            optimizer = self._optimizers.given
        self.set_monitor(model, optimizer, grad_acc_steps, tp_group, dp_group, start_iteration)

    @answers_user
    def stop(self) -> None:
        """Watch no more; all that was measured is written when this returns."""
        at_exit, self._at_exit = self._at_exit, None
        if at_exit is not None:
            atexit.unregister(at_exit)
        self._judge_unfinished()
        if self._record is not None:
            self._record.end()
        training, self._training = self._training, None
        if training is not None:
            training.end()
        self._warn_if_nothing()
        self._remove_stop()
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        self._output.close()

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @answers_user
    def note(self, batch: str = "", **numbers: float) -> None:
        """Note numbers of the step that runs now, as ``note(loss=loss.item())``, before the optimizer steps: files,
        rules and reports have them beside what is measured. ``batch``: a text that distinguishes the step's data from
        others.
        """
        watch = self._watch
        if watch is not None:
            gathering = watch.state.gathering
            given = {name: float(number) for name, number in numbers.items()}
            gathering.scalars.update(given)
            gathering.batch = batch or gathering.batch
            training = self._training
            if self._output.judges and training is not None and not all(map(math.isfinite, given.values())):
                # The program may end before the optimizer steps.
                step = training.recorder.session.step
                self._put_attempt("noted", lambda: StepMetrics(step, (), {}, scalars=given))

    @answers_user
    def note_part(self, name: str, number: Any) -> None:
        """Add to a number of the step that runs now: the share that a micro batch has in the loss. ``number``: a tensor
        of one element is read when the step is over and written, so that nothing waits for a device here.
        """
        watch, training = self._watch, self._training
        if watch is not None and training is not None and watch.has(training.recorder.session.step):
            watch.state.gathering.add_part(name, number)

    @answers_user
    def flush(self) -> None:
        """Wait until what was measured so far can be read."""
        self._output.flush()

    @property
    def output_path(self) -> str | None:
        """The folder of this run and rank; None as long as there is none."""
        return self._output.folder

    @property
    def ops(self) -> list[str]:
        """The operators; other ones take effect in the next step."""
        return list(self._next_ops or self.config.ops)

    @ops.setter
    def ops(self, value: Any) -> None:
        self._next_ops = checked_operators(value)

    def reload_xy(self, xy_distribution: bool = False) -> None:
        """Measure activations from the next step on, or no more. Deprecated: change the configuration file."""
        log.warning(said("reload-xy-deprecated"))
        config = replace(self._next_config or self.config, xy_distribution=bool(xy_distribution))
        training, watch = self._training, self._watch
        if training is None:
            self.config = config
            return
        step = training.recorder.session.step
        if watch is not None and watch.has(step):
            self._next_config = config
        else:
            self._begin(config, step + 1)

    def generate_xy_metrics(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was measured last of activations and of their gradients: tag -> {operator: tensor, shape, dtype}."""
        return self._metrics_of("actv"), self._metrics_of("actv_grad")

    def generate_wgrad_metrics(self, *given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same of reduced and of unreduced gradients of parameters. What is ``given`` (gradients, in 8.1.1) does
        nothing, which a line says.
        """
        if given:
            log.once("given gradients", "warning", said("wgrad-arguments-have-no-effect"))
        return self._metrics_of("grad_reduced"), self._metrics_of("grad_unreduced")

    # ---------------------------------------------------------------- parts

    def _check(self, models: Sequence[Any], model: Any, optimizer: Any) -> None:
        """Raise InvalidInputError unless these are models and an optimizer. ``model``: as the user has given it."""
        raise NotImplementedError

    def _new_optimizers(self, optimizer: Any) -> Optimizers:
        raise NotImplementedError

    def _possible(self, config: MonitorConfig) -> MonitorConfig:
        """The configuration without what is not measured in this framework."""
        return config

    def _call_behind_step(self, optimizer: Any, function: Callable[..., None]) -> Any:
        """Have ``function`` called behind each step of an optimizer, where what it raises reaches the program. Returns
        what ends that by its ``remove()``.
        """
        raise NotImplementedError

    def _begin(self, config: MonitorConfig, first: int) -> None:
        """Watch as ``config`` says. ``first``: in dynamic mode the first step; else the configuration says it."""
        training = self._training
        assert training is not None
        assert self._optimizers is not None
        self._remove_listeners()
        self.config = config
        self._limit = max(config.collect_times, 1)
        self._written = 0
        self._watch = watch = self.watch_class(
            self.framework,
            self._possible(config),
            self._models,
            self._micro_steps,
            self._optimizers,
            self._groups,
            training.has,
            self._leave_out,
        )
        watch.begin_from(first if self._switch.is_dynamic else config.start_step)
        if watch.is_a_look:
            self._place_stop()
        if self._record is None and config.alert is not None and config.alert.record:
            self._record = RecordSteps(self.debugger_class, self._models, config.alert.record, self._output.folder)
        for listener in watch.listeners:
            training.add(listener)

    def _remove_listeners(self) -> None:
        training, watch = self._training, self._watch
        self._watch = None
        if training is not None and watch is not None:
            watch.end()
            for listener in watch.listeners:
                training.remove(listener)

    # ---------------------------------------------------------------- steps

    def _leave_out(self, has_raised: bool) -> None:
        """A scaler has left the step out, or it has raised: what was measured is of no step."""
        watch, training = self._watch, self._training
        if training is None:
            return
        session = training.recorder.session
        if watch is not None and watch.has(session.step):
            if not has_raised:
                self._skips += 1
                if self._output.judges:
                    self._put_attempt("skipped", watch.attempt())
                elif SkippedSteps().against(self._skips, self._has_stepped) is not None:
                    log.warning(said("steps-skipped", self._skips))
            watch.start_again(Step(session.step, session.rank()))
        if self._record is not None and not has_raised:
            self._record.begin_again()

    def _put_attempt(self, why: Why, make: Callable[[], StepMetrics | None]) -> None:
        training = self._training
        if training is not None:
            step = training.recorder.session.step
            self._output.put_attempt(Attempt(step, why, make, self._skips, self._has_stepped))

    def _judge_unfinished(self) -> None:
        """The training ends: has it begun a step that it did not finish?"""
        watch, training = self._watch, self._training
        if watch is None or training is None or not self._output.judges or watch.structure is not None:
            return
        step = training.recorder.session.step
        if watch.has(step) and watch.state.gathering.step == step:
            self._put_attempt("unfinished", watch.attempt())

    def _end_measured(self) -> None:
        """A step is over: write what was measured of it."""
        watch, training = self._watch, self._training
        if watch is None or training is None or not watch.has(training.recorder.session.step):
            return
        if watch.structure is not None:
            if self.config.print_struct == "continue":
                self._output.write_structure(watch.structure.text())
                self._begin(replace(self.config, print_struct=False), training.recorder.session.step + 1)
            return
        self._skips, self._has_stepped = 0, True
        gathering = watch.state.gathering
        self._noted.update(gathering.noted)
        if self._written == 1 and gathering.names("grad_unreduced"):
            lacking = sorted(gathering.names("grad_reduced") - gathering.names("grad_unreduced"))
            if lacking:
                log.once(
                    ("unreduced", *lacking),
                    "warning",
                    said("grad-unreduced-lacks", ", ".join(lacking[:5]), ", ..." * (len(lacking) > 5)),
                )
        measured = watch.finish()
        stacks = watch.take_stacks()
        if stacks:
            self._output.write_stacks(stacks)
        self._output.put(measured)
        self._written += 1
        if self._written == 2:
            self._warn_if_nothing()
            for what in unnoted(self.config, self._noted):
                log.once(("rules", what), "warning", said("monitor-rule-warning", what))
        if self._next_ops is not None:
            self.config = replace(self.config, ops=self._next_ops)
            watch.state.change_ops(self._next_ops)
            self._next_ops = None
        if self._written >= self._limit:
            self._end_collecting()
        elif self._next_config is not None:
            config, self._next_config = replace(self._next_config, ops=self.config.ops), None
            written = self._written
            self._begin(config, training.recorder.session.step + 1)
            self._written = written

    def _end_collecting(self) -> None:
        if self._switch.is_dynamic:
            self._remove_listeners()
            self._switch.turn_off()
            self._output.flush()
            return
        log.info(said("collect-times-reached", self._written))
        self.stop()

    def _note_alerts(self, alerts: Sequence[Any]) -> None:
        if self._record is not None:
            self._record.want(alerts)

    def _end_step(self) -> None:
        """A step is over: has the configuration changed, and is the next step to be recorded?"""
        training = self._training
        if training is not None and self._record is not None:
            # The rules have looked at the step: whoever hands one over waits for that.
            step = training.recorder.session.step + 1
            self._record.between_steps(step, self._is_watched(step))
        config = self._switch.look() if self._switch.is_dynamic else None
        if config is None or training is None:
            return
        if not config.dynamic_on:
            self._remove_listeners()
            return
        if self._output.folder is None:
            self._output.open(config)
        self._begin(config, training.recorder.session.step + 1)

    def _begin_pass(self) -> None:
        """A pass of a whole model begins."""
        if self._record is not None:
            self._record.begin_pass(self.framework.has_gradients())

    def _is_watched(self, step: int) -> bool:
        watch = self._watch
        return watch is not None and self._output.judges and watch.has(step)

    def _warn_if_nothing(self) -> None:
        if self._written and self._output.is_empty:
            log.once(("monitor", id(self)), "warning", said("nothing-measured"))

    # ---------------------------------------------------------------- one look, then stop

    def _place_stop(self) -> None:
        optimizers = self._optimizers.followed() if self._optimizers is not None else []
        if optimizers and self._stop_handle is None:
            self._stop_handle = self._call_behind_step(optimizers[0], self._stop_after_look)

    def _remove_stop(self) -> None:
        if self._stop_handle is not None:
            self._stop_handle.remove()
            self._stop_handle = None

    def _stop_after_look(self, *step: Any) -> None:
        watch, training = self._watch, self._training
        if watch is None or training is None or not watch.has(training.recorder.session.step):
            return
        self._remove_stop()
        if watch.structure is not None:
            path = self._output.write_structure(watch.structure.text())
            self.stop()
            raise MonitorStop(said("print-struct-ends-training", path))
        if watch.collectives is not None:
            say(watch.collectives.text(), flush=True)
            self.stop()
            raise MonitorStop(said("cc-log-only-ends-training"))

    # ---------------------------------------------------------------- answers

    def _wants_this_rank(self) -> bool:
        ranks = self.config.module_ranks
        if not ranks:
            return True
        if not self.framework.is_distributed():
            log.warning(said("module-ranks-without-group", list(ranks)))
            return True
        return self._rank in ranks

    def _metrics_of(self, quantity: Quantity) -> dict[str, Any]:
        training, watch = self._training, self._watch
        if watch is None or training is None:
            metrics = self._output.last_of(None)
        elif (metrics := watch.so_far()) is None and not self._skips:
            metrics = self._output.last_of(training.recorder.session.step)
        return {} if metrics is None else tagged(self.framework, metrics, quantity, self._rank)

    def _pipeline(self, group: Any) -> tuple[list[int], int]:
        """The ranks of the pipeline group, and the place of this one."""
        framework = self.framework
        if not framework.is_distributed():
            return [self._rank], 0
        if group is None:
            return list(range(framework.world())), self._rank
        return framework.ranks_of(group), framework.place_in(group)


def _count(value: Any, least: int, default: int, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    log.warning(said("set-monitor-number-wrong", name, least, value, default))
    return default

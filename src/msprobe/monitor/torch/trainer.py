"""``TrainerMon``: attaches the monitor to a training of PyTorch and drives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.events import Kind
from msprobe.capture.listeners import Cadence, Observer, Wants
from msprobe.capture.torch.recorder import RANKS
from msprobe.capture.torch.training import TrainingListening
from msprobe.errors import InvalidInputError
from msprobe.monitor.alerts.sink import OnAlert
from msprobe.monitor.config import MonitorConfig, load
from msprobe.monitor.gathering import Gathering
from msprobe.monitor.measurements import Quantity, Row, StepMetrics
from msprobe.monitor.outputs import Output
from msprobe.monitor.switch import Switch
from msprobe.monitor.torch.activations import Activations
from msprobe.monitor.torch.communication import Collectives
from msprobe.monitor.torch.gradients import UnreducedGradients
from msprobe.monitor.torch.optimizers import Optimizers
from msprobe.monitor.torch.record_next import RecordNext
from msprobe.monitor.torch.state import State
from msprobe.monitor.torch.steps import Groups, OptimizerSteps
from msprobe.monitor.torch.structure import MonitorStop, Structure

#: Tensors of the host are treated as those of a device: for tests of that way.
DEFER = "MSPROBE_MONITOR_DEFER"

_KINDS: frozenset[Kind] = frozenset(("optimizer",))


class TrainerMon:
    """Watches a training: what the configuration names, in the steps that it names.

    ::

        monitor = TrainerMon("monitor_config.json")
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=4)

    Nothing is called in each step: steps are those of the optimizer.

    ``config_file_path``: see docs/monitor.md. ``process_group``: the pipeline group, told in anomalies.
    ``params_have_main_grad``: "auto" takes ``main_grad`` of a parameter where it has one, else ``grad``; True and False
    force one. ``opt_ty``: not looked at. ``on_metrics``: called with (step, metrics) of each measured step, in the
    thread that writes. ``on_alert``: called with all alerts of a step, there as well.

    Raises PathError if the configuration cannot be read, InvalidInputError (a TypeError or ValueError, too) if it is
    wrong.
    """

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        process_group: Any = None,
        params_have_main_grad: bool | str = "auto",
        opt_ty: Any = None,
        *,
        on_metrics: Callable[[int, StepMetrics], None] | None = None,
        on_alert: OnAlert | None = None,
    ) -> None:
        self.config = load(config_file_path)
        self._main_grad = params_have_main_grad
        self._switch = Switch(config_file_path, self.config)
        self._rank = RANKS.current() or 0
        self._is_wanted = self._wants_this_rank()
        group_mates, stage = _pipeline(process_group, self._rank)
        told = [self._note_alerts, *([on_alert] if on_alert is not None else [])]
        self._output = Output(self._rank, _world(), "pytorch", stage, group_mates, on_metrics, told)
        self._record: RecordNext | None = None
        self._training: TrainingListening | None = None
        self._models: list[nn.Module] = []
        self._optimizers: Optimizers | None = None
        self._state: State | None = None
        self._listeners: list[Observer] = []
        self._activations: Activations | None = None
        self._collectives: Collectives | None = None
        self._structure: Structure | None = None
        self._shards: Any = None
        self._micro_steps = 1
        self._groups = Groups()
        self._written = 0
        self._limit = self.config.collect_times
        self._next_ops: tuple[str, ...] | None = None
        self._stop_handle: Any = None
        if self._is_wanted and not (self._switch.is_dynamic and not self.config.dynamic_on):
            self._output.open(self.config)

    # ---------------------------------------------------------------- the interface

    def set_monitor(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Any = None,
        grad_acc_steps: Any = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """Begin to watch.

        ``model``: a module, or the chunks of a virtual pipeline. ``grad_acc_steps``: micro batches in each step of the
        optimizer. ``start_iteration``: the number of the first step, of a training that is resumed. ``dp_group``: its
        first rank alone writes reduced gradients; ``tp_group``: its first rank alone writes parameters that are not
        ``tensor_model_parallel``. Also takes ``(model, grad_acc_steps, optimizer, dp_group, tp_group, ...)``, the order
        of older documents. Raises InvalidInputError without a model or an optimizer.
        """
        if isinstance(optimizer, int):
            optimizer, grad_acc_steps, tp_group, dp_group = grad_acc_steps, optimizer, dp_group, tp_group
        models: list[Any] = list(model) if isinstance(model, (list, tuple)) else [model]
        if not models or not all(isinstance(one, nn.Module) for one in models):
            raise InvalidInputError(
                f"set_monitor(): model must be a torch.nn.Module or a list of them, found {type(model).__name__}."
            )
        if optimizer is None or not hasattr(optimizer, "step"):
            raise InvalidInputError(
                f"set_monitor(): optimizer must have a method step, found {type(optimizer).__name__};"
                " pass the optimizer of the training."
            )
        if self._training is not None:
            raise InvalidInputError("set_monitor(): the monitor watches a training already; call stop() first.")
        self._models = models
        self._optimizers = Optimizers(optimizer, self._main_grad)
        self._micro_steps = _count(grad_acc_steps, 1, 1, "grad_acc_steps")
        first = _count(start_iteration, 0, 0, "start_iteration")
        self._groups = Groups(dp_group, tp_group)
        if not self._is_wanted:
            return
        self._training = training = TrainingListening()
        if self._switch.is_dynamic or (self.config.alert is not None and self.config.alert.record):
            training.add(_Ticks(self))
        if not self._switch.is_dynamic or self.config.dynamic_on:
            self._begin(self.config, 0 if not self._switch.is_dynamic else first + 1)
        training.follow(models if len(models) > 1 else models[0], self._optimizers.torch_ones(), first)

    def set_wrapped_optimizer(self, optimizer: Any) -> None:
        """The optimizer, for :meth:`monitor_gnorm_with_ad`."""
        self._optimizers = Optimizers(optimizer, self._main_grad)

    def monitor_gnorm_with_ad(
        self,
        model: nn.Module | Sequence[nn.Module],
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
                log.error("monitor_gnorm_with_ad(): no optimizer was given, so nothing is monitored.")
                return
            optimizer = self._optimizers.given
        self.set_monitor(model, optimizer, grad_acc_steps, tp_group, dp_group, start_iteration)

    def stop(self) -> None:
        """Watch no more; all that was measured is written when this returns."""
        training, self._training = self._training, None
        if training is not None:
            training.end()
        if self._record is not None:
            self._record.end()
        self._tell_if_nothing()
        self._remove_stop()
        self._listeners = []
        self._output.close()

    def __enter__(self) -> TrainerMon:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

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
        self._next_ops = self._switch.checked_ops(value)

    def reload_xy(self, xy_distribution: bool = False) -> None:
        """Measure activations from the next step on, or no more. Deprecated: change the configuration file."""
        log.warning("reload_xy() is deprecated: set DYNAMIC_MONITOR and change the configuration file.")
        from dataclasses import replace

        self._begin(replace(self.config, xy_distribution=bool(xy_distribution)), None)

    def generate_xy_metrics(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was measured last of activations and of their gradients: tag -> {operator: tensor, shape, dtype}."""
        return self._metrics_of("actv"), self._metrics_of("actv_grad")

    def generate_wgrad_metrics(self, *ignored: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same of reduced and of unreduced gradients of parameters."""
        return self._metrics_of("grad_reduced"), self._metrics_of("grad_unreduced")

    # ---------------------------------------------------------------- parts

    def _begin(self, config: MonitorConfig, first: int | None) -> None:
        """Watch as ``config`` says, from the step ``first`` on (None: the next one)."""
        training = self._training
        assert training is not None
        self._remove_listeners()
        self.config = config
        self._limit = max(config.collect_times, 1)
        self._written = 0
        if first is None:
            first = training.recorder.session.step + 1
        elif not self._switch.is_dynamic:
            first = config.start_step
        self._state = state = State(config, self._models, self._micro_steps, bool(os.environ.get(DEFER)))
        missing = state.watched.targets.unmatched()
        if missing:
            log.warning(
                f"Monitor: {', '.join(missing)} in targets is no module or trained parameter of the model"
                f"{_examples(state)}."
            )
        self._listeners = self._new_listeners(state)
        if self._record is None and config.alert is not None and config.alert.record:
            self._record = RecordNext(self._models, config.alert.record)
        cadence = Cadence(every=config.step_interval, first=first)
        for listener in self._listeners:
            listener.cadence = cadence
            training.add(listener)

    def _new_listeners(self, state: State) -> list[Observer]:
        config = state.config
        found: list[Observer] = [_Begin(self, state)]
        self._activations = self._collectives = self._structure = None
        if config.print_struct:
            self._structure = Structure(state)
            self._place_stop()
            return [*found, self._structure]
        if config.forward or config.backward or config.stack_info:
            self._activations = Activations(state)
            found.append(self._activations)
        unreduced = None
        if config.wg_distribution:
            # Where ranks reduce their gradients, what was measured before says nothing of what comes out.
            unreduced = UnreducedGradients(state, _is_sharded(self._models), remembers=_world() == 1)
            found.append(unreduced)
        if config.cc_distribution.enable:
            if _world() < 2 and not _is_distributed():
                log.warning("Monitor: cc_distribution needs a process group; no collectives are measured.")
            else:
                self._collectives = Collectives(state)
                found.append(self._collectives)
                if config.cc_distribution.log_only:
                    self._place_stop()
        assert self._optimizers is not None
        steps = OptimizerSteps(state, self._optimizers, self._groups, unreduced, self._over)
        self._shards = steps.shards
        return [*found, steps]

    def _remove_listeners(self) -> None:
        training, listeners = self._training, self._listeners
        self._listeners = []
        for listener in listeners:
            if training is not None:
                training.remove(listener)

    # ---------------------------------------------------------------- steps

    def _over(self, event: Any) -> None:
        """The optimizer has stepped, in a step that is measured."""
        training = self._training
        if training is not None:
            step = event.step
            training.recorder.bus.afterwards(lambda: self._finish(step))

    def _finish(self, step: int) -> None:
        state = self._state
        if state is None or self._training is None:
            return
        if self._activations is not None:
            self._activations.flush()
        gathering = state.gathering
        finish = state.meter.collect()
        if self._shards is not None and not self._shards.is_empty:
            finish()
            finish = _nothing
            self._shards.reduce(gathering.ops, _device_of(self._models))
        if state.stacks:
            self._output.write_stacks(state.stacks)
            state.stacks = None
        self._output.put(_Later(finish, gathering))
        self._written += 1
        if self._written == 2:
            self._tell_if_nothing()
        if self._next_ops is not None:
            state.change_ops(self._next_ops)
            self._next_ops = None
        if self._written >= self._limit:
            self._end_collecting()

    def _end_collecting(self) -> None:
        if self._switch.is_dynamic:
            self._remove_listeners()
            self._switch.turn_off()
            self._output.flush()
            return
        log.info(f"Monitor: {self._written} steps were measured as collect_times asks for; watching ends.")
        self.stop()

    def _note_alerts(self, alerts: Sequence[Any]) -> None:
        if self._record is not None:
            self._record.want(alerts)

    def tick(self) -> None:
        """A step is over: has the configuration changed, and is the next step to be recorded?"""
        training = self._training
        if training is not None and self._record is not None:
            # Whether a rule fires is told by the thread that writes.
            self._output.flush()
            self._record.between_steps(training.recorder.session.step + 1)
        config = self._switch.look() if self._switch.is_dynamic else None
        if config is None or self._training is None:
            return
        if not config.dynamic_on:
            self._remove_listeners()
            return
        if self._output.folder is None:
            self._output.open(config)
        self._begin(config, None)

    def _tell_if_nothing(self) -> None:
        if self._written and self._output.is_empty:
            log.once(
                ("monitor", id(self)),
                "warning",
                "Monitor: nothing was measured so far. Look at targets, and whether the configuration asks for anything"
                " (xy_distribution, wg_distribution, mv_distribution, param_distribution, ...).",
            )

    # ---------------------------------------------------------------- one look, then stop

    def _place_stop(self) -> None:
        optimizer = self._optimizers.torch if self._optimizers is not None else None
        if optimizer is not None and self._stop_handle is None:
            self._stop_handle = optimizer.register_step_post_hook(self._stop_after_look)

    def _remove_stop(self) -> None:
        if self._stop_handle is not None:
            self._stop_handle.remove()
            self._stop_handle = None

    def _stop_after_look(self, *step: Any) -> None:
        self._remove_stop()
        if self._structure is not None:
            path = self._output.write_structure(self._structure.text())
            if self.config.print_struct == "continue":
                return
            self.stop()
            raise MonitorStop(
                f'print_struct: the structure of the model is in "{path}"; the training is ended, as the monitor'
                ' configuration asks for. Set print_struct to "continue" to go on training, or to false.'
            )
        if self._collectives is not None:
            print(self._collectives.text(), flush=True)
            self.stop()
            raise MonitorStop(
                "cc_log_only: the call stacks of the collectives of one step are printed above; the training is ended,"
                " as the monitor configuration asks for."
            )

    # ---------------------------------------------------------------- answers

    def _wants_this_rank(self) -> bool:
        ranks = self.config.module_ranks
        if not ranks:
            return True
        if not _is_distributed():
            log.warning(f"Monitor: module_ranks {list(ranks)} means nothing in a single process; this one is measured.")
            return True
        return self._rank in ranks

    def _metrics_of(self, quantity: Quantity) -> dict[str, Any]:
        state = self._state
        metrics = self._output.last
        if (
            state is not None
            and not state.gathering.is_empty
            and (metrics is None or state.gathering.step > metrics.step)
        ):
            if self._activations is not None:
                self._activations.flush()
            state.meter.collect()()
            metrics = state.gathering.metrics()
        if metrics is None:
            return {}
        return {
            _tag(row, self._rank, quantity): _values(metrics.ops_of(quantity), row)
            for row in metrics.rows.get(quantity, ())
        }


class _Later:
    """A step whose numbers may still be on their way."""

    def __init__(self, finish: Callable[[], None], gathering: Gathering) -> None:
        self._finish = finish
        self._gathering = gathering

    def __call__(self) -> StepMetrics | None:
        """Wait for the numbers."""
        self._finish()
        return None if self._gathering.is_empty else self._gathering.metrics()

    @property
    def is_empty(self) -> bool:
        """True if nothing was measured."""
        return self._gathering.is_empty


class _Begin(Observer):
    """Begins to gather when a step begins that is measured."""

    is_careful = True
    wants = Wants(kinds=_KINDS)

    def __init__(self, monitor: TrainerMon, state: State) -> None:
        self.state = state

    def step_begin(self, event: Any) -> None:
        """A step begins."""
        self.state.begin(event.step)


class _Ticks(Observer):
    """Looks for a changed configuration behind each step."""

    is_careful = True
    wants = Wants(kinds=_KINDS)

    def __init__(self, monitor: TrainerMon) -> None:
        self._monitor = monitor

    def after(self, event: Any, result: Any) -> None:
        """An optimizer has stepped."""
        monitor = self._monitor
        if monitor._optimizers is not None and monitor._optimizers.is_meant(event.optimizer):
            training = monitor._training
            if training is not None:
                training.recorder.bus.afterwards(monitor.tick, place=1)


_TAGS: Mapping[str, str] = {"grad_reduced": "post_grad", "grad_unreduced": "pre_grad"}


def _tag(row: Row, rank: int, quantity: str) -> str:
    micro = "" if row.micro_step is None else f":{row.micro_step}"
    return f"{row.stage}:{row.name}{micro}/rank{rank}/{_TAGS.get(quantity, quantity)}"


def _values(ops: Sequence[str], row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        op: torch.tensor(float("nan") if value is None else value) for op, value in zip(ops, row.values, strict=True)
    }
    found["shape"] = None if row.shape is None else torch.Size(row.shape)
    found["dtype"] = None if row.dtype is None else getattr(torch, row.dtype.rpartition(".")[2], row.dtype)
    return found


def _nothing() -> None:
    return


def _count(value: Any, least: int, default: int, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    log.warning(f"set_monitor(): {name} must be a whole number from {least}, found {value!r}; {default} is used.")
    return default


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _world() -> int:
    return torch.distributed.get_world_size() if _is_distributed() else 1


def _pipeline(group: Any, rank: int) -> tuple[list[int], int]:
    if not _is_distributed():
        return [rank], 0
    if group is None:
        return list(range(_world())), rank
    return list(torch.distributed.get_process_group_ranks(group)), int(torch.distributed.get_rank(group))


def _is_sharded(models: Sequence[nn.Module]) -> bool:
    """True if a wrapper shards parameters, so that gradients gather out of sight."""
    names = ("FullyShardedDataParallel", "FSDPModule")
    return any(
        base.__name__ in names for model in models for module in model.modules() for base in type(module).__mro__
    )


def _device_of(models: Sequence[nn.Module]) -> torch.device:
    for model in models:
        for parameter in model.parameters():
            return parameter.device
    return torch.device("cpu")


def _examples(state: State) -> str:
    names = [one.full for one in list(state.watched.modules.values())[:3] if one.full]
    names += [parameter.full for parameter in state.watched.parameters[:2]]
    return f" (there are {', '.join(names)}, ...)" if names else ""


__all__ = ["DEFER", "TrainerMon"]

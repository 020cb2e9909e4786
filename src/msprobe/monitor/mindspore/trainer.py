"""``TrainerMon``: attaches the monitor to a training of MindSpore, in the dynamic graph, and drives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mindspore import nn

from msprobe import log
from msprobe.capture.mindspore.calls.surface import surface
from msprobe.capture.mindspore.debugger import PrecisionDebugger
from msprobe.capture.mindspore.training import TrainingListening, warn_of_static_graph
from msprobe.errors import InvalidInputError
from msprobe.messages import joined, said
from msprobe.monitor import measuring
from msprobe.monitor.alerts.sink import OnAlert
from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.mindspore.framework import MindSporeMonitorFramework
from msprobe.monitor.mindspore.gradients import UnreducedGradients
from msprobe.monitor.mindspore.optimizers import Optimizers, innermost
from msprobe.monitor.sinks import Sink
from msprobe.monitor.sinks.memory import OnMetrics
from msprobe.monitor.trainer import Monitor


class _Watch(measuring.Watch):
    def _new_unreduced(self) -> UnreducedGradients:
        return UnreducedGradients(self.state)


class TrainerMon(Monitor):
    """Watches a training: what the configuration names, in the steps that it names.

    ::

        monitor = TrainerMon("monitor_config.json")
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=4)

    Nothing is called in each step: steps are those of the optimizer, ``optimizer(gradients)``, wherever it is called.

    ``config_file_path``: see docs/monitor.md; or a configuration that was read already. ``process_group``: the pipeline
    group, named in anomalies.
    ``params_have_main_grad``: not looked at; gradients are those that the optimizer is given. ``on_metrics``: called
    with each measured step and its rows by quantity, in the thread that writes. ``on_alert``: called with all alerts of
    a step, there as well. ``sinks``: more places where
    the measured steps go.

    Raises PathError if the configuration cannot be read, InvalidInputError (a TypeError or ValueError, too) if it is
    wrong.
    """

    training_class = TrainingListening
    debugger_class = PrecisionDebugger
    watch_class = _Watch

    def __init__(
        self,
        config_file_path: str | os.PathLike[str] | MonitorConfig,
        process_group: Any = None,
        params_have_main_grad: bool | str = "auto",
        *,
        on_metrics: OnMetrics | None = None,
        on_alert: OnAlert | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if params_have_main_grad != "auto":
            log.warning(said("main-grad-has-no-effect", params_have_main_grad))
        super().__init__(MindSporeMonitorFramework(), config_file_path, process_group, on_metrics, on_alert, sinks)

    def _check(self, models: Sequence[Any], model: Any, optimizer: Any) -> None:
        names = surface()
        if not models or not all(isinstance(model_given, (nn.Cell, names.module_class)) for model_given in models):
            raise InvalidInputError(said("monitor-model-wrong", names.module_word, type(model).__name__))
        if innermost(optimizer) is None:
            raise InvalidInputError(said("monitor-mindspore-optimizer-wrong", type(optimizer).__name__))
        warn_of_static_graph("set_monitor()")

    def _new_optimizers(self, optimizer: Any) -> Optimizers:
        return Optimizers(optimizer)

    def _possible(self, config: MonitorConfig) -> MonitorConfig:
        without = [name for name in ("ur_distribution", "recording_l2_features") if getattr(config, name)]
        if without:
            log.once(
                ("monitor", "mindspore", *without),
                "warning",
                said("not-measured-in-mindspore", joined(" and ", without)),
            )
        if config.scope == "global":
            log.once(("monitor", "mindspore", "scope"), "warning", said("scope-global-in-mindspore"))
        return replace(config, ur_distribution=False, recording_l2_features=False)

    def _call_behind_step(self, optimizer: Any, function: Callable[..., None]) -> Any:
        # MindSpore takes functions and methods as hooks, and no other objects.
        return optimizer.register_forward_hook(function)

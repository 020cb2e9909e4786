"""``TrainerMon``: attaches the monitor to a training of PyTorch and drives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from msprobe import log
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.capture.torch.training import TrainingListening
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.monitor.alerts.sink import OnAlert
from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.framework import DEFER
from msprobe.monitor.sinks import Sink
from msprobe.monitor.sinks.memory import OnMetrics
from msprobe.monitor.torch.framework import TorchMonitorFramework
from msprobe.monitor.torch.optimizers import Optimizers
from msprobe.monitor.torch.watch import Watch
from msprobe.monitor.trainer import Monitor


class TrainerMon(Monitor):
    """Watches a training: what the configuration names, in the steps that it names.

    ::

        monitor = TrainerMon("monitor_config.json")
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=4)

    Nothing is called in each step: steps are those of the optimizer.

    ``config_file_path``: see docs/monitor.md; or a configuration that was read already. ``process_group``: the pipeline
    group, named in anomalies.
    ``params_have_main_grad``: "auto" takes ``main_grad`` of a parameter where it has one, else ``grad``; True and False
    force one. ``opt_ty``: not looked at. ``on_metrics``: called with each measured step and its rows by quantity, in
    the thread that writes. ``on_alert``: called with all alerts of a step, there as well. ``sinks``: more places where
    the measured steps go.

    Raises PathError if the configuration cannot be read, InvalidInputError (a TypeError or ValueError, too) if it is
    wrong.
    """

    training_class = TrainingListening
    debugger_class = PrecisionDebugger
    watch_class = Watch
    _optimizers: Optimizers | None

    def __init__(
        self,
        config_file_path: str | os.PathLike[str] | MonitorConfig,
        process_group: Any = None,
        params_have_main_grad: bool | str = "auto",
        opt_ty: Any = None,
        *,
        on_metrics: OnMetrics | None = None,
        on_alert: OnAlert | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if opt_ty is not None:
            log.warning(said("opt-ty-has-no-effect", opt_ty))
        self._main_grad = params_have_main_grad
        super().__init__(TorchMonitorFramework(), config_file_path, process_group, on_metrics, on_alert, sinks)

    def _check(self, models: Sequence[Any], model: Any, optimizer: Any) -> None:
        if not models or not all(isinstance(model_given, nn.Module) for model_given in models):
            raise InvalidInputError(said("monitor-torch-model-wrong", type(model).__name__))
        if optimizer is None or not hasattr(optimizer, "step"):
            several = isinstance(optimizer, (list, tuple))
            hint = said("each-optimizer-has-a-monitor") if several else said("pass-the-optimizer")
            raise InvalidInputError(said("monitor-optimizer-wrong", type(optimizer).__name__, hint))

    def _new_optimizers(self, optimizer: Any) -> Optimizers:
        return Optimizers(optimizer, self._main_grad)

    def _call_behind_step(self, optimizer: Any, function: Callable[..., None]) -> Any:
        return optimizer.register_step_post_hook(function)


__all__ = ["DEFER", "TrainerMon"]

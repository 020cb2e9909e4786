"""``TrainerMonitorV2``: the calls of ``monitor_v2`` of 26.2.0, answered by our monitor."""

from __future__ import annotations

import importlib
import os
from typing import Any

from msprobe import log
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.monitor.trainer import Monitor
from msprobe.monitor.v2.settings import SettingsV2, load_v2
from msprobe.monitor.v2.sink import CsvSinkV2


class TrainerMonitorV2:
    """Watches a training from :meth:`start` to :meth:`stop`.

    ``config_path``: a configuration of ``monitor_v2`` (docs/monitor.md). ``fr``: the framework, in place of that of the
    configuration: pytorch, pt, torch, mindspore or ms.

    Steps are those of the optimizer, numbered from 0; moments are those before the step, as in ``TrainerMon``.
    Raises PathError if the configuration cannot be read, InvalidInputError (a TypeError or ValueError, too) if it is
    wrong.
    """

    def __init__(self, config_path: str | os.PathLike[str], fr: str | None = None) -> None:
        self.settings: SettingsV2 = load_v2(config_path, fr)
        self._monitor: Monitor | None = None

    def start(self, model: Any = None, optimizer: Any = None, grad_acc_steps: int = 1) -> None:
        """Begin. ``model``: a module, or the chunks of a virtual pipeline; ``grad_acc_steps``: micro batches in each
        step. Raises InvalidInputError without a model or an optimizer, or if it has begun already.
        """
        if self._monitor is not None:
            raise InvalidInputError(said("monitor-v2-watches-already"))
        framework = "torch" if self.settings.framework == "pytorch" else "mindspore"
        trainer = importlib.import_module(f"msprobe.monitor.{framework}.trainer")
        adapter = importlib.import_module(f"msprobe.monitor.{framework}.framework")
        kind = adapter.TorchMonitorFramework if framework == "torch" else adapter.MindSporeMonitorFramework
        known = kind()
        chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        names: list[str] = []
        if self.settings.targets and all(
            hasattr(chunk, "parameters_dict") or hasattr(chunk, "modules") for chunk in chunks
        ):
            names = [name for chunk in chunks for name, _ in known.modules_of(chunk)]
            for part in self.settings.targets:
                if not any(part in name for name in names):
                    log.warning(said("module-target-unknown", part))
        monitor = trainer.TrainerMon(self.settings.translated(names), sinks=[CsvSinkV2(self.settings, known.rank())])
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=grad_acc_steps)
        self._monitor = monitor

    def step(self) -> None:
        """Nothing has to be done here: a step is one of the optimizer. Called once."""
        log.once(("monitor_v2", "step"), "warning", said("monitor-step-skipped"))

    def stop(self) -> None:
        """End; all that was measured is written when this returns. Without :meth:`start`, nothing happens."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.stop()


__all__ = ["TrainerMonitorV2"]

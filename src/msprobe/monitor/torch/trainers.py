"""The monitor in the trainers of other packages, whose callbacks tell when a training begins and ends."""

from __future__ import annotations

import os
from typing import Any

from msprobe.monitor.torch.trainer import TrainerMon


class MonitoredTraining:
    """Watches what a Trainer trains. Can be pickled: a copy in another process watches there.

    ``path``: the configuration of the monitor.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.monitor: TrainerMon | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self.monitor = None

    def begin(self, model: Any, optimizer: Any, micro_steps: int, first_step: int) -> None:
        """A training begins, or goes on behind ``first_step`` steps."""
        self.end()
        self.monitor = TrainerMon(self.path)
        self.monitor.set_monitor(
            model, optimizer=optimizer, grad_acc_steps=max(1, micro_steps), start_iteration=first_step
        )

    def end(self) -> None:
        """It is over."""
        monitor, self.monitor = self.monitor, None
        if monitor is not None:
            monitor.stop()

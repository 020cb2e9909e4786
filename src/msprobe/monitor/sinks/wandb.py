"""Weights & Biases: the numbers of each step in a run of its own. Needs the package ``wandb`` (an extra)."""

from __future__ import annotations

import importlib
import os
from typing import Any

from msprobe.distribution import install
from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.monitor.files import stamp_text
from msprobe.monitor.measurements import MonitorRun, StepMetrics
from msprobe.monitor.tags import scalars_of

PROJECT = "msprobe-monitor"


class WandbSink:
    """Logs to a run of the project ``msprobe-monitor``; another with ``WANDB_PROJECT``.

    Without ``WANDB_MODE`` in the environment the run stays on this machine: ``wandb sync`` sends it when the user wants
    it sent. A run that the training has is not touched.
    """

    def open(self, run: MonitorRun) -> None:
        """Begin the run. Raises NotAvailableError without ``wandb``."""
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError:
            raise NotAvailableError(said("wandb-missing", install("wandb"))) from None
        self._rank = run.rank
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=f"{stamp_text(run.started)}-rank{run.rank}",
            group=stamp_text(run.started) if run.world > 1 else None,
            dir=run.folder,
            config=dict(run.config),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False
            ),
        )

    def write(self, metrics: StepMetrics) -> None:
        """Log the numbers of the step."""
        self._run.log(dict(scalars_of(metrics, self._rank)), step=metrics.step)

    def flush(self) -> None:
        """wandb writes by itself."""

    def close(self) -> None:
        """End the run."""
        self._run.finish()

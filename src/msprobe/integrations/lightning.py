"""The callback for the Trainer of Lightning.

::

    from msprobe.integrations.lightning import MsprobeCallback

    trainer = lightning.Trainer(..., callbacks=[MsprobeCallback(config_path="config.json")])
    trainer.fit(model, loader)
"""

from __future__ import annotations

import sys
from typing import Any

from msprobe.config_check.trainers import CheckedTraining
from msprobe.distribution import install
from msprobe.guard import answers_user
from msprobe.launcher.trainer_recording import TrainerRecording
from msprobe.messages import said
from msprobe.monitor.torch.trainers import MonitoredTraining

__all__ = ["MsprobeCallback"]


def _find_callback() -> Any:
    """The class that callbacks of the Trainer derive from, of the package that the program uses."""
    if "lightning" not in sys.modules and "pytorch_lightning" in sys.modules:
        from pytorch_lightning import Callback

        return Callback
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError as problem:
        if problem.name not in ("lightning", "lightning.pytorch"):
            raise
        raise ImportError(said("trainer-package-missing", "lightning", "lightning", install("lightning"))) from None
    return Callback


class MsprobeCallback(_find_callback()):  # type: ignore[misc]
    """Records each step of the training, one folder for a step of the optimizer, or of all of them.

    Takes what PrecisionDebugger takes: ``config_path``, or fields of config.json as keywords, and raises its errors.
    Without any it uses the PrecisionDebugger that is there, else the defaults. ``monitor``: the configuration of a
    monitor (:class:`msprobe.pytorch.TrainerMon`) that watches the training as well, or, without other arguments, alone;
    of several optimizers it watches the first, and notes the sum of what goes backward as the loss.
    ``config_check``: the path of a pack (``.zip``) of the configuration check
    (:class:`msprobe.core.config_check.ConfigChecker`), with the hyper-parameters and weights of the module and its
    first batch. A training that is resumed counts on from the steps of the checkpoint. Sanity checks and validation
    are not recorded, but for those between two micro-batches of a step.
    """

    def __init__(
        self,
        config_path: str | None = None,
        *,
        monitor: str | None = None,
        config_check: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        records = (monitor is None and config_check is None) or config_path is not None or bool(settings)
        self._recording = TrainerRecording(config_path, settings) if records else None
        self._monitored = MonitoredTraining(monitor) if monitor is not None else None
        self._checked = CheckedTraining(config_check) if config_check is not None else None

    @answers_user
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The training begins, behind the sanity check; a checkpoint is loaded."""
        # Lightning counts the steps of each optimizer.
        done = trainer.global_step // max(1, len(trainer.optimizers))
        if self._recording is not None:
            self._recording.begin(done, lambda: bool(trainer.training), trainer.optimizers)
        if self._monitored is not None:
            self._monitored.begin(pl_module, trainer.optimizers[0], trainer.accumulate_grad_batches, done)

        if self._checked is not None:
            self._checked.begin(pl_module, getattr(pl_module, "hparams", None) or None, calls_model=False)

    @answers_user
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A micro-batch begins."""
        if self._checked is not None:
            self._checked.note(batch)

    @answers_user
    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """A micro batch has its loss, divided by their number."""
        if self._monitored is not None:
            self._monitored.note_loss(loss)

    @answers_user
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The training is over."""
        if self._recording is not None:
            self._recording.end()
        if self._monitored is not None:
            self._monitored.end()
        if self._checked is not None:
            self._checked.end()

    @answers_user
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training was ended by an exception."""
        if self._recording is not None:
            self._recording.end(failed=True)
        if self._monitored is not None:
            self._monitored.end()
        if self._checked is not None:
            self._checked.end()

"""The callback for the Trainer of Hugging Face, and for the trainers that derive from it (TRL).

::

    from msprobe.integrations.huggingface import MsprobeCallback

    trainer = Trainer(..., callbacks=[MsprobeCallback(config_path="config.json")])
    trainer.train()
"""

from __future__ import annotations

from typing import Any

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as problem:
    if problem.name != "transformers":
        raise
    from msprobe.distribution import install
    from msprobe.messages import said

    raise ImportError(said("trainer-package-missing", "huggingface", "transformers", install("hf"))) from None

from msprobe.config_check.trainers import CheckedTraining
from msprobe.guard import answers_user
from msprobe.launcher.trainer_recording import TrainerRecording
from msprobe.monitor.torch.trainers import MonitoredTraining

__all__ = ["MsprobeCallback"]


class MsprobeCallback(TrainerCallback):  # type: ignore[misc]
    """Records each step of the training, one folder for a step of the optimizer.

    Takes what PrecisionDebugger takes: ``config_path``, or fields of config.json as keywords, and raises its errors.
    Without any it uses the PrecisionDebugger that is there, else the defaults. ``monitor``: the configuration of a
    monitor (:class:`msprobe.pytorch.TrainerMon`) that watches the training as well, or, without other arguments, alone;
    the loss that the model returns is noted in it, unless the model is compiled.
    ``config_check``: the path of a pack (``.zip``) of the configuration check
    (:class:`msprobe.core.config_check.ConfigChecker`), with the arguments of the trainer, the weights and the inputs of
    the first micro-step; of a compiled model without the inputs. The folder ``step{k}`` holds the step
    that begins at ``global_step`` k, also in a training that is resumed. Evaluation is not recorded.
    """

    def __init__(
        self,
        config_path: str | None = None,
        *,
        monitor: str | None = None,
        config_check: str | None = None,
        **settings: Any,
    ) -> None:
        records = (monitor is None and config_check is None) or config_path is not None or bool(settings)
        self._recording = TrainerRecording(config_path, settings) if records else None
        self._monitored = MonitoredTraining(monitor) if monitor is not None else None
        self._checked = CheckedTraining(config_check) if config_check is not None else None
        self._inside = False

    @answers_user
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The training begins."""
        self._inside = False
        if self._recording is not None:
            self._recording.begin(state.global_step, lambda: self._inside, ends_steps=True)
        if self._checked is not None:
            self._checked.begin(more["model"], args, calls_model=not getattr(args, "torch_compile", False))
        if self._monitored is not None:
            accumulated = args.gradient_accumulation_steps
            self._monitored.begin(more["model"], more["optimizer"], accumulated, state.global_step)
            if not getattr(args, "torch_compile", False):
                self._monitored.watch_loss(more["model"], accumulated)

    @answers_user
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A step begins, with its first micro-batch."""
        if self._recording is not None:
            self._recording.number_next_step(state.global_step)
        if self._checked is not None:
            self._checked.note()
        self._inside = True

    @answers_user
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The optimizer has stepped."""
        self._inside = False
        if self._recording is not None:
            self._recording.end_step()

    @answers_user
    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The training is over."""
        self._inside = False
        if self._recording is not None:
            self._recording.end()
        if self._monitored is not None:
            self._monitored.end()
        if self._checked is not None:
            self._checked.end()

"""The monitor in the trainers of other packages, whose callbacks say when a training begins and ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from msprobe import log
from msprobe.capture.torch.modules.module_calls import WatchedModule, watch_module
from msprobe.capture.torch.modules.user_modules import is_training
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.monitor.torch.trainer import TrainerMon


class MonitoredTraining:
    """Watches what a Trainer trains. Can be pickled: a copy in another process watches there.

    ``path``: the configuration of the monitor.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.monitor: TrainerMon | None = None
        self._watched: WatchedModule | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self.monitor = None
        self._watched = None

    def begin(self, model: Any, optimizer: Any, micro_steps: int, first_step: int) -> None:
        """A training begins, or goes on behind ``first_step`` steps."""
        self.end()
        self.monitor = TrainerMon(self.path)
        self.monitor.set_monitor(
            model, optimizer=optimizer, grad_acc_steps=max(1, micro_steps), start_iteration=first_step
        )

    def note_loss(self, loss: Any, share: float = 1.0) -> None:
        """A micro batch of the step that runs has this loss, of which ``share`` counts in the loss of the step. It is
        kept as it is now, and read when the step is written.
        """
        if self.monitor is None or not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return
        with torch.no_grad():
            self.monitor.note_part("loss", loss.detach().reshape(()).double() * share)

    def watch_loss(self, model: torch.nn.Module, micro_steps: int) -> None:
        """Note the loss that ``model`` returns while it is trained, as models of transformers do for given labels.
        ``micro_steps``: forward passes of a step, over which it is a mean, unless the model is given of how many items
        it is one (``num_items_in_batch``).
        """
        self._watch_no_loss()
        self._watched = watch_module(model, _Loss(self, micro_steps))

    def end(self) -> None:
        """It is over."""
        self._watch_no_loss()
        monitor, self.monitor = self.monitor, None
        if monitor is not None:
            monitor.stop()

    def _watch_no_loss(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.remove()


class _Loss:
    """Notes the loss of each pass of one model."""

    def __init__(self, training: MonitoredTraining, micro_steps: int) -> None:
        self._training = training
        self._share = 1.0 / max(1, micro_steps)
        # For each pass that runs: whether its loss is one of the whole step already.
        self._is_whole: list[bool] = []

    def enter(self, module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._is_whole.append(kwargs.get("num_items_in_batch") is not None)

    def leave(self, module: torch.nn.Module, result: Any, error: BaseException | None) -> None:
        is_whole = self._is_whole.pop()
        try:
            if error is None and is_training(module) and torch.is_grad_enabled():
                loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
                self._training.note_loss(loss, 1.0 if is_whole else self._share)
        except Exception as problem:
            pass_on(problem)
            log.once("loss", "warning", said("loss-not-noted", problem))

"""Listeners that watch a PyTorch training as long as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture import training
from msprobe.capture.torch.listening import Listening
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.capture.torch.user_modules import parameters
from msprobe.config.settings import Settings


class TrainingListening(training.TrainingListening, Listening):
    __doc__ = training.TrainingListening.__doc__

    def parameters_of(self, model: Any) -> Sequence[Any]:
        """See the base class."""
        return list(parameters(model))

    def parameters_in(self, optimizer: Any) -> Sequence[Any]:
        """See the base class."""
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _new_recorder(self) -> TorchRecorder:
        return TorchRecorder(Settings(), dumps=False)

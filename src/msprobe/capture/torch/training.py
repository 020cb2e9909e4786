"""Listeners that watch a PyTorch training as long as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture import training
from msprobe.capture.optimizer_turns import OptimizerTurns
from msprobe.capture.torch.listening import Listening
from msprobe.capture.torch.modules.user_modules import named_parameters
from msprobe.capture.torch.optimizers.optimizer_cycle import trained_by
from msprobe.capture.torch.optimizers.updated_parameters import UpdatedParameters
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.config.settings import Settings


class TrainingListening(training.TrainingListening, Listening):
    __doc__ = training.TrainingListening.__doc__

    def _new_turns(self, models: Sequence[Any], optimizers: Sequence[Any]) -> OptimizerTurns:
        if optimizers:
            return OptimizerTurns(optimizers, trained_by)
        updated = UpdatedParameters(lambda: [pair for model in models for pair in named_parameters(model)])
        return OptimizerTurns((), updated.trained_by, updated.optimizers)

    def _new_recorder(self) -> TorchRecorder:
        return TorchRecorder(Settings(), dumps=False)

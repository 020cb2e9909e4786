"""Listeners of a PyTorch program that is not dumped."""

from __future__ import annotations

from typing import Any

from msprobe.capture import listening
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.capture.torch.modules.models import name_modules
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.capture.torch.start_arguments import check_model
from msprobe.config.settings import Settings
from msprobe.guard import answers_user


class Listening(listening.Listening):
    __doc__ = listening.Listening.__doc__

    recorder: TorchRecorder

    @answers_user
    def start(self, model: Any = None) -> None:
        if model is not None:
            check_model(model)
        self.recorder.models.give(model)
        self.recorder.start(name_modules(model, False) if model is not None else [])

    def _new_recorder(self) -> TorchRecorder:
        listening.refuse_beside(PrecisionDebugger)
        return TorchRecorder(Settings(), dumps=False)

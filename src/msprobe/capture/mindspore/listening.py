"""Listeners of a MindSpore program, in the dynamic graph, that is not dumped."""

from __future__ import annotations

from typing import Any

from msprobe.capture import listening
from msprobe.capture.mindspore.cells import check_model, name_cells
from msprobe.capture.mindspore.debugger import PrecisionDebugger
from msprobe.capture.mindspore.recorder import MindSporeRecorder
from msprobe.config.settings import Settings


class Listening(listening.Listening):
    __doc__ = listening.Listening.__doc__

    recorder: MindSporeRecorder

    def start(self, model: Any = None) -> None:
        names = self.recorder.names
        if model is not None:
            check_model(model, names)
        self.recorder.start(model, name_cells(model, False, names) if model is not None else [], dumps=False)

    def _new_recorder(self) -> MindSporeRecorder:
        listening.refuse_beside(PrecisionDebugger)
        recorder = MindSporeRecorder(Settings(api_scope="listed"))
        recorder.session.keeps_records = False
        return recorder

"""Listeners that watch a training of MindSpore, in the dynamic graph, as long as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe import log
from msprobe.capture import training
from msprobe.capture.mindspore.cells import check_model, name_cells
from msprobe.capture.mindspore.graphs.execution import in_graph_mode
from msprobe.capture.mindspore.listening import Listening
from msprobe.capture.mindspore.recorder import MindSporeRecorder
from msprobe.capture.optimizer_turns import OptimizerTurns
from msprobe.config.settings import Settings
from msprobe.messages import said


class TrainingListening(training.TrainingListening, Listening):
    __doc__ = training.TrainingListening.__doc__

    def start(self, model: Any = None) -> None:
        """See :meth:`msprobe.capture.listening.Listening.start`. The models themselves are reported, too."""
        names = self.recorder.names
        if model is not None:
            check_model(model, names)
        self.recorder.start(model, name_cells(model, True, names) if model is not None else [], dumps=False)

    def _new_turns(self, models: Sequence[Any], optimizers: Sequence[Any]) -> OptimizerTurns:
        if optimizers:
            return OptimizerTurns(optimizers, _parameters_of)
        known = frozenset(id(parameter) for model in models for parameter in model.get_parameters())
        return OptimizerTurns((), lambda optimizer: known & _parameters_of(optimizer))

    def _new_recorder(self) -> MindSporeRecorder:
        recorder = MindSporeRecorder(Settings(api_scope="listed"))
        recorder.session.keeps_records = False
        return recorder


def _parameters_of(optimizer: Any) -> frozenset[int]:
    return frozenset(map(id, optimizer.parameters))


def warn_of_static_graph(function: str) -> None:
    """Warn that steps cannot be seen, where whole models are compiled. ``function``: what the program has called."""
    if in_graph_mode():
        log.warning(said("static-graph-hides-optimizer", function))

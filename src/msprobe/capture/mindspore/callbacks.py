"""Callbacks of ``mindspore.train.Model``."""

from __future__ import annotations

import os
from typing import Any

from mindspore.train import Callback

from msprobe.capture.mindspore.debugger import PrecisionDebugger
from msprobe.errors import InvalidInputError
from msprobe.messages import said


class MsprobeStep(Callback):  # type: ignore[misc]
    """Records each step of ``Model.train``: ``model.train(epochs, data, callbacks=[MsprobeStep(debugger)])``."""

    def __init__(self, debugger: PrecisionDebugger) -> None:
        super().__init__()
        if not isinstance(debugger, PrecisionDebugger):
            raise InvalidInputError(said("callback-without-debugger", type(debugger).__name__))
        self.debugger = debugger

    def on_train_step_begin(self, run_context: Any) -> None:
        """A step begins."""
        self.debugger.start(_network(run_context))

    def on_train_step_end(self, run_context: Any) -> None:
        """A step is over."""
        self.debugger.stop()
        self.debugger.step()


class MsprobeInitStep(Callback):  # type: ignore[misc]
    """For a training that goes on from a checkpoint: numbers the steps of the dump from the step it goes on with."""

    def on_train_begin(self, run_context: Any) -> None:
        """The training begins."""
        done = run_context.original_args().get("cur_step_num", 0)
        if not isinstance(done, int) or done <= 0:
            return
        debugger = PrecisionDebugger.existing()
        if debugger is not None:
            debugger.set_init_step(done)
        _number_kernel_dump_from(done)


def _number_kernel_dump_from(step: int) -> None:
    """Where MindSpore itself dumps kernels, it counts iterations from 0 unless asked."""
    if not os.environ.get("MINDSPORE_DUMP_CONFIG"):
        return
    try:
        from mindspore._c_expression import _set_init_iter
    except ImportError:
        return
    _set_init_iter(step)


def _network(run_context: Any) -> Any:
    """The network as the user gave it to Model."""
    return run_context.original_args().get("network")

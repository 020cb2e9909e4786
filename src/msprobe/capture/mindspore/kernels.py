"""Level L2 in the dynamic graph: every kernel that MindSpore dispatches, forward and backward, as
``Kernel.{name}.{n}.forward``.

Through ``mindspore.utils.MsDispatchMode``. MindSpore 2.9 has it too, but there trainings that write into tensors came
out otherwise now and then, so it is used from 2.10 on. Not seen by it, and so not recorded:
assignment to elements, what runs inside compiled functions (optimizers among it), and a few kernels of the backward
pass.
"""

from __future__ import annotations

import re
from typing import Any

import mindspore

from msprobe.capture.mindspore.calls.writing_primitives import BATCH_NORM, written_results
from msprobe.capture.mindspore.tensors import MindSporeTensors
from msprobe.capture.units import UnitRecorder

if tuple(int(part) for part in re.findall(r"\d+", mindspore.__version__)[:2]) >= (2, 10):
    from mindspore.utils import MsDispatchMode
else:
    MsDispatchMode = None


def is_there() -> bool:
    """True if this MindSpore reports kernels."""
    return MsDispatchMode is not None


class KernelRecorder:
    """Watches the kernels of a program between start and stop."""

    def __init__(self, units: UnitRecorder, tensors: MindSporeTensors) -> None:
        self.units = units
        # They read the values of a kernel at once, so nothing is held when the next one writes.
        self.tensors = tensors
        self._mode: Any = None

    def attach(self) -> None:
        """Begin to watch."""
        if self._mode is None and MsDispatchMode is not None:
            self._mode = _mode_of(self)
            self._mode.__enter__()

    def detach(self) -> None:
        """Leave nothing behind. Modes are left in the order in which they were entered last."""
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)

    def run(self, kernel: Any, args: Any, kwargs: Any) -> Any:
        """Run one kernel and record it."""
        units, session = self.units, self.units.session
        thread = session.thread
        words = kwargs or {}
        if thread.muted or not session.recording:
            return kernel(*args, **words)
        thread.muted += 1
        try:
            name = str(kernel.name)
            given = _given(args)
            unit = units.begin_call(f"Kernel.{name}", given, words)
            try:
                result = kernel(*args, **words)
                if units.wait is not None:
                    units.wait()
            except BaseException as error:
                if unit is not None:
                    units.fail_call(unit, error)
                raise
            if unit is not None:
                # Kernels have no gradients of their own: those of the backward pass are recorded for themselves.
                unit.note = None
                if name == BATCH_NORM:
                    self.tensors.results = written_results(len(given) > 5 and given[5] is True, result)
                units.end_call(unit, result)
            return result
        finally:
            self.tensors.results = {}
            thread.muted -= 1


def _given(args: Any) -> Any:
    """The arguments of a kernel. Those of older primitives come as (primitive, name, arguments)."""
    if len(args) == 3 and isinstance(args[1], str) and isinstance(args[2], (tuple, list)):
        return args[2]
    return args


def _mode_of(recorder: KernelRecorder) -> Any:
    class Mode(MsDispatchMode):  # type: ignore[misc]
        def __ms_dispatch__(self, func: Any, args: Any = (), kwargs: Any = None) -> Any:
            return recorder.run(func, args, kwargs)

    return Mode()

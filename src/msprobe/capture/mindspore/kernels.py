"""Level L2 in the dynamic graph: every kernel that MindSpore dispatches, forward and backward, as
``Kernel.{name}.{n}.forward``.

Through ``mindspore.utils.MsDispatchMode``. MindSpore 2.9 has it too, but there trainings that write into tensors came
out otherwise now and then, so it is used from 2.10 on. Not seen by it, and so not recorded:
assignment to elements, what runs inside compiled functions (optimizers among it), and a few kernels of the backward
pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mindspore

from msprobe.capture.units import UnitRecorder

if tuple(int(part) for part in re.findall(r"\d+", mindspore.__version__)[:2]) >= (2, 10):
    from mindspore.utils import MsDispatchMode
else:
    MsDispatchMode = None

# Kernels that write into their arguments.
_WRITING = ("Assign", "Inplace", "Scatter", "Apply", "Copy", "FusedAdam", "Adam", "Momentum", "SGD")


def is_there() -> bool:
    """True if this MindSpore tells of kernels."""
    return MsDispatchMode is not None


class KernelRecorder:
    """Watches the kernels of a program between start and stop."""

    def __init__(self, units: UnitRecorder, read: Callable[[], None]) -> None:
        self.units = units
        # Reads what waits to be read: before a kernel that writes.
        self.read = read
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
            unit = units.begin_call(f"Kernel.{name}", _given(args), words, 2)
            if unit is not None and name.startswith(_WRITING):
                session.guard(self.read)
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
                units.end_call(unit, result)
            return result
        finally:
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

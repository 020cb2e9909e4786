"""How a training begins and ends for its monitor: what a resumed one forgot to say, and what a last step became."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.monitor.files import find_runs
from msprobe.monitor.outputs import Output
from msprobe.monitor.whole_runs import recorded_steps


def warn_of_forgotten_start(output: Output, steps_taken: int) -> None:
    """Warn where a training that begins at step 0 goes on: its optimizer has stepped, or its folder has steps.

    ``steps_taken``: by the optimizer.
    """
    if steps_taken:
        log.warning(said("training-goes-on", steps_taken))
        return
    if output.folder is None or not output.goes_on:
        return
    try:
        folder = find_runs(output.folder)
        steps = recorded_steps(folder[0]) if folder else None
    except MsprobeError:
        return
    if steps is not None:
        log.warning(said("appended-steps-replaced", steps[0], steps[1]))


def end_at_exit(monitor: Any) -> Callable[[], None]:
    """Stop the monitor when the program ends, while it lives; what is returned can be unregistered."""
    reference = weakref.ref(monitor)

    def end() -> None:
        known = reference()
        if known is not None:
            known.stop()

    atexit.register(end)
    return end

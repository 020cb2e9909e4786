"""The names that scripts for MindSpore import: ``from msprobe.mindspore import PrecisionDebugger``.

MindSpore is imported when one of them is asked for: ``msprobe.mindspore.compare`` works on files and does without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.capture.memory import Memory
    from msprobe.capture.mindspore.callbacks import MsprobeInitStep, MsprobeStep
    from msprobe.capture.mindspore.debugger import PrecisionDebugger
    from msprobe.capture.mindspore.graph_save import save, save_grad, step
    from msprobe.capture.mindspore.listening import Listening
    from msprobe.capture.mindspore.seed import seed_all

__all__ = [
    "Listening",
    "Memory",
    "MsprobeInitStep",
    "MsprobeStep",
    "PrecisionDebugger",
    "save",
    "save_grad",
    "seed_all",
    "step",
]

_HOMES = {
    "Listening": "msprobe.capture.mindspore.listening",
    "Memory": "msprobe.capture.memory",
    "PrecisionDebugger": "msprobe.capture.mindspore.debugger",
    "seed_all": "msprobe.capture.mindspore.seed",
    "MsprobeStep": "msprobe.capture.mindspore.callbacks",
    "MsprobeInitStep": "msprobe.capture.mindspore.callbacks",
    "save": "msprobe.capture.mindspore.graph_save",
    "save_grad": "msprobe.capture.mindspore.graph_save",
    "step": "msprobe.capture.mindspore.graph_save",
}

# Names that scripts of other versions import from here, and what does their work.
_NOT_YET = {
    "TrainerMon": "monitoring the training state",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        try:
            return getattr(importlib.import_module(home), name)
        except ModuleNotFoundError as problem:
            if (problem.name or "").partition(".")[0] != "mindspore":
                raise
            from msprobe.errors import NotAvailableError

            raise NotAvailableError(f"msprobe.mindspore.{name} needs MindSpore: pip install mindspore.") from problem
    work = _NOT_YET.get(name)
    if work is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _not_yet(name, work)


def _not_yet(name: str, work: str) -> Any:
    """Stands for a tool of a later version: importing the name works, using it says so."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        from msprobe.errors import NotAvailableError

        raise NotAvailableError(f"msprobe.mindspore.{name}: {work} is not available in this version.")

    return refuse

"""The names that scripts for MindSpore import: ``from msprobe.mindspore import PrecisionDebugger``.

MindSpore is imported when one of them is asked for: ``msprobe.mindspore.compare`` works on files and does without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from msprobe.messages import said

if TYPE_CHECKING:
    from msprobe.capture.memory import Memory
    from msprobe.capture.mindspore.callbacks import MsprobeInitStep, MsprobeStep
    from msprobe.capture.mindspore.debugger import PrecisionDebugger
    from msprobe.capture.mindspore.graphs.graph_save import save, save_grad, step
    from msprobe.capture.mindspore.listening import Listening
    from msprobe.monitor.mindspore.trainer import TrainerMon
    from msprobe.seeding.mindspore import seed_all

__all__ = [
    "Listening",
    "Memory",
    "MsprobeInitStep",
    "MsprobeStep",
    "PrecisionDebugger",
    "TrainerMon",
    "save",
    "save_grad",
    "seed_all",
    "step",
]

_HOMES = {
    "Listening": "msprobe.capture.mindspore.listening",
    "Memory": "msprobe.capture.memory",
    "PrecisionDebugger": "msprobe.capture.mindspore.debugger",
    "TrainerMon": "msprobe.monitor.mindspore.trainer",
    "seed_all": "msprobe.seeding.mindspore",
    "MsprobeStep": "msprobe.capture.mindspore.callbacks",
    "MsprobeInitStep": "msprobe.capture.mindspore.callbacks",
    "save": "msprobe.capture.mindspore.graphs.graph_save",
    "save_grad": "msprobe.capture.mindspore.graphs.graph_save",
    "step": "msprobe.capture.mindspore.graphs.graph_save",
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

            raise NotAvailableError(said("mindspore-missing", name)) from problem
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

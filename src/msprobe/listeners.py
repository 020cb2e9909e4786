"""What a listener is made of: to be notified of what happens while a program runs, with ``debugger.add(listener)``.

See docs/how-to-write-a-listener.md.
"""

from __future__ import annotations

from msprobe.capture.events import (
    AccumulatedGradient,
    Call,
    Collective,
    Event,
    Failure,
    Gradient,
    ModulePass,
    OptimizedParameter,
    OptimizerStep,
    ParameterGradient,
    SavedValue,
    Step,
)
from msprobe.capture.listeners import Arguments, Cadence, Changer, Changes, NewGradient, Observer, Result, Values, Wants

__all__ = [
    "AccumulatedGradient",
    "Arguments",
    "Cadence",
    "Call",
    "Changer",
    "Changes",
    "Collective",
    "Event",
    "Failure",
    "Gradient",
    "ModulePass",
    "NewGradient",
    "Observer",
    "OptimizedParameter",
    "OptimizerStep",
    "ParameterGradient",
    "Result",
    "SavedValue",
    "Step",
    "Values",
    "Wants",
]

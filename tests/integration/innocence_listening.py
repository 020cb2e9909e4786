"""The recorder with a listener that looks at everything."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from innocence_run import Recorder, Setting

from msprobe import listeners


class Everything(listeners.Observer):
    """Computes with what it is told of, draws random numbers, and leaves modes as it likes."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        # Inside of a transform of torch.func a random number is an error, for listeners as well.
        self.draws = True

    def before(self, event: Any) -> None:
        self._look(event, (*getattr(event, "args", ()), *values_of_step(event)))

    def after(self, event: Any, result: Any) -> None:
        self._look(event, (result, *values_of_step(event)))

    def gradient(self, event: Any) -> None:
        self._look(event, (event.gradient,))

    def _look(self, event: Any, values: Any) -> None:
        self.told.add(event.name)
        if self.draws:
            torch.rand(1)
        np.random.rand()
        random.random()
        for value in values:
            if type(value) is torch.Tensor and value.is_floating_point() and not value.is_nested:
                value.detach().abs().sum()


def values_of_step(event: Any) -> list[Any]:
    """The weights, gradients and moments of a step of an optimizer."""
    if not isinstance(event, listeners.OptimizerStep):
        return []
    return [value for one in event.parameters.values() for value in (one.weight, one.gradient, *one.moments.values())]


class Restrained(listeners.Changer):
    """May change everything, and changes nothing."""

    changes = listeners.Changes(("*",), arguments=True, results=True, gradients=True)


class Listening(Recorder):
    """The recorder with such a listener."""

    def __init__(self, folder: Path, setting: Setting, dump_path: Path | None = None) -> None:
        super().__init__(folder, setting, dump_path)
        self.everything = Everything()
        self.debugger.add(self.everything)
        self.debugger.add(Restrained())

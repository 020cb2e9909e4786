"""What an optimizer of MindSpore is given and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore

from msprobe.capture.mindspore.optimizers.optimizer_hooks import optimizer_classes
from msprobe.monitor.steps import KeptParameter


class Optimizers:
    """See :class:`msprobe.monitor.steps.Optimizers`."""

    def __init__(self, optimizer: Any) -> None:
        self.given = optimizer
        self._own = innermost(optimizer)

    def steps_taken(self) -> int:
        """Not known: what it counts may lie on a device."""
        return 0

    def followed(self) -> list[Any]:
        return [self._own]

    def kept(self, event: Any, parameters: Mapping[int, Any], moments: bool = True) -> Mapping[int, KeptParameter]:
        kept: dict[int, KeptParameter] = {}
        for parameter in event.parameters.values():
            if id(parameter.weight) in parameters:
                states = _moments_of(parameter.moments) if moments else {}
                kept[id(parameter.weight)] = KeptParameter(parameter.weight, _dense(parameter.gradient), states, 0.0)
        return kept


def innermost(optimizer: Any) -> Any:
    """The optimizer in what keeps it as ``optimizer`` (``TrainOneStepCell``, wrappers); None if there is none."""
    for _ in range(8):
        if isinstance(optimizer, optimizer_classes()):
            return optimizer
        optimizer = getattr(optimizer, "optimizer", None)
    return None


def _moments_of(states: Mapping[str, Any]) -> dict[str, Any]:
    """By the words of optimizers: ``moment1`` and ``moment2`` of Adam, ``moments1``, ``exp_avg``."""
    moments: dict[str, Any] = {}
    for word, value in states.items():
        names = word, str(getattr(value, "name", ""))
        if any("exp_avg_sq" in name for name in names) or any(name.startswith(_SECOND) for name in names):
            moments.setdefault("exp_avg_sq", value)
        elif any("exp_avg" in name for name in names) or any(name.startswith(_FIRST) for name in names):
            moments.setdefault("exp_avg", value)
    return moments


_FIRST = ("moment1", "moments1")
_SECOND = ("moment2", "moments2")


def _dense(gradient: Any) -> Any:
    """The tensor of a gradient: of a sparse one the elements that it stores."""
    return gradient if isinstance(gradient, mindspore.Tensor) else getattr(gradient, "values", None)

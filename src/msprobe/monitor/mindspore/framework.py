"""What the monitor asks of MindSpore."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import ops

from msprobe.capture.mindspore.calls.surface import surface
from msprobe.capture.mindspore.cells import name_cells
from msprobe.capture.mindspore.graphs.execution import device
from msprobe.capture.mindspore.graphs.executor import pynative_executor
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.capture.mindspore.tensors import host_array
from msprobe.monitor.framework import DEFER, Named
from msprobe.monitor.mindspore.meter import Meter
from msprobe.monitor.operators import Operators

_DEPTH = 8


class MindSporeMonitorFramework:
    """See :class:`msprobe.monitor.framework.MonitorFramework`."""

    name = "mindspore"
    tensor: type[Any] = mindspore.Tensor
    unwatched = contextlib.nullcontext

    def __init__(self) -> None:
        self._names = surface()
        self._is_differentiated = getattr(pynative_executor(), "grad_flag", None) or _never

    def new_meter(self, operators: Operators) -> Meter:
        return Meter(operators, device() != "CPU" or bool(os.environ.get(DEFER)))

    def agreement(self, first: Any, other: Any) -> float | None:
        mine, theirs = host_array(first).meant, host_array(other).meant
        if mine.shape != theirs.shape or not mine.size or "c" in mine.dtype.kind + theirs.dtype.kind:
            return None
        with np.errstate(all="ignore"):
            return float((np.sign(mine).astype(np.float64) * np.sign(theirs)).mean())

    def name_modules(self, models: Sequence[Any]) -> Named:
        return list(name_cells(models[0] if len(models) == 1 else list(models), True, self._names))

    def modules_of(self, model: Any) -> Named:
        return list(self._names.modules_of(model))

    def is_wrapper(self, module: Any) -> bool:
        return False

    def parameters_of(self, model: Any) -> Named:
        walk = model.parameters_and_names if hasattr(model, "parameters_and_names") else model.named_parameters
        return [(name, parameter) for name, parameter in walk() if parameter.requires_grad]

    def states_of(self, model: Any) -> Named:
        return [(name, parameter) for name, parameter in model.parameters_and_names() if not parameter.requires_grad]

    def own_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        return self._names.own_parameters(module)

    def repeats(self, event: Any) -> bool:
        return bool(event.is_recompute)

    def has_gradients(self) -> bool:
        return bool(self._is_differentiated())

    def trains(self, module: Any) -> bool:
        """Cells are in evaluation mode until they are set otherwise, also those that are trained."""
        return bool(module.training) or self.has_gradients()

    def rank(self) -> int:
        return RANKS.current() or 0

    def world(self) -> int:
        return max(RANKS.world(), 1)

    def is_distributed(self) -> bool:
        return RANKS.current() is not None

    def ranks_of(self, group: Any) -> list[int]:
        from mindspore import communication

        return [int(rank) for rank in communication.get_process_group_ranks(group)]

    def place_in(self, group: Any) -> int:
        from mindspore import communication

        return int(communication.get_rank(group))

    def tensors_in(self, value: Any) -> list[Any]:
        return _tensors_in(value, _DEPTH)

    def joined(self, tensors: Sequence[Any]) -> Any:
        with mindspore._no_grad():
            return ops.concat([tensor.reshape(-1) for tensor in tensors])

    def is_in_place(self, event: Any) -> bool:
        """The result that is reported is the arguments where the call writes to these."""
        return False

    def as_tensor(self, number: float) -> Any:
        return mindspore.Tensor(number)

    def as_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(shape)

    def as_type(self, name: str) -> Any:
        return getattr(mindspore, name.lower(), name)


def _never() -> bool:
    return False


def _tensors_in(value: Any, depth: int) -> list[Any]:
    if isinstance(value, mindspore.Tensor):
        return [value]
    if not depth or not isinstance(value, (list, tuple)):
        return []
    return [tensor for part in value for tensor in _tensors_in(part, depth - 1)]

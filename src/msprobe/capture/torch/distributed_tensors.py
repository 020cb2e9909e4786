"""DTensor plans before it computes: with fake tensors it finds out shapes and placements, once for each kind
of call.

The planning is no part of the training, and whether it takes place depends on what was planned before; so
nothing of it is recorded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from msprobe.capture.session import Session
from msprobe.capture.torch.collectives_functions import FunctionCalls

# Where the planner is, from torch 2.5 and before.
_MODULES = ("torch.distributed.tensor._sharding_prop", "torch.distributed._tensor.sharding_prop")
_PLANNING = (
    "propagate_op_sharding_non_cached",
    "_propagate_tensor_meta_non_cached",
    "_propagate_tensor_meta",
)


class DistributedTensorPlanning:
    """Keeps DTensor's planning out of the records between attach and detach."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions = FunctionCalls()

    def attach(self) -> None:
        """Watch the planner, if DTensor is in use."""
        for name in _MODULES:
            planner = getattr(sys.modules.get(name), "ShardingPropagator", None)
            for planning in _PLANNING:
                function = getattr(planner, planning, None)
                if isinstance(function, types.FunctionType):
                    self._functions.add(function, self._plan)
        self._functions.attach()

    def detach(self) -> None:
        """Leave the planner alone."""
        self._functions.detach()

    def _plan(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        thread = self._session.thread
        thread.muted += 1
        try:
            return original(*args, **kwargs)
        finally:
            thread.muted -= 1

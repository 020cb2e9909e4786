"""What torch computes only to plan: which placements and shapes a call will have, once, before the first real one.

DTensor finds them with fake tensors for each new kind of call. A pipeline schedule passes memory that nobody wrote
through its stages, forward and backward, in its first step, and sends the other ranks the shapes that came out.

Planning is no part of the training, its numbers mean nothing, and whether it takes place depends on what was planned
before; so nothing of it is recorded, and no record is numbered differently because of it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from msprobe.capture.session import Session
from msprobe.capture.torch import private
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.guard import attempt


class Planning:
    """Keeps torch's planning out of the records between attach and detach."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions = FunctionCalls()

    def attach(self) -> None:
        """Watch the planners that are in use."""
        for module, kind, methods in private.PLANNERS:
            planner = getattr(sys.modules.get(module), kind, None)
            for method in methods:
                function = getattr(planner, method, None)
                if isinstance(function, types.FunctionType):
                    self._functions.add(function, self._plan)
        self._functions.attach()

    def detach(self) -> None:
        """Leave the planners alone."""
        self._functions.detach()

    def _plan(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        added = attempt(self._session.thread.mute_more, 1)
        try:
            return original(*args, **kwargs)
        finally:
            attempt(self._session.thread.mute_more, -(added or 0))

"""What ranks send to each other before a step has begun: a stage of a pipeline gets its input so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.guard import attempt

#: Between two ranks; collectives of all ranks are at the same place on each.
_FUNCTIONS = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")


class Exchanges:
    """Watches these functions between attach and detach; ``begins`` is called before one runs, and may detach."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins
        self._calls: FunctionCalls | None = None

    def attach(self) -> None:
        """Watch from now on."""
        if self._calls is None:
            if not torch.distributed.is_available():
                return
            self._calls = FunctionCalls()
            for name in _FUNCTIONS:
                function = getattr(torch.distributed, name, None)
                if function is not None:
                    self._calls.add(function, self._observer(function))
        self._calls.attach()

    def _observer(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            attempt(self._begins)
            # Whoever records it watches the function by now.
            return function(*args, **kwargs) if self._is_off else original(*args, **kwargs)

        return run

    @property
    def _is_off(self) -> bool:
        return self._calls is None or not self._calls.is_attached

    def detach(self) -> None:
        """Leave the functions alone."""
        if self._calls is not None:
            self._calls.detach()

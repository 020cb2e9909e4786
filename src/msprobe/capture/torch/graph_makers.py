"""Functions of torch that make a graph of what they run: nothing of ours is there while they do.

``torch.jit.trace``, ``torch.export``, ``torch.onnx`` and ``torch.fx`` run the user's module with values that stand for
others, and write what they see into a file of the user: operators, names of functions, lines of source. What they run
is not recorded; it is no computation of the training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe.capture.around import Around, Plan
from msprobe.capture.torch import private
from msprobe.capture.torch.collectives_functions import Entrance, FunctionCalls
from msprobe.guard import attempt


class GraphMakers:
    """Steps aside while one of these functions runs: a part of the recorder."""

    def __init__(self, step_aside: Callable[[], None], come_back: Callable[[], None]) -> None:
        self._step_aside = step_aside
        self._come_back = come_back
        self._functions: FunctionCalls | None = None

    def attach(self) -> None:
        """Watch those that have been imported by now."""
        if self._functions is None:
            self._functions = FunctionCalls()
            for function in private.graph_makers():
                self._functions.add_around(function, self._entrance)
            self._functions.attach()

    def detach(self) -> None:
        """Give them their own code back."""
        functions, self._functions = self._functions, None
        if functions is not None:
            functions.detach()

    def _entrance(self, original: Callable[..., Any]) -> Entrance:
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
            attempt(self._step_aside)
            return original, args, kwargs, self

        def after(token: Any, result: Any, error: BaseException | None) -> None:
            attempt(self._come_back)

        entrance: Entrance = Around(before, after)
        return entrance

"""Functions of torch that make a graph of what they run: nothing of ours is there while they do.

``torch.jit.trace``, ``torch.export``, ``torch.onnx`` and ``torch.fx`` run the user's module with values that stand for
others, and write what they see into a file of the user: operators, names of functions, lines of source.
``torch.jit.script`` compiles the functions that it finds under their names. What they run is not recorded; it is no
computation of the training.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from msprobe.capture.around import FRAMES, Around, Plan
from msprobe.capture.torch import private
from msprobe.capture.torch.watched_functions import Entrance, FunctionCalls
from msprobe.guard import attempt

# By this argument a function is given how many frames lie between it and the user, whose variables it looks up.
_COUNTS_FRAMES = "_frames_up"
# The entrance, and what runs the original where there is no C extension.
_OWN_FRAMES = 1 + FRAMES


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

    def _entrance(self, original: types.FunctionType) -> Entrance:
        code = original.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        place = parameters.index(_COUNTS_FRAMES) if _COUNTS_FRAMES in parameters else None

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
            attempt(self._step_aside)
            if place is not None and len(args) > place:
                args = (*args[:place], args[place] + _OWN_FRAMES, *args[place + 1 :])
            elif place is not None:
                kwargs[_COUNTS_FRAMES] = kwargs.get(_COUNTS_FRAMES, 0) + _OWN_FRAMES
            return original, args, kwargs, self

        def after(token: Any, result: Any, error: BaseException | None) -> None:
            attempt(self._come_back)

        entrance: Entrance = Around(before, after)
        return entrance

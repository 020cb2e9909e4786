"""Level L2 of single calls: ``list`` names calls (``Functional.linear.0.backward``); only their operators are taken.

An operator belongs to a call that is on its way in its thread, or, in a backward pass, to the call that made the node
of the graph that runs: nodes are numbered as they are made.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.function_mode import CallMode, enter_mode, remove_mode
from msprobe.capture.torch.calls.names import ApiNames
from msprobe.config.scope_patterns import entry_kind

_OPERATORS = ("Aten.", "Ops.")


def named_calls(items: Sequence[str]) -> frozenset[str]:
    """The full names of calls in ``list``; names of operators are none."""
    return frozenset(item for item in items if entry_kind(item) == "api" and not item.startswith(_OPERATORS))


class CallOperators:
    """Which of the named calls an operator belongs to: a part of the recorder."""

    def __init__(self, calls: CallRecorder, names: frozenset[str]) -> None:
        self.names = names
        self.session = calls.session
        self._mode = CallMode(self, ApiNames(True))  # type: ignore[arg-type]
        self._thread = threading.local()
        # (first node, the one after the last, name of the backward entry) of each call of the step.
        self._nodes: list[tuple[int, int, str]] = []

    def attach(self) -> None:
        """Begin to watch for the calls."""
        self._nodes = []
        self.resume()

    def detach(self) -> None:
        """Leave nothing behind."""
        self.pause()

    def pause(self) -> None:
        """A compiled region is entered."""
        while remove_mode(self._mode):
            pass

    def resume(self) -> None:
        """It was left."""
        enter_mode(self._mode)

    def place(self, backward: bool) -> str | None:
        """The named call that the operator which is about to run belongs to."""
        if not backward:
            under_way = getattr(self._thread, "calls", None)
            return under_way[-1] if under_way else None
        node = private.current_node()
        if node is None or not self._nodes:
            return None
        number = node._sequence_nr()
        return next((name for first, end, name in self._nodes if first <= number < end), None)

    # ------------------------------------------------------------ what the mode says

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        """Before a call; None if it is not wanted."""
        name = f"{key}.{self.session.number(key)}"
        forward, backward = f"{name}.forward" in self.names, f"{name}.backward" in self.names
        if not (forward or backward):
            return None
        if self.session.filter is not None:
            for direction, wanted in (("forward", forward), ("backward", backward)):
                if wanted:
                    self.session.filter.wants_call(f"{name}.{direction}")  # so that it counts as met
        if forward:
            if not hasattr(self._thread, "calls"):
                self._thread.calls = []
            self._thread.calls.append(f"{name}.forward")
        return _Call(name, forward, backward, private.sequence_number())

    def end_call(self, call: _Call, result: Any) -> None:
        """After it."""
        if call.forward:
            self._thread.calls.pop()
        if call.backward:
            self._nodes.append((call.first_node, private.sequence_number(), f"{call.name}.backward"))

    def fail_call(self, call: _Call, error: BaseException) -> None:
        """It raised."""
        if call.forward:
            self._thread.calls.pop()


@dataclass
class _Call:
    """A named call that is on its way."""

    name: str
    forward: bool
    backward: bool
    first_node: int
    among_modes: bool = False  # noted by the function mode

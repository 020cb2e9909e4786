"""What collectives are given and what they leave (``cc_distribution``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msprobe.capture.events import EventKind
from msprobe.capture.listeners import Observer, Wants
from msprobe.foreign.patterns import compile_pattern
from msprobe.monitor.state import ConfiguredState

_KINDS: frozenset[EventKind] = frozenset(("collective",))


class MeasuredCollectives(Observer):
    """Measures the tensors of collectives: a row for each operation, moment and position, of all calls of a step."""

    is_careful = True
    wants = Wants(kinds=_KINDS)

    def __init__(self, state: ConfiguredState) -> None:
        self.state = state
        self._lines = [compile_pattern(line, "cc_distribution").compiled for line in state.config.cc_distribution.lines]
        # Operation -> the stacks that it was called from, for `cc_log_only`.
        self.stacks: dict[str, list[list[str]]] = {}

    def before(self, event: Any) -> None:
        """A collective is issued."""
        settings = self.state.config.cc_distribution
        if not self._is_wanted(event):
            return
        if settings.log_only:
            stacks = self.stacks.setdefault(_operation(event), [])
            stack = list(event.stack)
            if stack not in stacks:
                stacks.append(stack)
        elif settings.before:
            self._measure(event, "pre", (*event.args, *event.kwargs.values()))

    def after(self, event: Any, result: Any) -> None:
        """Its buffers are filled."""
        if not self.state.config.cc_distribution.log_only and self._is_wanted(event):
            values = (*event.args, *event.kwargs.values())
            if not self.state.framework.is_in_place(event):
                values = result if isinstance(result, tuple) else (result,)
            self._measure(event, "post", values)

    def text(self) -> str:
        """The stacks as JSON: operation -> stacks, each a list of lines."""
        return json.dumps(self.stacks, indent=2, ensure_ascii=False)

    def _is_wanted(self, event: Any) -> bool:
        if not self._lines:
            return True
        stack = ";".join(event.stack)
        return any(pattern.search(stack) for pattern in self._lines)

    def _measure(self, event: Any, moment: str, values: Sequence[Any]) -> None:
        state, framework = self.state, self.state.framework
        with framework.unwatched():
            tensors: list[Any] = []
            for value in values:
                values_given = framework.tensors_in(value)
                if isinstance(value, (list, tuple)) and len(values_given) > 1:
                    values_given = [framework.joined(values_given)]
                tensors += values_given
            for place, tensor in enumerate(tensors):
                name = f"{_operation(event)}.{moment}_{place}"
                state.gathering.merge("other", 0, name, state.meter.measure(tensor))


def _operation(event: Any) -> str:
    return str(event.key).partition(".")[2] or str(event.key)

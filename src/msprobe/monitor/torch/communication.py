"""What collectives are given and what they leave (``cc_distribution``)."""

from __future__ import annotations

import json
import re
from typing import Any

import torch

from msprobe.capture.events import Kind
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.torch import private
from msprobe.capture.torch.gradients import collect_tensors
from msprobe.monitor.torch.state import State

_KINDS: frozenset[Kind] = frozenset(("collective",))


class Collectives(Observer):
    """Measures the tensors of collectives: a row for each operation, moment and position, of all calls of a step."""

    is_careful = True
    wants = Wants(kinds=_KINDS)

    def __init__(self, state: State) -> None:
        self.state = state
        self._lines = [re.compile(pattern) for pattern in state.config.cc_distribution.lines]
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
            self._measure(event, "pre")

    def after(self, event: Any, result: Any) -> None:
        """Its buffers are filled."""
        if not self.state.config.cc_distribution.log_only and self._is_wanted(event):
            self._measure(event, "post")

    def text(self) -> str:
        """The stacks as JSON: operation -> stacks, each a list of lines."""
        return json.dumps(self.stacks, indent=2, ensure_ascii=False)

    def _is_wanted(self, event: Any) -> bool:
        if not self._lines:
            return True
        stack = ";".join(event.stack)
        return any(pattern.search(stack) for pattern in self._lines)

    def _measure(self, event: Any, moment: str) -> None:
        state = self.state
        with private.without_functions():
            tensors: list[tuple[str, Any]] = []
            for value in (*event.args, *event.kwargs.values()):
                before = len(tensors)
                collect_tensors(value, "", tensors)
                if isinstance(value, (list, tuple)) and len(tensors) > before + 1:
                    tensors[before:] = [("", _together([tensor for _, tensor in tensors[before:]]))]
            for place, (_, tensor) in enumerate(tensors):
                name = f"{_operation(event)}.{moment}_{place}"
                state.gathering.merge("other", 0, name, state.meter.measure(tensor))


def _together(tensors: list[torch.Tensor]) -> torch.Tensor:
    """A list of tensors as one."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _operation(event: Any) -> str:
    return str(event.key).partition(".")[2] or str(event.key)

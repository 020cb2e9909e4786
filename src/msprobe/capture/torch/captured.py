"""Graphs of kernels that the program captures (as ``torch.cuda.graph`` does) while it is recorded.

What is launched then runs later, in each replay, so nothing of ours is launched or waited for. Nor are gradients
followed: a node that adds the gradients of a parameter belongs to the stream on which it was made, and one that we kept
alive from before would break the capture. Calls and passes are recorded without numbers, and it is said how many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe import log
from msprobe.capture.torch.context import GraphHooks
from msprobe.messages import said


class CapturedGraphs:
    """Notices where a graph begins and ends, by the calls and passes that run."""

    def __init__(self, hooks: GraphHooks) -> None:
        self._hooks = hooks
        self._asked = _question()
        self._is_inside = self._was_suspended = False
        self._calls = self._passes = 0

    @property
    def possible(self) -> bool:
        """Whether this process has a device that captures graphs."""
        return self._asked is not None

    def look(self, is_pass: bool) -> None:
        """A call, or a pass of a module, begins."""
        asked = self._asked
        is_inside = asked is not None and asked()
        if is_inside != self._is_inside:
            self._enter() if is_inside else self.leave()
        if is_inside and is_pass:
            self._passes += 1
        elif is_inside:
            self._calls += 1

    def _enter(self) -> None:
        self._is_inside = True
        self._was_suspended = self._hooks.is_suspended
        if not self._was_suspended:
            self._hooks.suspend()

    def leave(self) -> None:
        """The graph is captured, or the step is over."""
        if self._is_inside:
            self._is_inside = False
            if not self._was_suspended:
                self._hooks.resume()
            log.warning(said("inside-captured-graph", self._calls, self._passes))
            self._calls = self._passes = 0


def _question() -> Callable[[], bool] | None:
    """Asks the accelerator of this process whether its current stream is captured; None where there is none. Nothing
    of the device is made: a program that forks later could not use it in the child.
    """
    module: Any = getattr(torch, _accelerator(), None)
    asked = getattr(module, "is_current_stream_capturing", None)
    is_used = getattr(module, "is_initialized", None)
    if asked is None or is_used is None:
        return None
    return lambda: is_used() and bool(asked())


def _accelerator() -> str:
    if hasattr(torch, "accelerator"):  # since 2.6
        device = torch.accelerator.current_accelerator()
        return "" if device is None else device.type
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "cuda"
    return "npu"

"""Functions and cells that are compiled inside a dynamic-graph program (``mindspore.jit``).

While one is compiled, MindSpore reads the source of what it calls: nothing of ours may be in place then. A compiled
function that runs is one call, ``Jit.{function or cell class}.{n}``; its gradients are those of its node in the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from mindspore import nn

from msprobe import log
from msprobe.capture.mindspore.graphs.executor import jit_executor_class
from msprobe.capture.mindspore.patches import Replacement
from msprobe.capture.units import UnitRecorder, run_recorded
from msprobe.messages import said


class Pausable(Protocol):
    """The recorder: takes everything off, and puts it back."""

    def pause(self, executor: Any) -> None:
        """Take everything of ours off functions and cells."""

    def resume(self) -> None:
        """Put it back."""

    def give_up(self, error: Exception) -> bool:
        """It could not be compiled: take off what was to be compiled with it; False if there was nothing."""


class JitRecorder:
    """Steps aside while something is compiled, and records calls of compiled functions."""

    def __init__(self, units: UnitRecorder, recorder: Pausable, records_calls: bool) -> None:
        self.units = units
        self.recorder = recorder
        self._replacements: list[Replacement] = []
        executor = jit_executor_class()
        if executor is None:
            log.warning(said("compiler-of-functions-unknown"))
            return
        wanted = [("compile", self._outside)]
        if records_calls:
            wanted.append(("__call__", self._recorded))
        self._replacements = [
            Replacement(executor, name, make(vars(executor)[name])) for name, make in wanted if name in vars(executor)
        ]

    def attach(self) -> None:
        """Begin to watch."""
        for replacement in self._replacements:
            replacement.put()

    def detach(self) -> None:
        """Leave the class as it was."""
        for replacement in self._replacements:
            replacement.take_off()

    def _outside(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return compiled_apart(self.recorder, original)

    def _recorded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        units = self.units
        session = units.session

        @functools.wraps(original)
        def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
            name = _name_of(executor)
            if session.recording and not args and not kwargs and not session.thread.muted:
                log.once(("jit", name), "warning", said("jit-without-arguments", name))
                return original(executor, *args, **kwargs)
            return run_recorded(units, f"Jit.{name}", original, args, kwargs, (executor,))

        return run


def compiled_apart(recorder: Pausable, original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, a method of the executor that compiles, with the recorder out of its way."""

    @functools.wraps(original)
    def compile_without_us(executor: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.pause(executor)
        try:
            return original(executor, *args, **kwargs)
        except Exception as error:
            if not recorder.give_up(error):
                raise
            return original(executor, *args, **kwargs)
        finally:
            recorder.resume()

    return compile_without_us


def _name_of(executor: Any) -> str:
    owner = getattr(executor, "obj", None)
    if isinstance(owner, nn.Cell):
        return type(owner).__name__
    return str(getattr(executor.fn, "__name__", "function"))

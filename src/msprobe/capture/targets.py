"""Targets: whoever is notified of what happens by those who notice it.

A target is the dumper, where it is alone, or who hands on to it and to listeners (:mod:`msprobe.capture.relayed`,
:mod:`msprobe.capture.relayed_steps`, :mod:`msprobe.capture.relayed_collectives`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msprobe.capture.optimizer_steps import NoticedStep


class Calls(Protocol):
    """Whoever is notified of calls; the dumper is one."""

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call is about to be made. What to give to the other two, None for neither."""

    def end_call(self, call: Any, result: Any, outputs: Any = None) -> Any:
        """It has returned. ``(result,)`` for another one in its place, else None."""

    def fail_call(self, call: Any, error: BaseException) -> None:
        """It has raised."""


class Passes(Protocol):
    """Whoever is notified of passes of modules; the dumper is one."""

    def enter(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The module is about to run. ``(args, kwargs)`` for other arguments, else None."""

    def leave(self, name: str, module: Any, result: Any, error: BaseException | None = None) -> Any:
        """It has run, or raised ``error``. ``(result,)`` for another result, else None."""


class OptimizerSteps(Protocol):
    """Whoever is notified of steps of optimizers; the dumper is one."""

    def begin_step(self, key: str, step: NoticedStep) -> Any:
        """An optimizer is about to step. What to give to one of the other two, None for neither."""

    def end_step(self, begun: Any, error: BaseException | None) -> None:
        """It has stepped, or raised ``error``."""

    def skip_step(self, begun: Any) -> None:
        """It was not taken: its gradients were not finite."""

    def leave_step(self) -> None:
        """The program goes on behind a step; nobody goes through the hooks of the optimizer any more."""


class Collectives(Protocol):
    """Whoever is notified of communication between ranks; the dumper is one.

    ``facts``: what the record says besides. ``result``: what the program is given, where gradients come back through
    it.
    """

    def begin_collective(self, key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A collective is about to be issued. What to give to the other three, None for none."""

    def leave_under_way(self, begun: Any, outputs: list[Any], facts: Mapping[str, Any], result: Any = None) -> None:
        """It is issued and not over. ``outputs``: what stands in the record in the place of its results."""

    def end_collective(self, begun: Any, results: Any, facts: Mapping[str, Any], result: Any = None) -> None:
        """Its buffers are filled. ``results``: what to record of it and to say."""

    def fail_collective(self, begun: Any, error: BaseException) -> None:
        """It has raised."""


class Targets:
    """Who is notified in this step."""

    def __init__(self, calls: Calls, passes: Passes, optimizers: OptimizerSteps, collectives: Collectives) -> None:
        self.calls = calls
        # Also of passes that no hook reports, as those of compiled modules.
        self.passes = passes
        self.optimizers = optimizers
        self.collectives = collectives

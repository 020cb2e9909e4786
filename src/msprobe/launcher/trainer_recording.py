"""Recording the training of a Trainer, which says by its callbacks where it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from multiprocessing import parent_process, util
from typing import Any

from msprobe.capture.identity import IdentitySet
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.launcher.script_steps import ScriptSteps
from msprobe.messages import said
from msprobe.store import durable


class TrainerRecording:
    """Records what a Trainer trains, between :meth:`begin` and :meth:`end`.

    Steps begin and end as under ``msprobe run`` (:class:`msprobe.launcher.script_steps.ScriptSteps`), so that
    both record the same; the Trainer says when a step may begin and what its number is. Settings are those of
    PrecisionDebugger, whose errors are raised here. Can be pickled: a copy in another process has the same settings
    and records there.
    """

    def __init__(self, config_path: str | None, settings: dict[str, Any]) -> None:
        self._given = config_path, settings
        self._process = 0
        self._steps: ScriptSteps | None = None
        # What is added to the Trainer's count of steps: it begins at zero again with each training.
        self._offset = 0
        self._debugger = self._make_debugger()

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._given = state["_given"]
        self._process = 0
        self._steps = None
        self._offset = 0

    def _make_debugger(self) -> PrecisionDebugger:
        config_path, settings = self._given
        PrecisionDebugger.make_way(said("callback-of-integrations"))
        if self._process not in (0, os.getpid()):
            # A fork: what was made before it is the parent's.
            PrecisionDebugger.reset()
        if parent_process() is not None and self._process != os.getpid():
            # Processes of multiprocessing end without what is registered at exit.
            util.Finalize(None, _end_process, exitpriority=0)
        self._process = os.getpid()
        existing = PrecisionDebugger.existing()
        if existing is not None and config_path is None and not settings:
            return existing
        return PrecisionDebugger(config_path=config_path, **settings)

    def begin(
        self, done: int, may_begin: Callable[[], bool], optimizers: Iterable[Any] = (), ends_steps: bool = False
    ) -> None:
        """A training begins, or goes on after ``done`` steps. ``may_begin``: asked before a step begins.

        ``optimizers``: what the Trainer has, where it may be several. ``ends_steps``: :meth:`end_step` will say where
        each step ends.
        """
        own = IdentitySet(optimizers)
        self.end(failed=True)
        if self._process != os.getpid():
            self._debugger = self._make_debugger()
        self._offset = max(0, self._debugger.recorder.session.step - done)
        self.number_next_step(done)
        self._steps = ScriptSteps(self._debugger, may_begin, ends_steps, lambda: own)
        self._steps.attach()

    def number_next_step(self, done: int) -> None:
        """So many steps are done by the Trainer's count."""
        self._debugger.recorder.session.number_steps_from(self._offset + done)

    def end_step(self) -> None:
        """The step is over."""
        if self._steps is not None:
            self._steps.end_step()

    def end(self, failed: bool = False) -> None:
        """The training is over, or ``failed``; nothing stays attached."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.failed |= failed
            steps.detach()


def _end_process() -> None:
    PrecisionDebugger.reset()
    durable.drain()

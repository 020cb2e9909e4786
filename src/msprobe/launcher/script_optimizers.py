"""The steps of the optimizers of a script, followed from outside of the recorder: also those that nobody records."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler
from torch.optim import optimizer as optimizers

from msprobe.capture.torch.listener_support import aside
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.guard import attempt, guarded
from msprobe.launcher.script_models import optimizer_parts
from msprobe.launcher.step_rules import StepRule


def when_made(made: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What takes the place of ``Optimizer.__init__``, so that ``made`` is called with each new optimizer."""

    def watch(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            attempt(made, optimizer)

        return __init__

    return watch


class ScriptOptimizers:
    """Asks ``rule`` of each step of an optimizer in the thread that made this whether it ends the training step;
    ``ended`` is called behind a step that does. ``recorder``: gives the one that records now.
    """

    def __init__(self, rule: StepRule, recorder: Callable[[], TorchRecorder], ended: Callable[[], None]) -> None:
        self._rule = rule
        self._recorder = recorder
        self._ended = ended
        self._thread = threading.get_ident()
        # Those whose steps run, with their stacks where there is a closure.
        self._stepping: list[tuple[Any, Any]] = []
        # So many steps were made; one of those that run, or ran just now, has ended the training step.
        self._steps_made = 0
        self._ends_step = False
        self._handle: Any = None
        self._patches = patches = Patches()
        patches.add(profiler.record_function, "__exit__", self._leaving)
        patches.add(torch.optim.Optimizer, "__init__", when_made(self._made))
        scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
        patches.add(scaler, "step", self._scaled_step)

    def attach(self) -> None:
        """Begin to follow them."""
        self._handle = optimizers.register_optimizer_step_pre_hook(self._before_step)
        self._patches.attach()

    def detach(self) -> None:
        """Leave nothing behind."""
        attempt(self._patches.detach)
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    @property
    def running(self) -> bool:
        """True while a step runs."""
        return bool(self._stepping)

    def join(self) -> None:
        """Recording has begun; maybe inside of a step, in its closure."""
        if self._stepping:
            for part in optimizer_parts(self._recorder()):
                part.join(*self._stepping[-1])

    def _made(self, optimizer: Any) -> None:
        if threading.get_ident() == self._thread:
            self._rule.made(optimizer)

    @guarded
    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if threading.get_ident() != self._thread:
            return None
        session = self._recorder().session
        if not self._stepping:
            with aside(), session.thread.mute():
                attempt(self._rule.before_step, optimizer)
        closure = kwargs.get("closure") if len(args) < 2 else args[1]
        if session.recording or session.ended or not callable(closure):
            self._stepping.append((optimizer, None))
            return None
        # The step begins inside of this one.
        self._stepping.append((optimizer, session.guard(session.stacks.here)))

        @functools.wraps(closure, updated=())
        def watched(*given: Any, **named: Any) -> Any:
            try:
                return closure(*given, **named)
            finally:
                attempt(self._closure_ended, optimizer)

        if len(args) < 2:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _closure_ended(self, optimizer: Any) -> None:
        for part in optimizer_parts(self._recorder()):
            part.closure_ended(optimizer)

    def _leaving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The block that an optimizer's step runs in ends behind all hooks, those of the recorder included."""

        @functools.wraps(original)
        def __exit__(block: Any, *error: Any) -> Any:
            try:
                return original(block, *error)
            finally:
                attempt(self._left, block, error)

        return __exit__

    def _left(self, block: Any, error: tuple[Any, ...]) -> None:
        """A range of the profiler has ended; that of an optimizer's step is its end."""
        if not self._stepping or threading.get_ident() != self._thread:
            return
        optimizer, _ = self._stepping[-1]
        if getattr(block, "name", "") != f"Optimizer.step#{type(optimizer).__name__}.step":
            return
        self._stepping.pop()
        self._steps_made += 1
        for part in optimizer_parts(self._recorder()):
            attempt(part.leave, optimizer, error[1] if len(error) > 1 else None)
        if (not error or error[0] is None) and attempt(self._rule.stepped, optimizer, bool(self._stepping)):
            self._ends_step = True
        if not self._stepping:
            self._end_if_asked()

    def _scaled_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = attempt(self._count_steps)
            result = original(scaler, optimizer, *args, **kwargs)
            attempt(self._scaled, optimizer, before)
            return result

        return step

    def _count_steps(self) -> int:
        return self._steps_made

    def _scaled(self, optimizer: Any, before: int | None) -> None:
        """A scaler has let ``optimizer`` step, or has not: its gradients are not finite."""
        if self._steps_made != before or threading.get_ident() != self._thread:
            return
        # Recorded before the step ends.
        for part in optimizer_parts(self._recorder()):
            attempt(part.skip_scaled, optimizer)
        self._ends_step |= bool(attempt(self._rule.stepped, optimizer))
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        ends, self._ends_step = self._ends_step, False
        if ends:
            self._ended()

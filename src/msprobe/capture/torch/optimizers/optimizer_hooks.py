"""Every optimizer step is noticed, and reported as ``Optimizer.{Class}.{n}.forward``
(:class:`msprobe.capture.targets.OptimizerSteps`).

While a step runs, the calls made by it belong to the region ``optimizer`` of the hierarchy file, those of its closure
do not. Steps are seen through torch's hooks for all optimizers; nothing is attached to an optimizer.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch.autograd import profiler
from torch.optim import optimizer as hooks

from msprobe.capture.session import OPTIMIZER
from msprobe.capture.torch import private
from msprobe.capture.torch.context import Context
from msprobe.capture.torch.optimizers.optimizer_steps import Scaling, TorchStep
from msprobe.capture.torch.optimizers.parameter_names import ParameterNames
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt, guarded

_without_functions = private.without_functions
# The name of the profiler's range around a step; its end is the only sign of a step that raised.
_RANGE = "Optimizer.step#"


class _Running(threading.local):
    def __init__(self) -> None:
        self.steps: list[TorchStep] = []
        self.scalings: list[Scaling] = []


class OptimizerRecorder:
    """Watches all optimizers between attach and detach."""

    # An import may happen in a hook of a step, while torch goes through the hooks: none may come or go then.
    stays_for_imports = True

    def __init__(self, context: Context) -> None:
        self.models = context.models
        self.thread = context.thread
        self.session = context.session
        self.statistics = context.calls.statistics
        self.targets = context.targets
        self._regions = context.level == "mix"
        self._running = _Running()
        self._handles: list[Any] = []
        self._names = ParameterNames()
        self._patches = patches = Patches()
        patches.add(profiler.record_function, "__exit__", self._ending)
        scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
        patches.add(scaler, "step", self._scaled)
        patches.add(scaler, "unscale_", self._unscaled)

    def attach(self) -> None:
        """Watch optimizers from now on."""
        if self._handles:
            return
        self._running = _Running()
        self.learn()
        self.resume()

    def learn(self) -> None:
        """The recorder has other models: their parameters have names now."""
        self._names.learn(self.models.given, self.models.leads)

    def detach(self) -> None:
        """Take all hooks away."""
        self.pause()
        self._names.forget()
        for step in reversed(self._running.steps):
            self._leave_region(step)
        self._running = _Running()

    def resume(self) -> None:
        """The hooks are back; a step that was running goes on."""
        self._handles = [
            hooks.register_optimizer_step_pre_hook(self._before),
            hooks.register_optimizer_step_post_hook(self._after),
        ]
        self._patches.attach()

    def pause(self) -> None:
        """A compiled region runs, maybe inside of a step: what the compiler could see is taken away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._patches.detach()

    # ------------------------------------------------------------ the three moments of a step

    def join(self, optimizer: Any, stack: Any) -> None:
        """Recording has begun inside the step of ``optimizer``, in its closure: nothing is updated yet.

        ``stack``: from where the step was called. Who calls this says by :meth:`leave` that the step is over: the
        end of the profiler's range is not seen where the replacement came after its beginning.
        """
        if not self._handles or any(step.optimizer is optimizer for step in self._running.steps):
            return
        step = self._new_step(optimizer, self.session.thread.region)
        step.joined = True
        step.stack = stack
        self._running.steps.append(step)
        with _without_functions(), torch.no_grad():
            self.session.guard(self._begin, step, (), {"closure": True})

    def leave(self, optimizer: Any, error: BaseException | None) -> None:
        """The step that was joined is over; ``error``: what ended it."""
        running = self._running.steps
        if running and running[-1].joined and running[-1].optimizer is optimizer:
            step = running.pop()
            self._leave_region(step)
            if not step.done:
                with _without_functions(), torch.no_grad():
                    self.session.guard(self._finish, step, error)

    def closure_ended(self, optimizer: Any) -> None:
        """The closure of a step that was joined has returned: what comes now is the optimizer's work."""
        running = self._running.steps
        if self._regions and running and running[-1].joined and running[-1].optimizer is optimizer:
            self.session.thread.region = OPTIMIZER

    def _outside_region(self, step: TorchStep, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments of a step whose closure counts as what it is: passes of the model, not the work of a step."""
        place = _closure_place(args, kwargs)
        if place is None:
            return None
        closure = kwargs["closure"] if place == "closure" else args[1]
        if not callable(closure):
            return None
        thread = self.session.thread

        @functools.wraps(closure, updated=())
        def outside(*given: Any, **named: Any) -> Any:
            before = attempt(thread.enter_region, step.region_before)
            try:
                return closure(*given, **named)
            finally:
                attempt(thread.enter_region, before)

        if place == "closure":
            return args, {**kwargs, "closure": outside}
        return (args[0], outside, *args[2:]), kwargs

    @guarded
    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        session = self.session
        thread = session.thread
        running = self._running.steps
        # A step that calls the step of its base class is one step.
        nested = any(step.optimizer is optimizer for step in running)
        step = self._new_step(optimizer, thread.region)
        running.append(step)
        if session.recording and not thread.muted and not nested:
            with _without_functions(), torch.no_grad():
                session.guard(self._begin, step, args, kwargs)
        if not self._regions:
            return None
        thread.region = OPTIMIZER
        answer: tuple[Any, Any] | None = session.guard(self._outside_region, step, args, kwargs)
        return answer

    @guarded
    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        running = self._running.steps
        if running and running[-1].optimizer is optimizer:
            with _without_functions(), torch.no_grad():
                self.session.guard(self._finish, running[-1], None)

    def _ending(self, original: Any) -> Any:
        @functools.wraps(original)
        def __exit__(range_: Any, *error: Any) -> Any:
            try:
                return original(range_, *error)
            finally:
                attempt(self._range_ended, range_, error[1] if len(error) > 1 else None)

        return __exit__

    def _range_ended(self, range_: Any, error: BaseException | None) -> None:
        running = self._running.steps
        if not running or not str(range_.name).startswith(_RANGE):
            return
        step = running.pop()
        self._leave_region(step)
        if not step.done:
            with _without_functions(), torch.no_grad():
                self.session.guard(self._finish, step, error)
        if not running:
            self.targets.optimizers.leave_step()

    def _leave_region(self, step: TorchStep) -> None:
        if self._regions:
            self.session.thread.region = step.region_before

    # ------------------------------------------------------------ whoever is notified

    def _begin(self, step: TorchStep, args: Any, kwargs: Any) -> None:
        optimizer = step.optimizer
        self.statistics.forget_all()
        step.has_closure = _closure_place(args, kwargs) is not None
        scalings = self._running.scalings
        if scalings and scalings[-1].optimizer is optimizer:
            step.scaling = scalings[-1]
            step.scaling.stepped = True
        self._begin_target(step)

    def _begin_target(self, step: TorchStep) -> None:
        if self.thread.is_here():
            key = f"Optimizer.{type(step.optimizer).__name__}"
            step.target_step = self.targets.optimizers.begin_step(key, step)

    def _finish(self, step: TorchStep, error: BaseException | None) -> None:
        step.done = True
        # Fused steps, and those that write through ``.data`` or in kernels of their own, do not count as writes for
        # torch, and may write more than what the parameters and states of this optimizer are.
        self.statistics.forget_all()
        begun, step.target_step = step.target_step, None
        if begun is not None:
            self.targets.optimizers.end_step(begun, error)

    def _new_step(self, optimizer: Any, region: str | None) -> TorchStep:
        return TorchStep(optimizer, self._names, region, self.statistics.invalidate)

    # ------------------------------------------------------------ scaled gradients

    def _scaled(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            scaling = attempt(self._begin_scaling, scaler, optimizer)
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                attempt(self._end_scaling, scaling)
            attempt(self._look_if_skipped, scaling)
            return result

        return step

    def _begin_scaling(self, scaler: Any, optimizer: Any) -> Scaling:
        scaling = Scaling(scaler, optimizer)
        self._running.scalings.append(scaling)
        return scaling

    def _end_scaling(self, scaling: Scaling | None) -> None:
        if scaling in self._running.scalings:
            self._running.scalings.remove(scaling)

    def _look_if_skipped(self, scaling: Scaling | None) -> None:
        if scaling is None or scaling.stepped or not self.session.recording or self.session.thread.muted:
            return
        with _without_functions(), torch.no_grad():
            self.session.guard(self._skipped, scaling)

    def skip_scaled(self, optimizer: Any) -> None:
        """A scaler takes no step of ``optimizer`` now: record it at once, as the training step ends by it."""
        scaling = self._running.scalings[-1] if self._running.scalings else None
        if scaling is None or scaling.stepped or scaling.optimizer is not optimizer:
            return
        if self.session.recording and not self.session.thread.muted:
            scaling.stepped = True
            with _without_functions(), torch.no_grad():
                self.session.guard(self._skipped, scaling)

    def _skipped(self, scaling: Scaling) -> None:
        """The scaler found an infinity or NaN in the gradients, and took no step."""
        step = self._new_step(scaling.optimizer, None)
        step.scaling = scaling
        step.is_skipped = True
        self._begin_target(step)
        if step.target_step is not None:
            self.targets.optimizers.skip_step(step.target_step)
        self.targets.optimizers.leave_step()

    def _unscaled(self, original: Any) -> Any:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(scaler, optimizer, *args, **kwargs)
            finally:
                attempt(self._unscaled_by, optimizer)

        return unscale_

    def _unscaled_by(self, optimizer: Any) -> None:
        if self.session.recording:
            with _without_functions():
                self.session.guard(self._forget_gradients, optimizer)

    def _forget_gradients(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter.grad, torch.Tensor):
                    self.statistics.invalidate(parameter.grad)


def _closure_place(args: Any, kwargs: Any) -> str | None:
    """Where the arguments of a step, its optimizer first, have a closure: "closure", "1" or None."""
    if kwargs.get("closure") is not None:
        return "closure"
    return "1" if len(args) > 1 and args[1] is not None else None

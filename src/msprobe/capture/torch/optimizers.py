"""Every optimizer step, as ``Optimizer.{Class}.{n}.forward``: what it was given and what it made of it.

``input_kwargs`` holds for each parameter its weight, its gradient (after any reduction over ranks, as the
optimizer sees it) and the optimizer's state of it before the step; ``output`` weight and state after it. Keys
of our own: ``class``, ``groups`` (hyper-parameters and the names of the parameters), ``grad_scaler``,
``closure``.

While a step runs, the calls made by it belong to the region ``optimizer`` of the hierarchy file, those of its closure
do not. Steps are seen through torch's hooks for all optimizers; nothing is attached to an optimizer.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import profiler
from torch.optim import optimizer as hooks

from msprobe.capture.session import OPTIMIZER
from msprobe.capture.torch import private
from msprobe.capture.torch.parameter_names import ParameterNames
from msprobe.capture.torch.patches import Patches

if TYPE_CHECKING:
    from msprobe.capture.torch.recorder import TorchRecorder

_quiet = private.without_functions
# The name of the profiler's range around a step; its end is the only sign of a step that raised.
_RANGE = "Optimizer.step#"


class _Step:
    """An optimizer step that is running in this thread."""

    def __init__(self, optimizer: Any, region: str | None) -> None:
        self.optimizer = optimizer
        self.region_before = region
        # None: not recorded.
        self.name: str | None = None
        self.done = False
        self.order = 0
        self.stack: Any = None
        self.parent: Any = False
        self.closure = False
        # Recording began inside of it.
        self.joined = False
        self.scaling: _Scaling | None = None
        self.names: list[tuple[str, torch.Tensor]] = []
        self.before: dict[str, Any] = {}
        self.groups: list[dict[str, Any]] = []


class _Scaling:
    """A ``GradScaler.step`` that is running in this thread."""

    def __init__(self, scaler: Any, optimizer: Any) -> None:
        self.scaler = scaler
        self.optimizer = optimizer
        self.stepped = False


class _Running(threading.local):
    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.scalings: list[_Scaling] = []


class OptimizerRecorder:
    """Watches all optimizers between attach and detach."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self.recorder = recorder
        self.session = recorder.session
        self.calls = recorder.calls
        settings = recorder.settings
        self._asked = settings.optimizer is True
        self._wanted = settings.optimizer is not False
        self._regions = settings.level == "mix"
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
        self._names.learn(self.recorder.models, self.recorder.leads)

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
        step = _Step(optimizer, self.session.thread.region)
        step.joined = True
        step.stack = stack
        self._running.steps.append(step)
        with _quiet(), torch.no_grad():
            self.session.guard(self._begin, step, (), {"closure": True})

    def leave(self, optimizer: Any, error: BaseException | None) -> None:
        """The step that was joined is over; ``error``: what ended it."""
        running = self._running.steps
        if running and running[-1].joined and running[-1].optimizer is optimizer:
            step = running.pop()
            self._leave_region(step)
            if not step.done:
                with _quiet(), torch.no_grad():
                    self.session.guard(self._finish, step, error)

    def closure_ended(self, optimizer: Any) -> None:
        """The closure of a step that was joined has returned: what comes now is the optimizer's work."""
        running = self._running.steps
        if self._regions and running and running[-1].joined and running[-1].optimizer is optimizer:
            self.session.thread.region = OPTIMIZER

    def _outside_region(self, step: _Step, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
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
            before, thread.region = thread.region, step.region_before
            try:
                return closure(*given, **named)
            finally:
                thread.region = before

        if place == "closure":
            return args, {**kwargs, "closure": outside}
        return (args[0], outside, *args[2:]), kwargs

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        session = self.session
        thread = session.thread
        running = self._running.steps
        # A step that calls the step of its base class is one step.
        nested = any(step.optimizer is optimizer for step in running)
        step = _Step(optimizer, thread.region)
        running.append(step)
        if session.recording and not thread.muted and not nested:
            with _quiet(), torch.no_grad():
                session.guard(self._begin, step, args, kwargs)
        if not self._regions:
            return None
        thread.region = OPTIMIZER
        found: tuple[Any, Any] | None = session.guard(self._outside_region, step, args, kwargs)
        return found

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        running = self._running.steps
        if running and running[-1].optimizer is optimizer:
            with _quiet(), torch.no_grad():
                self.session.guard(self._finish, running[-1], None)

    def _ending(self, original: Any) -> Any:
        @functools.wraps(original)
        def __exit__(range_: Any, *error: Any) -> Any:
            result = original(range_, *error)
            running = self._running.steps
            if running and str(range_.name).startswith(_RANGE):
                step = running.pop()
                self._leave_region(step)
                if not step.done:
                    with _quiet(), torch.no_grad():
                        self.session.guard(self._finish, step, error[1] if len(error) > 1 else None)
            return result

        return __exit__

    def _leave_region(self, step: _Step) -> None:
        if self._regions:
            self.session.thread.region = step.region_before

    # ------------------------------------------------------------ the record

    def _begin(self, step: _Step, args: Any, kwargs: Any) -> None:
        optimizer = step.optimizer
        self.calls.statistics.forget_all()
        step.closure = _closure_place(args, kwargs) is not None
        scalings = self._running.scalings
        if scalings and scalings[-1].optimizer is optimizer:
            step.scaling = scalings[-1]
            step.scaling.stepped = True
        step.names = list(self._names.of(optimizer))
        if not self._begin_record(step):
            return
        if self.calls.input:
            step.before = self._describe(step, f"{step.name}.kwargs", gradients=not step.closure)
        step.groups = self._groups(step)

    def _begin_record(self, step: _Step) -> bool:
        if not self._wanted or not self.recorder.thread.is_here():
            return False
        session = self.session
        key = f"Optimizer.{type(step.optimizer).__name__}"
        name = f"{key}.{session.number(key)}.forward"
        if not self._asked and session.filter is not None and not session.filter.wants_call(name):
            return False
        step.name = name
        step.order = session.next_order()
        if step.stack is None:
            # Without this, _begin, guard and the hook.
            step.stack = session.stacks.here(4)
        if self._regions:
            thread = session.thread
            region, thread.region = thread.region, OPTIMIZER
            # One that was joined is met in the pass of a module, which runs inside of it.
            modules, thread.modules = thread.modules, [] if step.joined else thread.modules
            step.parent = session.parent()
            thread.region, thread.modules = region, modules
        return True

    def _finish(self, step: _Step, error: BaseException | None) -> None:
        step.done = True
        # Fused steps, and those that write through ``.data`` or in kernels of their own, do not count as writes for
        # torch, and may write more than what the parameters and states of this optimizer are.
        self.calls.statistics.forget_all()
        if step.name is None:
            return
        calls = self.calls
        after = [self._describe(step, f"{step.name}.output.0")] if calls.output and error is None else [None]
        if step.closure and calls.input and error is None:
            # The gradients that counted were computed in the step.
            for name, parameter in step.names:
                if parameter.grad is not None:
                    self._invalidate(parameter.grad)
                    described = self._value(step, parameter.grad, f"{step.name}.kwargs.{name}.grad")
                    step.before[name]["grad"] = described
        extra: dict[str, Any] = {}
        if step.closure:
            extra["closure"] = True
        if step.scaling is not None:
            extra["grad_scaler"] = self._scaler(step.scaling)
        if error is not None:
            extra["error"] = f"{type(error).__name__}: {error}"[:2000]
        self._put(step, after, extra)

    def _put(self, step: _Step, after: list[Any], extra: dict[str, Any]) -> None:
        assert step.name is not None
        calls = self.calls
        tree: dict[str, Any] = {}
        if calls.input:
            tree["input_args"] = []
            tree["input_kwargs"] = step.before
        if calls.output:
            tree["output"] = after
        kind = type(step.optimizer)
        tree["class"] = f"{kind.__module__}.{kind.__qualname__}"
        tree["groups"] = step.groups
        tree.update(extra)
        tree["msprobe"] = {"order": step.order}
        if step.stack.source:
            tree["msprobe"]["source"] = step.stack.source
        if calls.overflow and not calls.keeper.overflowed(step.name, tree):
            return
        self.session.put(step.name, tree, step.stack, step.parent)

    # ------------------------------------------------------------ what is said of parameters and groups

    def _describe(self, step: _Step, path: str, gradients: bool | None = None) -> dict[str, Any]:
        """Weight and state of each parameter; ``gradients``: None leaves them out, False leaves their place
        empty.
        """
        optimizer = step.optimizer
        described: dict[str, Any] = {}
        for name, parameter in step.names:
            found: dict[str, Any] = {"weight": self._value(step, parameter, f"{path}.{name}.weight")}
            if gradients is not None:
                gradient = parameter.grad if gradients else None
                if gradient is not None:
                    # Reduction over ranks and unscaling write gradients without counting as writes.
                    self._invalidate(gradient)
                    found["grad"] = self._value(step, gradient, f"{path}.{name}.grad")
                else:
                    found["grad"] = None
            for key, value in _state_of(optimizer, parameter).items():
                found[str(key)] = self._value(step, value, f"{path}.{name}.{key}")
            described[name] = found
        return described

    def _value(self, step: _Step, value: Any, path: str) -> Any:
        session, calls = self.session, self.calls
        # Weights and moments are many times what calls hold: whole ones only when they were asked for.
        saved = (self._asked and session.saves_all) or (session.saves_some and session.saves(step.name or ""))
        if saved:
            return calls.describer.describe_kept(value, path, calls.keeper.keep)
        return calls.describer.describe(value)

    def _groups(self, step: _Step) -> list[dict[str, Any]]:
        names = iter(step.names)
        groups: list[dict[str, Any]] = []
        for group in step.optimizer.param_groups:
            found: dict[str, Any] = {"params": [next(names)[0] for _ in group["params"]]}
            for key, value in group.items():
                if key not in ("params", "param_names"):
                    found[str(key)] = self.calls.describer.describe(value)
            groups.append(found)
        return groups

    def _invalidate(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self.calls.statistics.invalidate(value)

    # ------------------------------------------------------------ scaled gradients

    def _scaled(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            scalings = self._running.scalings
            scaling = _Scaling(scaler, optimizer)
            scalings.append(scaling)
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                scalings.remove(scaling)
            if not scaling.stepped and self.session.recording and not self.session.thread.muted:
                with _quiet(), torch.no_grad():
                    self.session.guard(self._skipped, scaling)
            return result

        return step

    def _skipped(self, scaling: _Scaling) -> None:
        """The scaler found an infinity or NaN in the gradients, and took no step."""
        step = _Step(scaling.optimizer, None)
        step.names = list(self._names.of(scaling.optimizer))
        if not self._begin_record(step):
            return
        if self.calls.input:
            step.before = self._describe(step, f"{step.name}.kwargs", gradients=True)
        step.groups = self._groups(step)
        self._put(step, [None], {"skipped": True, "grad_scaler": self._scaler(scaling)})

    def _unscaled(self, original: Any) -> Any:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, optimizer, *args, **kwargs)
            if self.session.recording:
                with _quiet():
                    self.session.guard(self._forget_gradients, optimizer)
            return result

        return unscale_

    def _forget_gradients(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._invalidate(parameter.grad)

    def _scaler(self, scaling: _Scaling) -> dict[str, Any]:
        scaler, optimizer = scaling.scaler, scaling.optimizer
        described: dict[str, Any] = {}
        scale = getattr(scaler, "_scale", None)
        if scale is not None:
            self._invalidate(scale)
            described["scale"] = self.calls.describer.describe(scale)
        states = getattr(scaler, "_per_optimizer_states", {})
        found = states.get(id(optimizer), {}).get("found_inf_per_device", {})
        for device, value in found.items():
            self._invalidate(value)
            described.setdefault("found_inf", {})[str(device)] = self.calls.describer.describe(value)
        return described


def _closure_place(args: Any, kwargs: Any) -> str | None:
    """Where the arguments of a step, its optimizer first, have a closure: "closure", "1" or None."""
    if kwargs.get("closure") is not None:
        return "closure"
    return "1" if len(args) > 1 and args[1] is not None else None


def _state_of(optimizer: Any, parameter: torch.Tensor) -> dict[Any, Any]:
    # Not by index: looking up what is not there would make it.
    state = optimizer.state.get(parameter)
    return state if isinstance(state, dict) else {}

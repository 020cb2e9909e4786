"""What the dump says of an optimizer step: ``Optimizer.{Class}.{n}.forward``.

``input_kwargs`` holds for each parameter its weight, its gradient (after any reduction over ranks, as the
optimizer sees it) and the optimizer's state of it before the step; ``output`` weight and state after it. Keys
of our own: ``class``, ``groups`` (hyper-parameters and the names of the parameters), ``grad_scaler``,
``closure``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from msprobe.capture.events import OptimizerStep
from msprobe.capture.routes import Way
from msprobe.capture.session import OPTIMIZER
from msprobe.capture.torch.calls import CallRecorder


class Step:
    """An optimizer step that is running in this thread."""

    def __init__(self, optimizer: Any, region: str | None) -> None:
        self.optimizer = optimizer
        self.region_before = region
        # None: not dumped.
        self.name: str | None = None
        # The listeners that are told of it, and what they are told.
        self.ways: Sequence[Way] = ()
        self.event: OptimizerStep | None = None
        self.done = False
        self.order = 0
        self.stack: Any = None
        self.parent: Any = False
        self.closure = False
        # Recording began inside of it.
        self.joined = False
        self.scaling: Scaling | None = None
        self.names: list[tuple[str, torch.Tensor]] = []
        self.before: dict[str, Any] = {}
        self.groups: list[dict[str, Any]] = []


class Scaling:
    """A ``GradScaler.step`` that is running in this thread."""

    def __init__(self, scaler: Any, optimizer: Any) -> None:
        self.scaler = scaler
        self.optimizer = optimizer
        self.stepped = False


class OptimizerRecords:
    """Writes the records of optimizer steps."""

    def __init__(self, calls: CallRecorder) -> None:
        self.calls = calls
        self.session = calls.session
        settings = calls.session.settings
        self._asked = settings.optimizer is True
        self._wanted = settings.optimizer is not False
        self._regions = settings.level == "mix"

    @property
    def are_wanted(self) -> bool:
        """True if steps that happen now are dumped."""
        return self._wanted and self.session.is_dumping

    def begin(self, step: Step, key: str, number: int, gradients: bool, skip: int) -> bool:
        """Before the step. ``gradients`` False: they are computed in it. False if the filters do not want it.

        ``skip``: how many frames of ours lie between this and the hook.
        """
        if not self._begin(step, f"{key}.{number}.forward", skip + 1):
            return False
        if self.calls.input:
            step.before = self._describe(step, f"{step.name}.kwargs", gradients)
        step.groups = self._groups(step)
        return True

    def _begin(self, step: Step, name: str, skip: int) -> bool:
        session = self.session
        if not self._asked and session.filter is not None and not session.filter.wants_call(name):
            return False
        step.name = name
        step.order = session.next_order()
        if step.stack is None:
            # Without this, who calls it, and those.
            step.stack = session.stacks.here(skip + 1)
        if self._regions:
            thread = session.thread
            region, thread.region = thread.region, OPTIMIZER
            # One that was joined is met in the pass of a module, which runs inside of it.
            modules, thread.modules = thread.modules, [] if step.joined else thread.modules
            step.parent = session.parent()
            thread.region, thread.modules = region, modules
        return True

    def finish(self, step: Step, error: BaseException | None) -> None:
        """After the step; ``error``: what it raised."""
        calls = self.calls
        after = [self._describe(step, f"{step.name}.output.0")] if calls.output and error is None else [None]
        if step.closure and calls.input and error is None:
            # The gradients that counted were computed in the step.
            for name, parameter in step.names:
                if parameter.grad is not None:
                    self.invalidate(parameter.grad)
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

    def skipped(self, step: Step, scaling: Scaling) -> None:
        """A step that has begun was not taken."""
        self._put(step, [None], {"skipped": True, "grad_scaler": self._scaler(scaling)})

    def _put(self, step: Step, after: list[Any], extra: dict[str, Any]) -> None:
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

    def _describe(self, step: Step, path: str, gradients: bool | None = None) -> dict[str, Any]:
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
                    self.invalidate(gradient)
                    found["grad"] = self._value(step, gradient, f"{path}.{name}.grad")
                else:
                    found["grad"] = None
            for key, value in state_of(optimizer, parameter).items():
                found[str(key)] = self._value(step, value, f"{path}.{name}.{key}")
            described[name] = found
        return described

    def _value(self, step: Step, value: Any, path: str) -> Any:
        session, calls = self.session, self.calls
        # Weights and moments are many times what calls hold: whole ones only when they were asked for.
        saved = (self._asked and session.saves_all) or (session.saves_some and session.saves(step.name or ""))
        if saved:
            return calls.describer.describe_kept(value, path, calls.keeper.keep)
        return calls.describer.describe(value)

    def _groups(self, step: Step) -> list[dict[str, Any]]:
        names = iter(step.names)
        groups: list[dict[str, Any]] = []
        for group in step.optimizer.param_groups:
            found: dict[str, Any] = {"params": [next(names)[0] for _ in group["params"]]}
            for key, value in group.items():
                if key not in ("params", "param_names"):
                    found[str(key)] = self.calls.describer.describe(value)
            groups.append(found)
        return groups

    def invalidate(self, value: Any) -> None:
        """What is known of a tensor is not true any more."""
        if isinstance(value, torch.Tensor):
            self.calls.statistics.invalidate(value)

    def _scaler(self, scaling: Scaling) -> dict[str, Any]:
        scaler, optimizer = scaling.scaler, scaling.optimizer
        described: dict[str, Any] = {}
        scale = getattr(scaler, "_scale", None)
        if scale is not None:
            self.invalidate(scale)
            described["scale"] = self.calls.describer.describe(scale)
        states = getattr(scaler, "_per_optimizer_states", {})
        found = states.get(id(optimizer), {}).get("found_inf_per_device", {})
        for device, value in found.items():
            self.invalidate(value)
            described.setdefault("found_inf", {})[str(device)] = self.calls.describer.describe(value)
        return described


def state_of(optimizer: Any, parameter: torch.Tensor) -> dict[Any, Any]:
    """What the optimizer keeps of a parameter."""
    # Not by index: looking up what is not there would make it.
    state = optimizer.state.get(parameter)
    return state if isinstance(state, dict) else {}

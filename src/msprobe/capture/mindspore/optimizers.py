"""Every step of an optimizer in the dynamic graph, as ``Optimizer.{Class}.{n}.forward``: what it was given and what it
made of it, in the form of PyTorch's (:mod:`msprobe.capture.torch.optimizers`).

A step is a call of the optimizer, ``optimizer(gradients)``, wherever it is made: in the program's loop, in
``TrainOneStepCell``, in ``Model.train``. ``input_kwargs`` holds for each parameter its weight, the gradient that is
given and the optimizer's state of it; ``output`` weight and state after the step. Settings are those of
:mod:`msprobe.capture.mindspore.optimizer_settings`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import mindspore
from mindspore import nn

from msprobe.capture.mindspore.optimizer_settings import counters_of, groups_of, states_of
from msprobe.capture.mindspore.patches import Patches
from msprobe.capture.mindspore.surface import Surface
from msprobe.capture.session import OPTIMIZER
from msprobe.capture.units import UnitRecorder


class _Step:
    """A step that is recorded."""

    __slots__ = ("before", "counters", "groups", "name", "names", "order", "parent", "stack")

    def __init__(self, name: str, names: list[tuple[str, Any]], order: int, stack: Any, parent: Any) -> None:
        self.name = name
        self.names = names
        self.order = order
        self.stack = stack
        self.parent = parent
        self.before: dict[str, Any] = {}
        self.groups: list[dict[str, Any]] = []
        self.counters: dict[str, Any] = {}


class OptimizerRecorder:
    """Watches all optimizers between attach and detach."""

    def __init__(
        self, units: UnitRecorder, names: Surface, end_backward: Callable[[], None], read: Callable[[], None]
    ) -> None:
        self.units = units
        self.session = units.session
        self.names = names
        # Tells that a backward pass is over; reads what waits to be read.
        self._end_backward = end_backward
        self._read = read
        settings = self.session.settings
        self._asked = settings.optimizer is True
        self._wanted = settings.optimizer is not False and settings.level in ("L0", "L1", "mix")
        self._regions = settings.level == "mix"
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}
        # Optimizers whose step runs: one that calls the step of its base class takes one step.
        self._running: list[int] = []
        self._patches = Patches()
        for kind in _optimizer_classes() if self._wanted else ():
            self._patches.add(kind, "__call__", self._recorded)

    def learn(self, model: Any) -> None:
        """Parameters of this model, or these, are called by the path of their cell."""
        self._known.clear()
        several = isinstance(model, (list, tuple))
        for index, root in enumerate(model if several else [model]):
            lead = f"{index}." if several and len(model) > 1 else ""
            for path, cell in self.names.modules_of(root) if root is not None else ():
                if isinstance(cell, _optimizer_classes()):
                    continue
                for key, parameter in self.names.own_parameters(cell):
                    # A tuple of parameters, as `TrainOneStepCell` holds one, is found under MindSpore's own names.
                    if "." not in key:
                        name = f"{lead}{path}.{key}" if path else f"{lead}{key}"
                        self._known.setdefault(id(parameter), (weakref.ref(parameter), name))

    def forget(self) -> None:
        """Let go of the model."""
        self._known.clear()
        self._running.clear()

    def attach(self) -> None:
        """Watch from now on."""
        self._patches.attach()

    def detach(self) -> None:
        """Leave the classes as they were."""
        self._patches.detach()

    # ------------------------------------------------------------ a step

    def _recorded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session, running = self.session, self._running

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            thread = session.thread
            if thread.muted or not session.recording or id(optimizer) in running:
                return original(optimizer, *args, **kwargs)
            begun = self._quietly(self._begin, optimizer, args, kwargs)
            region = thread.region
            if self._regions:
                thread.region = OPTIMIZER
            running.append(id(optimizer))
            try:
                result = original(optimizer, *args, **kwargs)
            except BaseException as error:
                if begun is not None:
                    self._quietly(self._finish, optimizer, begun, error)
                raise
            finally:
                thread.region = region
                if id(optimizer) in running:
                    running.remove(id(optimizer))
            if begun is not None and session.recording:
                self._quietly(self._finish, optimizer, begun, None)
            return result

        return step

    def _quietly(self, work: Callable[..., Any], *args: Any) -> Any:
        """What is done for the record is not recorded, and no part of the graph of gradients."""
        thread = self.session.thread
        thread.muted += 1
        try:
            with mindspore._no_grad():
                return self.session.guard(work, *args)
        finally:
            thread.muted -= 1

    def _begin(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Step | None:
        session, units = self.session, self.units
        if not units.forward:
            return None
        key = f"Optimizer.{type(optimizer).__name__}"
        name = f"{key}.{session.number(key)}.forward"
        if not self._asked and units.filter is not None and not units.filter.wants_call(name):
            return None
        # Its record comes behind what the backward pass has brought.
        self._end_backward()
        region = session.thread.region
        if self._regions:
            session.thread.region = OPTIMIZER
        try:
            parent = session.parent() if session.with_construct else False
        finally:
            session.thread.region = region
        # Without this, guard, _quietly and what takes the place of the call.
        step = _Step(name, self._names_of(optimizer), session.next_order(), session.stacks.here(4), parent)
        if units.input:
            gradients = args[0] if args else kwargs.get("gradients", kwargs.get("grads"))
            step.before = self._describe(step, optimizer, f"{name}.kwargs", _in_order(gradients))
        describe = units.describer.describe
        own_names = [own for own, _ in step.names]
        step.groups = [
            {"params": [own_names[place] for place in places], **{word: describe(value) for word, value in own.items()}}
            for places, own in groups_of(optimizer)
        ]
        step.counters = {word: describe(value) for word, value in counters_of(optimizer).items()}
        # A step may write to the gradients that it is given.
        self._read()
        return step

    def _finish(self, optimizer: Any, step: _Step, error: BaseException | None) -> None:
        units = self.units
        tree: dict[str, Any] = {}
        if units.input:
            tree["input_args"] = []
            tree["input_kwargs"] = step.before
        if units.output:
            tree["output"] = [None if error else self._describe(step, optimizer, f"{step.name}.output.0")]
        kind = type(optimizer)
        tree["class"] = f"{kind.__module__}.{kind.__qualname__}"
        tree["groups"] = step.groups
        if step.counters:
            tree["state"] = step.counters
        if error is not None:
            tree["error"] = f"{type(error).__name__}: {error}"[:2000]
        tree["msprobe"] = {"order": step.order}
        if step.stack.source:
            tree["msprobe"]["source"] = step.stack.source
        units.put(step.name, tree, step.stack, step.parent)

    # ------------------------------------------------------------ what is said of parameters

    def _names_of(self, optimizer: Any) -> list[tuple[str, Any]]:
        """Name and parameter, in the optimizer's order: the path in the model, or else MindSpore's own name. No name
        comes twice.
        """
        found: list[tuple[str, Any]] = []
        used: set[str] = set()
        for place, parameter in enumerate(optimizer.parameters):
            known = self._known.get(id(parameter))
            name = known[1] if known is not None and known[0]() is parameter else str(parameter.name)
            if name in used:
                name = f"p{place}"
            used.add(name)
            found.append((name, parameter))
        return found

    def _describe(
        self, step: _Step, optimizer: Any, path: str, gradients: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Weight and state of each parameter; ``gradients``: None leaves them out."""
        described: dict[str, Any] = {}
        states = states_of(optimizer)
        for place, (name, parameter) in enumerate(step.names):
            found: dict[str, Any] = {"weight": self._value(step, parameter, f"{path}.{name}.weight")}
            if gradients is not None:
                gradient = gradients[place] if place < len(gradients) else None
                found["grad"] = None if gradient is None else self._value(step, gradient, f"{path}.{name}.grad")
            for word, values in states.items():
                if place in values:
                    found[word] = self._value(step, values[place], f"{path}.{name}.{word}")
            described[name] = found
        return described

    def _value(self, step: _Step, value: Any, path: str) -> Any:
        # Weights and moments are many times what calls hold: whole ones only when they were asked for.
        session, describer = self.session, self.units.describer
        if (self._asked and session.saves_all) or (session.saves_some and session.saves(step.name)):
            return describer.describe_kept(value, path, self.units.tensors.keep)
        return describer.describe(value)


def _in_order(gradients: Any) -> Sequence[Any]:
    return gradients if isinstance(gradients, (tuple, list)) else [gradients]


@functools.cache
def _optimizer_classes() -> tuple[type, ...]:
    """The base classes of optimizers: of ``mindspore.nn``, and of ``mindspore.mint`` and the experimental ones."""
    kinds: list[type] = [nn.Optimizer]
    try:
        from mindspore.experimental.optim import Optimizer
    except ImportError:
        return tuple(kinds)
    return (*kinds, Optimizer)

"""Every step of an optimizer in the dynamic graph is noticed, and reported as ``Optimizer.{Class}.{n}.forward``
(:class:`msprobe.capture.targets.OptimizerSteps`).

A step is a call of the optimizer, ``optimizer(gradients)``, wherever it is made: in the program's loop, in
``TrainOneStepCell``, in ``Model.train``. Gradients are those that it is given; settings and states those of
:mod:`msprobe.capture.mindspore.optimizers.optimizer_settings`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import mindspore
from mindspore import nn

from msprobe.capture.events import OptimizedParameter
from msprobe.capture.mindspore.calls.surface import Surface
from msprobe.capture.mindspore.optimizers.optimizer_settings import counters_of, groups_of, states_of
from msprobe.capture.mindspore.patches import Patches
from msprobe.capture.optimizer_steps import Describe, NoticedStep
from msprobe.capture.session import OPTIMIZER, Session
from msprobe.capture.targets import Targets

NamesOf = Callable[[Any], list[tuple[str, Any]]]


class _Step(NoticedStep):
    """A step of an optimizer that was given these gradients."""

    def __init__(self, optimizer: Any, names_of: NamesOf, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(optimizer)
        self._names_of = names_of
        given = args[0] if args else kwargs.get("gradients", kwargs.get("grads"))
        self._gradients = given if isinstance(given, (tuple, list)) else [given]

    @cached_property
    def named(self) -> list[tuple[str, Any]]:
        """Name and parameter, in the optimizer's order."""
        return self._names_of(self.optimizer)

    def parameters(self) -> Mapping[str, OptimizedParameter]:
        states, gradients = states_of(self.optimizer), self._gradients
        parameters: dict[str, OptimizedParameter] = {}
        for place, (name, parameter) in enumerate(self.named):
            moments = {word: values[place] for word, values in states.items() if place in values}
            gradient = gradients[place] if place < len(gradients) else None
            parameters[name] = OptimizedParameter(parameter, gradient, moments)
        return parameters

    def groups(self) -> list[dict[str, Any]]:
        names = [name for name, _ in self.named]
        return [{"params": [names[place] for place in places], **own} for places, own in groups_of(self.optimizer)]

    def facts_before(self, describe: Describe) -> dict[str, Any]:
        counters = {word: describe(value) for word, value in counters_of(self.optimizer).items()}
        return {"state": counters} if counters else {}


class OptimizerRecorder:
    """Watches all optimizers between attach and detach."""

    def __init__(self, session: Session, targets: Targets, names: Surface, read: Callable[[], None]) -> None:
        """``read`` reads what waits to be read."""
        self.session = session
        self.targets = targets
        self.names = names
        self._read = read
        self._regions = session.settings.level == "mix"
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}
        # Optimizers whose step runs: one that calls the step of its base class takes one step.
        self._running: list[int] = []
        self._patches = Patches()
        self._is_filled = False

    def learn(self, model: Any) -> None:
        """Parameters of this model, or these, are called by the path of their cell."""
        self._known.clear()
        several = isinstance(model, (list, tuple))
        for index, root in enumerate(model if several else [model]):
            lead = f"{index}." if several and len(model) > 1 else ""
            for path, cell in self.names.modules_of(root) if root is not None else ():
                if isinstance(cell, optimizer_classes()):
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
        if not self._is_filled:
            self._is_filled = True
            for kind in optimizer_classes():
                self._patches.add(kind, "__call__", self._recorded)
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
                    self._quietly(self.targets.optimizers.end_step, begun, error)
                    self.targets.optimizers.leave_step()
                raise
            finally:
                thread.region = region
                if id(optimizer) in running:
                    running.remove(id(optimizer))
            if begun is not None and session.recording:
                self._quietly(self.targets.optimizers.end_step, begun, None)
                self.targets.optimizers.leave_step()
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

    def _begin(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        step = _Step(optimizer, self._names_of, args, kwargs)
        begun = self.targets.optimizers.begin_step(f"Optimizer.{type(optimizer).__name__}", step)
        if begun is not None:
            # A step may write to the gradients that it is given.
            self._read()
        return begun

    def _names_of(self, optimizer: Any) -> list[tuple[str, Any]]:
        """Name and parameter, in the optimizer's order: the path in the model, or else MindSpore's own name. No name
        comes twice.
        """
        names: list[tuple[str, Any]] = []
        used: set[str] = set()
        for place, parameter in enumerate(optimizer.parameters):
            known = self._known.get(id(parameter))
            name = known[1] if known is not None and known[0]() is parameter else str(parameter.name)
            if name in used:
                name = f"p{place}"
            used.add(name)
            names.append((name, parameter))
        return names


@functools.cache
def optimizer_classes() -> tuple[type, ...]:
    """The base classes of optimizers: of ``mindspore.nn``, and of ``mindspore.mint`` and the experimental ones."""
    kinds: list[type] = [nn.Optimizer]
    try:
        from mindspore.experimental.optim import Optimizer
    except ImportError:
        return tuple(kinds)
    return (*kinds, Optimizer)

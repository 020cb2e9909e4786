"""Steps of optimizers, recorded as they happen: ``Optimizer.{Class}.{n}.forward``, in the same form for all frameworks.

``input_kwargs`` holds for each parameter its weight, its gradient (after any reduction over ranks, as the optimizer
sees it) and the optimizer's state of it before the step; ``output`` weight and state after it. Keys of our own:
``class``, ``groups`` (hyper-parameters and the names of the parameters), ``state`` (what is counted for all parameters
together), ``closure``, ``skipped``, ``grad_scaler``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from msprobe.capture.events import OptimizedParameter
from msprobe.capture.session import OPTIMIZER
from msprobe.capture.stacks import CallStack
from msprobe.capture.units import Writer

Describe = Callable[[Any], Any]


class NoticedStep(ABC):
    """A step of an optimizer, as the adapter that has noticed it knows it."""

    # The gradients are computed inside of the step.
    has_closure = False
    # A gradient scaler does not take it: the gradients are not finite.
    is_skipped = False
    # Recording has begun inside of it; and from where it was called, where that is known already.
    joined = False
    stack: CallStack | None = None

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @abstractmethod
    def parameters(self) -> Mapping[str, OptimizedParameter]:
        """All parameters by name, in the optimizer's order, as they are now."""

    @abstractmethod
    def groups(self) -> list[dict[str, Any]]:
        """The settings of each group of parameters, whose names are ``params``."""

    def facts_before(self, describe: Describe) -> dict[str, Any]:
        """What else the record says, of the time before the step."""
        return {"closure": True} if self.has_closure else {}

    def facts_after(self, describe: Describe) -> dict[str, Any]:
        """The same of the time behind it."""
        return {}


class RecordedStep:
    """A step that is recorded, between its beginning and its end."""

    __slots__ = ("before", "entry", "facts", "groups", "order", "parent", "stack", "step")

    def __init__(self, entry: str, step: NoticedStep, order: int, stack: CallStack, parent: Any) -> None:
        self.entry = entry
        self.step = step
        self.order = order
        self.stack = stack
        self.parent = parent
        self.before: dict[str, dict[str, Any]] = {}
        self.groups: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}


def _nothing(*ignored: Any) -> None:
    """Where a framework needs nothing to be done."""


class OptimizerRecords:
    """Writes the records of optimizer steps; see :class:`msprobe.capture.targets.OptimizerSteps`."""

    def __init__(
        self,
        writer: Writer,
        in_hierarchy: bool,
        needs_forward: bool = False,
        end_backward: Callable[[], None] = _nothing,
        forget: Callable[[Any], None] = _nothing,
    ) -> None:
        """``in_hierarchy``: steps have a place in the hierarchy file. ``needs_forward``: they are left out where
        forward records are. ``end_backward`` is called before a step takes its place; ``forget`` before a gradient is
        described, which may have been written to unseen.
        """
        self.writer = writer
        self.session = writer.session
        settings = self.session.settings
        self.is_wanted = settings.optimizer is not False and settings.level in ("L0", "L1", "mix")
        if needs_forward and not writer.forward:
            self.is_wanted = False
        self._asked = settings.optimizer is True
        self._in_hierarchy = in_hierarchy
        self._end_backward = end_backward
        self._forget = forget

    # ------------------------------------------------------------ the moments of a step

    def begin_step(self, key: str, step: NoticedStep, number: int | None = None) -> RecordedStep | None:
        """``number``: the one it has already."""
        if not self.is_wanted:
            return None
        session, writer = self.session, self.writer
        entry = f"{key}.{session.number(key) if number is None else number}.forward"
        if not self._asked and writer.filter is not None and not writer.filter.wants_call(entry):
            return None
        self._end_backward()
        stack = session.stacks.here() if step.stack is None else step.stack
        begun = RecordedStep(entry, step, session.next_order(), stack, self._parent(step))
        if writer.input:
            begun.before = self._described(begun, f"{entry}.kwargs", with_gradients=True)
        describe = writer.describer.describe
        begun.groups = [
            {word: value if word == "params" else describe(value) for word, value in group.items()}
            for group in step.groups()
        ]
        begun.facts = step.facts_before(describe)
        return begun

    def end_step(self, begun: RecordedStep, error: BaseException | None) -> None:
        writer, step = self.writer, begun.step
        after: Any = None
        if error is None and writer.output:
            after = self._described(begun, f"{begun.entry}.output.0", with_gradients=False)
        if error is None and writer.input and step.has_closure:
            # The gradients that counted were computed in the step.
            for name, parameter in step.parameters().items():
                if parameter.gradient is not None:
                    begun.before[name]["grad"] = self._gradient(begun, f"{begun.entry}.kwargs.{name}", parameter)
        facts = {**begun.facts, **step.facts_after(writer.describer.describe)}
        if error is not None:
            facts["error"] = f"{type(error).__name__}: {error}"[:2000]
        self._put(begun, after, facts)

    def skip_step(self, begun: RecordedStep) -> None:
        facts = {**begun.facts, "skipped": True, **begun.step.facts_after(self.writer.describer.describe)}
        self._put(begun, None, facts)

    def leave_step(self) -> None:
        """Nothing has waited for that."""

    def _parent(self, step: NoticedStep) -> Any:
        if not self._in_hierarchy:
            return False
        session, thread = self.session, self.session.thread
        region, modules = thread.region, thread.modules
        if session.settings.level == "mix":
            thread.region = OPTIMIZER
        if step.joined:
            # It is met in the pass of a module, which runs inside of it.
            thread.modules = []
        try:
            return session.parent()
        finally:
            thread.region, thread.modules = region, modules

    def _put(self, begun: RecordedStep, after: Any, facts: Mapping[str, Any]) -> None:
        writer = self.writer
        tree: dict[str, Any] = {}
        if writer.input:
            tree["input_args"] = []
            tree["input_kwargs"] = begun.before
        if writer.output:
            tree["output"] = [after]
        kind = type(begun.step.optimizer)
        tree["class"] = f"{kind.__module__}.{kind.__qualname__}"
        tree["groups"] = begun.groups
        tree.update(facts)
        tree["msprobe"] = Writer.facts_of(writer, begun)
        writer.put(begun.entry, tree, begun.stack, begun.parent)

    # ------------------------------------------------------------ what is said of parameters

    def _described(self, begun: RecordedStep, path: str, with_gradients: bool) -> dict[str, dict[str, Any]]:
        """Weight and state of each parameter, and its gradient, if that is there already."""
        described: dict[str, dict[str, Any]] = {}
        for name, parameter in begun.step.parameters().items():
            place = f"{path}.{name}"
            record = described[name] = {"weight": self._value(begun, parameter.weight, f"{place}.weight")}
            if with_gradients:
                is_there = parameter.gradient is not None and not begun.step.has_closure
                record["grad"] = self._gradient(begun, place, parameter) if is_there else None
            for word, value in parameter.moments.items():
                record[str(word)] = self._value(begun, value, f"{place}.{word}")
        return described

    def _gradient(self, begun: RecordedStep, place: str, parameter: OptimizedParameter) -> Any:
        self._forget(parameter.gradient)
        return self._value(begun, parameter.gradient, f"{place}.grad")

    def _value(self, begun: RecordedStep, value: Any, path: str) -> Any:
        session, writer = self.session, self.writer
        # Weights and moments are many times what calls hold: whole ones only when they were asked for.
        if (self._asked and session.saves_all) or (session.saves_some and session.saves(begun.entry)):
            return writer.describer.describe_kept(value, path, writer.keep)
        return writer.describer.describe(value)

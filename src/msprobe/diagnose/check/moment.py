"""One step of one rank, as most checks see it, and what they need to know of the step before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.history import History
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.statement import finding_at
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.optimizer import gradients_taken, parameters_of
from msprobe.diagnose.steps.parameter_names import joined
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor

Leaf = dict[str, Any]


@dataclass(frozen=True)
class Weight:
    """A parameter as the first pass of its module saw it."""

    event: Event
    leaf: Leaf


@dataclass(frozen=True)
class Earlier:
    """What is kept of a step of a rank: weights at its beginning, and gradients as the optimizer got them.

    ``moved``: parameters of which no gradient was zero: where there are several backward passes, an update may use
    that of one only. ``optimized``: the names that some optimizer had, on any rank. ``changed``: a weight has changed
    since the first step. ``in_training``: models in training mode; ``batch`` distinguishes the first batch from others.
    """

    weights: Mapping[str, Leaf] = field(default_factory=dict)
    gradients: Mapping[str, Leaf] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()
    optimized: frozenset[str] = frozenset()
    changed: bool = False
    in_training: frozenset[str] = frozenset()
    batch: int | None = None


@dataclass
class CheckedStep:
    """One step of a rank; ``before`` is the step before it, if that was recorded; ``last``: none comes after it;
    ``history``: what is remembered of all steps up to this one. ``world``: how many ranks the step has; ``held``: the
    parameters that an optimizer has on any of them.

    ``remembered`` is for what several checks work out.
    """

    step: int | None
    timeline: Timeline
    before: Earlier | None = None
    last: bool = False
    history: History = field(default_factory=History)
    world: int = 1
    held: frozenset[str] = frozenset()
    remembered: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def calls(self) -> list[Event]:
        """The calls of the forward pass, as it was made first."""
        return [event for event in self.timeline if event.direction == "forward" and event.parts.kind == "api"]

    @cached_property
    def makers(self) -> Producers:
        """Who made which tensor."""
        return Producers(self.timeline)

    @cached_property
    def weights(self) -> dict[str, Weight]:
        """The parameters of the modules by full name, as their first forward pass saw them."""
        weights: dict[str, Weight] = {}
        for name, weight in self._seen_weights():
            weights.setdefault(name, weight)
        return weights

    @cached_property
    def weights_move(self) -> bool:
        """True if two forward passes of this step saw different values of one parameter: they are no micro-batches."""
        first: dict[str, Any] = {}
        marks = ((name, fingerprint(weight.leaf)) for name, weight in self._seen_weights())
        return any(mark is not None and first.setdefault(name, mark) != mark for name, mark in marks)

    @cached_property
    def gradients(self) -> dict[str, list[Leaf | None]]:
        """The gradients of each parameter, one for each backward pass; None where none came."""
        return _gradients(self.timeline)

    @cached_property
    def optimizer_steps(self) -> list[Event]:
        """The steps that optimizers took."""
        return [event for event in self.timeline if event.parts.kind == "optimizer"]

    @cached_property
    def at_optimizer(self) -> dict[str, Leaf]:
        """Each parameter's gradient when an optimizer took it (the first one, if there are several)."""
        gradients: dict[str, Leaf] = {}
        for event in self.optimizer_steps:
            for name, gradient in gradients_taken(event).items():
                gradients.setdefault(name, gradient)
        return gradients

    @property
    def has_changed(self) -> bool:
        """True if a weight has changed since the first of the steps that follow each other."""
        if self.before is None:
            return False
        old = self.before.weights
        return self.before.changed or any(
            name in old and fingerprint(weight.leaf) != fingerprint(old[name]) for name, weight in self.weights.items()
        )

    def earlier(self, batch: int | None) -> Earlier:
        """What the next steps need to know of this one, which began with ``batch``."""
        moved = (
            name
            for name, passes in self.gradients.items()
            if passes and all(leaf is not None and leaf.get("Norm") not in (0, 0.0, None) for leaf in passes)
        )
        optimized = {plain_path(name) for event in self.optimizer_steps for name in parameters_of(event)}
        return Earlier(
            weights={name: weight.leaf for name, weight in self.weights.items()},
            gradients=self.at_optimizer,
            moved=frozenset(moved),
            optimized=frozenset(optimized | (self.before.optimized if self.before is not None else set())),
            changed=self.has_changed,
            in_training=frozenset(
                event.parts.path
                for event in self.timeline
                if event.is_module and event.parent is None and event.record.get("training") is not False
            ),
            batch=batch,
        )

    def _seen_weights(self) -> Iterator[tuple[str, Weight]]:
        """The parameters of the modules by full name, for each forward pass."""
        for event in self.timeline:
            if event.is_module and event.direction == "forward":
                parameters = event.record.get("parameters")
                path = plain_path(event.parts.path)
                for name, leaf in parameters.items() if isinstance(parameters, dict) else ():
                    if is_tensor(leaf):
                        yield joined(path, name), Weight(event, leaf)

    def finding(
        self,
        event: Event,
        kind: FindingKind,
        message: str,
        where: str | None = None,
        evidence: dict[str, Any] | None = None,
        **more: Any,
    ) -> Finding:
        """A statement on one record of this step. ``where``: the record's name, if nothing else is said."""
        return finding_at(self.timeline, event, kind, message, where or event.name, self.step, details=evidence, **more)


def _gradients(timeline: Timeline) -> dict[str, list[Leaf | None]]:
    numbered: dict[str, dict[int, Leaf | None]] = {}
    single: dict[str, Leaf | None] = {}
    for event in timeline:
        if event.parts.kind != "parameters":
            continue
        path = plain_path(event.parts.path)
        for name, value in event.record.items():
            if name == "msprobe":
                continue
            leaf = value[0] if isinstance(value, list) and value else value
            full = joined(path, name)
            leaf = leaf if is_tensor(leaf) else None
            if event.parts.number is None:
                single[full] = leaf
            else:
                numbered.setdefault(full, {})[event.parts.number] = leaf
    gradients: dict[str, list[Leaf | None]] = {name: [leaf] for name, leaf in single.items()}
    for name, passes in numbered.items():
        gradients[name] = [passes[number] for number in sorted(passes)]
    return gradients

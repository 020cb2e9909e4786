"""One step of one rank, as most checks see it, and what they need to know of other ranks and of the step before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.exchange import Shared
from msprobe.diagnose.check.history import History
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.statement import finding_at
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.parameter_names import joined
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor

Rank = int | str
Leaf = dict[str, Any]


@dataclass(frozen=True)
class Weight:
    """A parameter as the first pass of its module saw it."""

    event: Event
    leaf: Leaf


@dataclass(frozen=True)
class Earlier:
    """What is kept of a step: weights at its beginning, and gradients as the optimizer got them, by rank.

    ``moved``: parameters of which no gradient was zero: where there are several backward passes, an update may use
    that of one only. ``optimized``: the names that some optimizer had.
    ``changed``: ranks on which a weight has changed since the first step.
    """

    weights: dict[Rank, dict[str, Leaf]]
    gradients: dict[Rank, dict[str, Leaf]]
    moved: dict[Rank, set[str]]
    optimized: frozenset[str]
    changed: frozenset[Rank] = frozenset()

    def of(self, rank: Rank) -> Earlier:
        """What concerns one rank."""
        tables = [
            {rank: table[rank]} if rank in table else {}  # of a rank that began later nothing is known
            for table in (self.weights, self.gradients)
        ]
        moved = {rank: self.moved[rank]} if rank in self.moved else {}
        return Earlier(tables[0], tables[1], moved, self.optimized, self.changed & {rank})

    @classmethod
    def together(cls, ranks: Iterable[Earlier]) -> Earlier:
        """What is known of several ranks, together. Equal tables of copies are kept once."""
        together = cls({}, {}, {}, frozenset())
        shared = Shared()
        for earlier in ranks:
            together.weights.update({rank: shared.alike(table) for rank, table in earlier.weights.items()})
            together.gradients.update({rank: shared.alike(table) for rank, table in earlier.gradients.items()})
            together.moved.update(earlier.moved)
            together = replace(
                together, optimized=together.optimized | earlier.optimized, changed=together.changed | earlier.changed
            )
        return together


@dataclass
class CheckedStep:
    """One step of a rank; ``before`` is the step before it, if that was recorded; ``last``: none comes after it;
    ``history``: what is remembered of all steps up to this one. ``world``: how many ranks the step has; ``held``: the
    parameters that an optimizer has on any of them.

    ``remembered`` is for what several checks work out of a rank: name and rank -> result.
    """

    step: int | None
    timelines: dict[Rank, Timeline]
    before: Earlier | None = None
    last: bool = False
    history: History = field(default_factory=History)
    world: int = 1
    held: frozenset[str] = frozenset()
    remembered: dict[tuple[str, Rank], Any] = field(default_factory=dict)
    _makers: dict[Rank, Producers] = field(default_factory=dict)
    _weights: dict[Rank, dict[str, Weight]] = field(default_factory=dict)
    _gradients: dict[Rank, dict[str, list[Leaf | None]]] = field(default_factory=dict)

    def makers(self, timeline: Timeline) -> Producers:
        """Who made which tensor on a rank."""
        if timeline.rank not in self._makers:
            self._makers[timeline.rank] = Producers(timeline)
        return self._makers[timeline.rank]

    def weights(self, timeline: Timeline) -> dict[str, Weight]:
        """The parameters of the modules by full name, as their first forward pass saw them."""
        if timeline.rank not in self._weights:
            self._weights[timeline.rank] = _weights(timeline)
        return self._weights[timeline.rank]

    def weights_move(self, timeline: Timeline) -> bool:
        """True if two forward passes of this step saw different values of one parameter: they are no micro-batches."""
        key = ("weights that move", timeline.rank)
        if key not in self.remembered:
            self.remembered[key] = _weights_move(timeline)
        return bool(self.remembered[key])

    def gradients(self, timeline: Timeline) -> dict[str, list[Leaf | None]]:
        """The gradients of each parameter, one for each backward pass; None where none came."""
        if timeline.rank not in self._gradients:
            self._gradients[timeline.rank] = _gradients(timeline)
        return self._gradients[timeline.rank]

    def optimizer_steps(self, timeline: Timeline) -> list[Event]:
        """The steps that optimizers took."""
        return [event for event in timeline if event.parts.kind == "optimizer"]

    def at_optimizer(self, timeline: Timeline) -> dict[str, Leaf]:
        """Each parameter's gradient when an optimizer took it (the first one, if there are several)."""
        gradients: dict[str, Leaf] = {}
        for event in self.optimizer_steps(timeline):
            for name, fields in parameters_of(event).items():
                gradient = fields.get("grad") if isinstance(fields, dict) else None
                if gradient is not None and is_tensor(gradient):
                    gradients.setdefault(plain_path(name), gradient)
        return gradients

    def has_changed(self, rank: Rank) -> bool:
        """True if a weight of a rank has changed since the first of the steps that follow each other."""
        if self.before is None:
            return False
        old = self.before.weights.get(rank, {})
        return rank in self.before.changed or any(
            name in old and fingerprint(weight.leaf) != fingerprint(old[name])
            for name, weight in self.weights(self.timelines[rank]).items()
        )

    def earlier(self) -> Earlier:
        """What the next step needs to know of this one."""
        moved: dict[Rank, set[str]] = {}
        optimized = set(self.before.optimized) if self.before is not None else set()
        for rank, timeline in self.timelines.items():
            moved[rank] = {
                name
                for name, passes in self.gradients(timeline).items()
                if passes and all(leaf is not None and leaf.get("Norm") not in (0, 0.0, None) for leaf in passes)
            }
            for event in self.optimizer_steps(timeline):
                optimized.update(plain_path(name) for name in parameters_of(event))
        return Earlier(
            weights={
                rank: {name: weight.leaf for name, weight in self.weights(timeline).items()}
                for rank, timeline in self.timelines.items()
            },
            gradients={rank: self.at_optimizer(timeline) for rank, timeline in self.timelines.items()},
            moved=moved,
            optimized=frozenset(optimized),
            changed=frozenset(rank for rank in self.timelines if self.has_changed(rank)),
        )

    def finding(
        self,
        timeline: Timeline,
        event: Event,
        kind: FindingKind,
        message: str,
        where: str | None = None,
        evidence: dict[str, Any] | None = None,
        **more: Any,
    ) -> Finding:
        """A statement on one record of this step. ``where``: the record's name, if nothing else is said."""
        return finding_at(timeline, event, kind, message, where or event.name, self.step, details=evidence, **more)


def _weights(timeline: Timeline) -> dict[str, Weight]:
    weights: dict[str, Weight] = {}
    for name, weight in _seen_weights(timeline):
        weights.setdefault(name, weight)
    return weights


def _seen_weights(timeline: Timeline) -> Iterator[tuple[str, Weight]]:
    """The parameters of the modules by full name, for each forward pass."""
    for event in timeline:
        if event.is_module and event.direction == "forward":
            parameters = event.record.get("parameters")
            path = plain_path(event.parts.path)
            for name, leaf in parameters.items() if isinstance(parameters, dict) else ():
                if is_tensor(leaf):
                    yield joined(path, name), Weight(event, leaf)


def _weights_move(timeline: Timeline) -> bool:
    first: dict[str, Any] = {}
    for name, weight in _seen_weights(timeline):
        values = fingerprint(weight.leaf)
        if values is not None and first.setdefault(name, values) != values:
            return True
    return False


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

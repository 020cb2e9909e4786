"""What is kept of a step of a rank to compare it with others: its parameters, gradients, settings and batch.

Of a thousand ranks that hold copies all this is the same, and kept once (:meth:`Replica.shared`).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.check.exchange import Shared
from msprobe.diagnose.check.moment import CheckedStep, Leaf
from msprobe.diagnose.check.values import distinct, floats, measured, tensors
from msprobe.diagnose.differences.records import fingerprint, is_integer, numel
from msprobe.diagnose.steps import communication
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.optimizer import parameters_of, settings_by_parameter
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor


@dataclass(frozen=True)
class Signatures:
    """Calls whose inputs all have digests: what distinguishes their inputs, and their results, from others."""

    names: tuple[str, ...]
    given: array[int]
    made: array[int]


@dataclass(frozen=True)
class FirstPass:
    """The first pass of the model. ``marks`` says what all such passes take, ``given`` what this one does."""

    name: str
    marks: str
    given: tuple[Any, ...]


@dataclass(frozen=True)
class Replica:
    """A step of a rank.

    ``weights``: the parameters of modules, and the records that show them. ``parameters``: these and those that only an
    optimizer has; not those that were whole in a module's pass and of which the optimizer has a share: their gradients
    are shares, too. ``gradients``: as the optimizer took them. ``optimizers``: name of each step, and the settings of
    each parameter. ``tokens`` names the first whole numbers that are looked up. ``trains``: it has a backward pass.
    ``divides``: ranks exchange data while the model runs forward, or send each other messages. ``summed``, ``alone``:
    parameters whose gradient some collective takes, or none.
    """

    rank: Rank
    weights: dict[str, str]
    parameters: dict[str, Leaf]
    gradients: dict[str, Leaf]
    optimizers: tuple[tuple[str, dict[str, dict[str, Any]]], ...]
    tokens: Hashable | None
    trains: bool
    divides: bool
    summed: frozenset[str]
    alone: frozenset[str]
    first_pass: FirstPass | None
    calls: Signatures

    def shared(self, shared: Shared) -> Replica:
        """The same, with what other ranks have too kept once."""
        leaves = [
            shared.alike({name: shared.alike(leaf) for name, leaf in table.items()})
            for table in (self.parameters, self.gradients)
        ]
        return replace(
            self,
            weights=shared.alike(self.weights),
            parameters=leaves[0],
            gradients=leaves[1],
            optimizers=shared.alike(self.optimizers),
            summed=shared(self.summed),
            alone=shared(self.alone),
            calls=replace(self.calls, names=shared(self.calls.names)),
        )

    def shown_by(self, name: str) -> str:
        """The record that shows a parameter: its module's first pass, or the optimizer's step."""
        return self.weights[name] if name in self.weights else self.optimizers[0][0]


def replica_of(moment: CheckedStep) -> Replica:
    """What is to be kept of a rank."""
    timeline = moment.timeline
    weights = moment.weights
    summed, alone = _carried(moment)
    return Replica(
        rank=timeline.rank,
        weights={name: weight.event.name for name, weight in weights.items()},
        parameters=_parameters(moment),
        gradients=moment.at_optimizer,
        optimizers=tuple(
            (event.name, {plain_path(name): own for name, own in settings_by_parameter(event).items()})
            for event in moment.optimizer_steps
        ),
        tokens=_tokens(timeline),
        trains=any(event.direction == "backward" for event in timeline),
        divides=_divides_work(timeline),
        summed=summed,
        alone=alone,
        first_pass=_first_pass(timeline),
        calls=_signatures(timeline),
    )


def _parameters(moment: CheckedStep) -> dict[str, Leaf]:
    table = {name: weight.leaf for name, weight in moment.weights.items()}
    for event in moment.optimizer_steps[:1]:
        for name, fields in parameters_of(event).items():
            weight = fields.get("weight") if isinstance(fields, dict) else None
            if weight is None or not is_tensor(weight):
                continue
            if numel(table.setdefault(plain_path(name), weight)) != numel(weight):
                del table[plain_path(name)]
    return table


def _tokens(timeline: Timeline) -> Hashable | None:
    first = next((event for event in timeline if operation(event.stem) == "embedding"), None)
    tokens = [leaf for leaf in tensors(first.inputs()) if is_integer(leaf)] if first is not None else []
    return fingerprint(tokens[0]) if tokens else None


def _divides_work(timeline: Timeline) -> bool:
    first = next((event.index for event in timeline if event.direction == "backward"), len(timeline))
    return any(
        event.is_collective
        and (communication.api(event) in operators.MESSAGES or (event.index < first and event.parent is not None))
        for event in timeline
    )


def _carried(moment: CheckedStep) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters whose only gradient some collective takes, and those whose none does."""
    carried = {
        fingerprint(leaf)
        for event in moment.timeline
        if event.is_collective
        for leaf in communication.read(event, moment.timeline.rank)
    }
    last = {name: passes[-1] for name, passes in moment.gradients.items() if len(passes) == 1}
    known = {name: leaf for name, leaf in last.items() if leaf is not None}
    summed = frozenset(name for name, leaf in known.items() if fingerprint(leaf) in carried)
    return summed, frozenset(known) - summed


def passes(timeline: Timeline) -> list[Event]:
    """The forward passes of the outermost modules that take a tensor that can be distinguished from others."""
    return [
        event
        for event in timeline
        if event.is_module
        and event.parent is None
        and event.direction == "forward"
        and any(distinct(leaf) for leaf in tensors(event.inputs()))
    ]


def marks(events: Iterable[Event]) -> list[list[Hashable]]:
    """What distinguishes the tensors that these passes take."""
    return [[(fingerprint(leaf), str(leaf.get("shape"))) for leaf in tensors(event.inputs())] for event in events]


def _first_pass(timeline: Timeline) -> FirstPass | None:
    passes_made = passes(timeline)
    if not passes_made:
        return None
    given = tuple(measured(leaf) for leaf in tensors(passes_made[0].inputs()) if distinct(leaf))
    return FirstPass(passes_made[0].name, xxh3_64_hexdigest(repr(marks(passes_made)).encode()), given)


def _signatures(timeline: Timeline) -> Signatures:
    names: list[str] = []
    given, made = array("Q"), array("Q")
    for event in timeline:
        if event.parts.kind != "api" or event.direction not in ("forward", "recompute") or not is_repeatable(event):
            continue
        slots = event.inputs()
        if all("digest" in leaf for leaf in tensors(slots)) and any(distinct(leaf) for leaf in floats(slots)):
            names.append(event.name)
            inputs = [(slot, mark(leaf) if is_tensor(leaf) else leaf) for slot, leaf in slots]
            given.append(xxh3_64_intdigest(repr(inputs).encode()))
            made.append(xxh3_64_intdigest(repr([mark(leaf) for leaf in floats(event.outputs())]).encode()))
    return Signatures(tuple(names), given, made)


def is_repeatable(event: Event) -> bool:
    """True if a call should make the same of the same arguments on another rank."""
    return not (event.is_collective or event.parts.owner == "Function" or event.children)


def mark(leaf: Leaf) -> Hashable:
    """What is the same of equal tensors."""
    return fingerprint(leaf), str(leaf.get("shape")), leaf.get("Max"), leaf.get("Min")

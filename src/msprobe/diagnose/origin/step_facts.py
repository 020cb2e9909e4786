"""What is known of one step of one rank before anything is blamed: the pairs, who made what, what came before."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.compare.number_types import type_at_its_end
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import (
    Comparer,
    Difference,
    described,
    fingerprint,
    is_floating,
    is_integer,
    rms,
)
from msprobe.diagnose.differences.words import relation_in_words
from msprobe.diagnose.effect.arrival import OptimizerGradients, arrival_of
from msprobe.diagnose.effect.leftover import Left, gradients_left, holds_older
from msprobe.diagnose.effect.reach import results_difference
from msprobe.diagnose.effect.states import first_changes
from msprobe.diagnose.effect.ties import Ties
from msprobe.diagnose.effect.weights import equal_weights, recorded_parameters, weights_in_order
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.optimizer import gradients_taken
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance import explained, frameworks, units
from msprobe.diagnose.tolerance.effect import unit_of
from msprobe.diagnose.tolerance.judge import Judged, judge_all
from msprobe.messages import Wording, said
from msprobe.statistics_table import FURTHER, USUAL_KEYS


@dataclass(frozen=True)
class StepBefore:
    """What is known of the step before.

    ``apart``: gradients that were apart, by parameter: their weights are, too. ``weights``: what weights were, in the
    candidate and in the reference; between two frameworks alone. ``states``: what it lets the states of modules be
    apart by. ``left``: the gradients that it left behind, in the candidate and in the reference. ``untouched``: nothing
    differed, in that step and those before it. ``written``: what differed in the tensors that calls wrote to
    (:func:`msprobe.diagnose.effect.reach.pair_of`).
    """

    apart: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    states: Mapping[str, float] = field(default_factory=dict)
    left: tuple[Mapping[str, Left], Mapping[str, Left]] = ({}, {})
    untouched: bool = True
    written: frozenset[Hashable] = frozenset()
    #: Weights that one side alone has moved since.
    unmoved: frozenset[str] = frozenset()


class StepFacts:
    """Facts of a step; none of them changes while origins are looked for.

    ``judged`` holds all pairs; ``sides`` the ``candidate`` and the ``reference``.
    """

    def __init__(
        self, pairing: Pairing, comparer: Comparer, first_step: bool, before: StepBefore | None = None
    ) -> None:
        self.pairing = pairing
        self.comparer = comparer
        self.first_step = first_step
        self.before = before or StepBefore()
        self.candidate = StepSide("candidate", pairing.candidate, pairing.partner, pairing.alone())
        self.reference = StepSide("reference", pairing.reference, pairing.back, pairing.missing())
        self.sides = self.candidate, self.reference
        self.judged = judge_all(pairing, comparer, self.candidate.makers)
        # A compiled function is one record beside modules: of what they consist it says nothing.
        self.has_calls = any(
            event.parts.kind == "api" and event.parts.owner != "Compiled" for event in pairing.candidate
        )
        lone = [*self.candidate.alone, *self.reference.alone]
        self.same_passes = not any(event.is_module and event.direction == "forward" for event in lone)
        self.dtype_policy = _dtype_policy(self.judged.values())
        for call in self.judged.values() if self.dtype_policy else ():
            if call.event.module is None and not _follows_policy(call):
                continue  # weights and averages have types of their own
            # A type that is asked for by name follows the setting of the run.
            call.inputs = [item for item in call.inputs if not self._asks_for_policy(item)]

    @cached_property
    def has_values(self) -> bool:
        """False if one side recorded the structure alone, or no statistic that anything is judged by: then nothing is
        known of what tensors hold.
        """
        return not self.is_structure and all(
            map(_has_judged_statistics, (self.pairing.candidate, self.pairing.reference))
        )

    def other(self, side: StepSide) -> StepSide:
        """The other one."""
        return self.reference if side is self.candidate else self.candidate

    def parameters_in(self, difference: Difference) -> tuple[list[str], list[str]]:
        """The parameters that have the values of what differs, on either side."""
        sides = zip(self.sides, (difference.left, difference.right), strict=True)
        here, there = (side.makers.parameters(leaf) for side, leaf in sides)
        return here, there

    def judged_at(self, side: StepSide, event: Event | None) -> Judged | None:
        """The pair that an event of a side belongs to, as it was judged."""
        mine = event if side is self.candidate or event is None else side.paired.get(event)
        return self.judged.get(mine) if mine is not None else None

    @property
    def is_structure(self) -> bool:
        """True if one side is of task structure."""
        return any(
            side.part.header.get("task") == "structure" for side in (self.pairing.candidate, self.pairing.reference)
        )

    @property
    def is_blind(self) -> bool:
        """True between two frameworks, if no gradients of parameters say how far a difference reaches."""
        return self.comparer.crossing and not any(event.direction == "gradient" for event in self.judged)

    @cached_property
    def equal_weights(self) -> Mapping[str, bool]:
        """Of each parameter that both sides recorded by its name: is it the same on both?"""
        return equal_weights(self.judged.values(), self.comparer)

    @cached_property
    def weights_in_order(self) -> frozenset[str]:
        """The parameters of which both sides recorded in which order their elements are."""
        return weights_in_order(self.judged.values())

    @cached_property
    def parameter_names(self) -> tuple[frozenset[str], frozenset[str]]:
        """The parameters of modules, of candidate and reference, where they were recorded."""
        return recorded_parameters(self.pairing.candidate), recorded_parameters(self.pairing.reference)

    @cached_property
    def buffer_names(self) -> frozenset[str]:
        """The buffers of modules, where they were recorded, by their full names."""
        return frozenset(
            parameter_name(event, slot)
            for event in self.pairing.candidate
            for slot, _ in event.parameters()
            if slot.startswith("buffers.")
        )

    @cached_property
    def largest_gradient(self) -> float:
        """The size of the largest gradient that arrives at a call."""
        leaves = (
            leaf for event in self.pairing.reference if event.direction == "backward" for _, leaf in event.inputs()
        )
        return max((size for leaf in leaves if is_tensor(leaf) and math.isfinite(size := rms(leaf))), default=0.0)

    @cached_property
    def arrival(self) -> OptimizerGradients:
        """What gradients become on their way to the optimizer."""
        return arrival_of(self.judged.values(), self.comparer)

    @cached_property
    def not_cleared(self) -> tuple[str, int]:
        """The side whose optimizer gets gradients that hold those of the step before, too, and of how many parameters
        that shows; an empty word if none does.
        """
        if any(event.direction == "gradient" for event in self.pairing.unreached):
            return "", 0  # one side was interrupted before all was added
        mine, theirs = gradients_left(self.pairing.candidate), gradients_left(self.pairing.reference)
        before, other_before = self.before.left
        unit = unit_of(self.judged.values())
        count = holds_older(mine, theirs, before, unit)
        if not count and (count := holds_older(theirs, mine, other_before, unit)):
            return "reference", count
        return ("candidate", count) if count else ("", 0)

    def differs(self, event: Event, seen: Difference) -> bool:
        """True if the results of a call differ, as is seen where one of them is taken."""
        judged = self.judged.get(event)
        if judged is None:
            return True
        if not (self.comparer.crossing or judged.changed_outputs):
            return False
        if judged.changed_inputs and is_integer(seen.left) and operation(event.stem) in operators.CHOOSES:
            return True  # which of several is chosen, rounding decides
        # Where everything is apart by rounding, that explains no more than rounding.
        return explained.as_made(seen, self.apart(judged))

    def apart(self, judged: Judged) -> float:
        """How far apart a pair of calls is known to be: its inputs, its results and what weights are."""
        return (
            math.inf
            if judged.chosen
            else max(judged.output_difference, judged.input_difference, self.comparer.weights_apart)
        )

    def by_rows_apart(self, difference: Difference) -> float:
        """The relative distance of two tensors by their rows; 0 where a side has none."""
        left, right = difference.left, difference.right
        return self.comparer.rows.between(left, right) if is_floating(left) and is_floating(right) else 0.0

    def is_rounding(self, difference: Difference) -> bool:
        """True for a difference that the rounding of two frameworks leaves of calls that were not recorded."""
        return self.comparer.crossing and frameworks.is_rounding(difference, self.comparer.weights_apart)

    def taints(self, judged: Judged) -> bool:
        """True if a pair differs so that what comes later may only follow."""
        if not self.comparer.crossing or judged.status in ("same", "unexplained"):
            return judged.status != "same"
        return self.taints_by(judged, max(judged.output_difference, judged.input_difference))

    def taints_by(self, judged: Judged, delta: float) -> bool:
        """True if so large a difference is more than the rounding of two frameworks."""
        unit = units.unit(judged.event.outputs(), judged.partner.outputs(), judged.event.inputs())
        return frameworks.is_more(delta, unit, self.comparer.weights_apart)

    def fed_by_difference(self, chain: Sequence[Event], seen: Difference) -> bool:
        """True if what goes into unpaired calls differs already, so that it explains what is seen of their result."""
        makers = (self.candidate.makers.of(leaf, event) for event in chain for _, leaf in event.inputs())
        return any(
            (self.comparer.crossing or self.judged[maker].changed_outputs)
            and explained.by_calls(seen, self.apart(self.judged[maker]))
            for maker in makers
            if maker is not None and maker in self.pairing.partner
        )

    def children_differ(self, event: Event) -> bool:
        children = [self.judged.get(child) for child in event.children if child.direction == event.direction]
        if self.comparer.crossing:
            return any(child is None or self.taints(child) for child in children)
        return any(child is None or child.changed_outputs or child.changed_inputs for child in children)

    def anything_before(self, event: Event) -> bool:
        return any(
            child.index < event.index and child.direction == event.direction
            for child in (event.parent.children if event.parent is not None else ())
        )

    def is_policy(self, difference: Difference) -> bool:
        return (difference.left["dtype"], difference.right["dtype"]) in self.dtype_policy

    def is_type_of_its_tensor(self, judged: Judged, difference: Difference) -> bool:
        """True for a gradient that has on both sides the type of the tensor that it is the gradient of, as it must."""
        forwards = self.pairing.candidate.forward_of(judged.event), self.partner_forward(judged)
        for forward, gradient in zip(forwards, (difference.left, difference.right), strict=True):
            own: Any = None if forward is None else dict(forward.inputs()).get(difference.slot)
            if not is_tensor(own) or own["dtype"] != gradient["dtype"]:
                return False
        return True

    def _asks_for_policy(self, difference: Difference) -> bool:
        if difference.what != "argument":
            return False
        return tuple(map(_type_asked_for, (difference.left, difference.right))) in self.dtype_policy

    @cached_property
    def loss_difference(self) -> float:
        """How far the loss of the step is apart, relative."""
        return results_difference(self.judged, True, self.pairing, self.comparer)

    def is_gradient(self, difference: Difference) -> bool:
        """True if a tensor looks like the gradient of a parameter, on its way from backward to the optimizer."""
        return is_floating(difference.left) and str(difference.left.get("shape")) in self._gradient_shapes

    @cached_property
    def _gradient_shapes(self) -> frozenset[str]:
        leaves: list[Any] = []
        for event in self.pairing.candidate:
            if event.direction == "gradient":
                leaves += (leaf for _, leaf in event.outputs())
            elif event.parts.kind == "optimizer":
                leaves += gradients_taken(event).values()
        return frozenset(str(leaf.get("shape")) for leaf in leaves if is_tensor(leaf))

    @cached_property
    def passes_of_root(self) -> list[Event]:
        """The passes of the whole model, where they were recorded (record_root), in order."""
        return [event for event in self.pairing.candidate.events if event.parts.path == "root"]

    def partner_forward(self, judged: Judged) -> Event | None:
        return self.pairing.reference.forward_of(judged.partner)

    def reproduces(self, judged: Judged) -> bool:
        """True if other calls of the API, of the same shapes, gave the same bits from the same input on both sides, as
        this one should have.
        """
        event = judged.event
        if self.comparer.crossing:
            return False  # kernels of two frameworks reproduce nothing
        word = operation(event.stem)
        if word not in operators.ELEMENTWISE or judged.changed_inputs or judged.arguments:
            return False
        if word not in operators.ROUNDED_BY_STANDARD and any(
            is_tensor(output.left) and units.is_coarse(output.left) for output in judged.outputs
        ):
            return False  # another kernel gives the same bits nearly everywhere
        if 0.0 < judged.output_difference <= self.comparer.measured_noise(judged.partner.name):
            return False  # a healthy run does not reproduce it either
        if any(difference.what == "dtype" for difference in (*judged.inputs, *judged.outputs)):
            return False  # the same value in another type: its result is rounded otherwise
        return self.is_reproduced(event)

    def is_reproduced(self, event: Event) -> bool:
        """True if other calls of the API, of the same shapes, gave the same bits on both sides."""
        return any(twin is not event for twin in self._reproduced.get(_form(event), ()))

    @cached_property
    def _reproduced(self) -> dict[Hashable, list[Event]]:
        """Calls of which nothing differs, known by digests, by what they call on which shapes."""
        reproduced: dict[Hashable, list[Event]] = {}
        for event, judged in self.judged.items():
            if judged.status == "same" and event.parts.kind == "api":
                results = [leaf for _, leaf in event.outputs() if is_tensor(leaf)]
                if all("digest" in leaf for leaf in results):
                    reproduced.setdefault(_form(event), []).append(event)
        return reproduced

    @cached_property
    def ties(self) -> Ties:
        """Which weights are one tensor, on each side."""
        return Ties(self.pairing.candidate, self.pairing.reference)

    @cached_property
    def first_changes(self) -> Mapping[str, Event]:
        """The first call of each module of the candidate that averages what the module keeps."""
        return first_changes(self.pairing.candidate)

    @cached_property
    def lone_writes(self) -> Mapping[Hashable, Event]:
        """The first call of the candidate alone that writes to a tensor, by what identifies the tensor."""
        calls = (event for event in self.candidate.alone if writes_in_place(event.stem))
        return _first_of((leaf, event) for event in calls for _, leaf in event.inputs()[:1])

    @cached_property
    def missing_copies(self) -> Mapping[Hashable, Event]:
        """The first call of the reference alone that copies a tensor, by what identifies the tensor."""
        calls = (event for event in self.reference.alone if operation(event.stem) in operators.COPIES)
        return _first_of((leaf, event) for event in calls for _, leaf in event.inputs())

    @cached_property
    def _pairs_before(self) -> list[tuple[Event, Event] | None]:
        """For each event of the reference, the last pair before it: of the reference, and of the candidate."""
        pairs: list[tuple[Event, Event] | None] = []
        last: tuple[Event, Event] | None = None
        for event in self.pairing.reference:
            pairs.append(last)
            twin = self.pairing.back.get(event)
            last = (event, twin) if twin is not None else last
        return pairs

    def place_of(self, event: Event) -> float:
        """Where an event of either side stands in the candidate's order; calls of the reference alone stand behind the
        pair that they follow there, in their own order.
        """
        if self.pairing.candidate.by_name.get(event.name) is event:
            return event.index
        last = self._pairs_before[event.index]
        if last is None:
            return -1 / (1 + event.index)
        before, twin = last
        return twin.index + 1 - 1 / (1 + event.index - before.index)

    def result_of(self, maker: Event, leaf: Any) -> str:
        """Which result of a call a tensor is, in words."""
        mark = fingerprint(leaf)
        outputs = maker.outputs()
        slot = next((slot for slot, value in outputs if fingerprint(value) == mark), None)
        return (
            said("of-call", slot, maker.name)
            if slot is not None and len(outputs) > 1
            else said("result-of", maker.name)
        )

    def used_elsewhere(self, maker: Event, user: Event) -> bool:
        """True if another call takes a result of ``maker``, as it was made, up to the end of the step."""
        marks = [mark for _, leaf in maker.outputs() if (mark := fingerprint(leaf)) is not None]
        return any(
            consumer.index > maker.index and consumer is not user
            for m in marks
            for consumer in self.candidate.consumers.get(m, ())
        )

    def how(self, difference: Difference, bound: bool = False) -> str:
        """What a difference looks like. ``bound``: say where it is known by statistics alone, which say the least."""
        words = relation_in_words(difference, self.comparer, bound)
        return Wording(" ({})", words) if words else ""


def _dtype_policy(judged: Iterable[Judged]) -> set[tuple[str, str]]:
    """Pairs of dtypes that differ so often that it is the setting of a whole run, not a slip."""
    counts: dict[tuple[str, str], int] = {}
    total = 0
    for call in judged:
        if call.event.direction != "forward":
            continue
        total += 1
        for pair in {(d.left["dtype"], d.right["dtype"]) for d in call.outputs if d.what == "dtype"}:
            counts[pair] = counts.get(pair, 0) + 1
    return {pair for pair, count in counts.items() if count > 0.2 * max(total, 1)}


def _first_of(taken: Iterable[tuple[Any, Event]]) -> dict[Hashable, Event]:
    """The first call that takes a tensor, by what identifies the tensor."""
    marked = ((fingerprint(leaf), event) for leaf, event in taken)
    first: dict[Hashable, Event] = {}
    for mark, event in marked:
        first.setdefault(mark, event)
    first.pop(None, None)
    return first


def _form(event: Event) -> Hashable:
    """What is called, on which shapes."""
    return event.stem, str([leaf.get("shape") for _, leaf in event.inputs() if is_tensor(leaf)])


def _type_asked_for(argument: Any) -> str:
    """The type that an argument names, or whose end it is: masks are filled with the least number of their type."""
    value = argument.get("value") if isinstance(argument, dict) else argument
    name = type_at_its_end(value)
    return f"torch.{name}" if name is not None else described(argument)


def _follows_policy(judged: Judged) -> bool:
    """True for a call that gets its type from the setting of the run even outside of modules: it moves values, casts
    what is no floating-point number, or has the type already that it asks for.
    """
    event = judged.event
    if operation(event.stem) in operators.MOVES:
        return True
    taken = [leaf for _, leaf in event.inputs() if is_floating(leaf)]
    return operation(event.stem) in operators.CASTS and (
        not taken or any(difference.what == "dtype" for difference in judged.inputs)
    )


def _has_judged_statistics(timeline: Timeline) -> bool:
    """False if a list of statistics was asked for that has none of the usual ones: the first tensor that goes by them
    says.
    """
    for event in timeline:
        for _, leaf in (*event.inputs(), *event.outputs()):
            if is_tensor(leaf) and not any(key in leaf for key in ("digest", "md5", "data_name")):
                return any(key in leaf for key in USUAL_KEYS) or not any(statistic.key in leaf for statistic in FURTHER)
    return True

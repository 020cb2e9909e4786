"""Does a difference reach what counts: loss, gradients, weights, and the states that modules keep?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import (
    Comparer,
    Difference,
    is_floating,
    is_integer,
    numel,
    rms,
    statistics,
)
from msprobe.diagnose.effect import states
from msprobe.diagnose.effect.arrival import arrival_of, have_common_factor
from msprobe.diagnose.effect.in_parts import are_in_parts
from msprobe.diagnose.effect.results import changed_results, losses_difference, scalar_of
from msprobe.diagnose.effect.unmoved import Held
from msprobe.diagnose.effect.weights import are_arranged_otherwise
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.tensor_info import numbers
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import effect, tensor
from msprobe.diagnose.tolerance.judge import Judged

#: What a difference may have an effect on. ``results``: of the model, where no gradients were recorded.
EFFECTS = ("loss", "gradients", "weights", "results")


@dataclass(frozen=True)
class Reach:
    """How far a difference reaches in one step.

    ``size``: the largest relative difference among gradients, weights, states of modules and results of the model;
    infinite where one is missing, or not finite, on one side. ``vanishing``: parameters whose gradients are next to
    nothing. ``gradients``: how far the gradient of each parameter is apart, where it is at all.
    ``states``: what the states of a module may be apart by in the next step, because of this one. ``what``: what is
    furthest apart, in words. ``at_start``: what the step before has left, weights and states; None where weights were
    not recorded. ``untouched``: nothing differs at all, in this step and those before it. ``explained``: rows explain
    all that differs, in this step and those before it. ``written``: what differs in the tensors that calls wrote to,
    as :func:`pair_of` knows it: the next step may take it from there. ``unseen``: the parameters that have a gradient,
    and that nothing which was recorded moves; ``moved_otherwise``: most of those of the step before were.
    """

    size: float = 0.0
    vanishing: frozenset[str] = field(default_factory=frozenset)
    gradients: Mapping[str, float] = field(default_factory=dict)
    states: Mapping[str, float] = field(default_factory=dict)
    what: str = ""
    at_start: float | None = None
    untouched: bool = True
    explained: bool = False
    written: frozenset[Hashable] = frozenset()
    unseen: frozenset[str] = frozenset()
    moved_otherwise: bool = False
    #: What could be compared of :data:`EFFECTS`: what both sides recorded of them.
    compared: frozenset[str] = frozenset()
    #: What the weights of the step are, on both sides.
    weights: Mapping[str, Held] = field(default_factory=dict, repr=False)


def pair_of(difference: Difference) -> Hashable | None:
    """What distinguishes the two tensors of a difference from others, also where one was recorded as a whole and the
    other as what a rank has of it; None where nothing does, or of a single number.
    """
    sides = difference.left, difference.right
    if not all(
        is_tensor(leaf) and is_floating(leaf) and numel(leaf) > 1 and numbers(leaf) is not None for leaf in sides
    ):
        return None
    # The mean is another one where zeros fill up what a rank has.
    return tuple((most, least, norm) for most, least, _, norm in filter(None, map(numbers, sides)))


def written_in(judged: Iterable[Judged]) -> frozenset[Hashable]:
    """What differs in the tensors that calls wrote to, and in those that optimizers took: a momentum begins as a copy
    of a gradient.
    """
    writes = [
        call.changed_inputs if call.event.parts.kind == "optimizer" else call.changed_outputs
        for call in judged
        if call.event.parts.kind == "optimizer" or (call.event.is_call and writes_in_place(call.event.stem))
    ]
    return frozenset(
        pair for writes_of_call in writes for write in writes_of_call if (pair := pair_of(write)) is not None
    )


def reach_of(
    pairing: Pairing,
    judged: dict[Event, Judged],
    comparer: Comparer,
    before: Reach | None = None,
    makers: Producers | None = None,
    unmoved: frozenset[str] = frozenset(),
) -> Reach:
    """How far the differences of a step reach. ``before``: those of the step before; ``makers``: who made the
    candidate's tensors, to find those that its calls write to and that nothing made. ``unmoved``: weights that one side
    alone has moved since.
    """
    before = before or Reach()
    apart: dict[str, float] = {}
    gradients: list[Difference] = []
    at_optimizer: list[Difference] = []
    sizes: dict[str, float] = {}
    chosen: set[str] = set()
    nothing: set[str] = set()
    steps = False
    stepped: set[str] = set()
    measured = 0.0
    for call in judged.values():
        if call.event.direction == "gradient":
            for slot, leaf in call.partner.outputs():
                if is_tensor(leaf):
                    name = parameter_name(call.event, slot)
                    sizes[name] = max(sizes.get(name, 0.0), rms(leaf))
            nothing.update(parameter_name(call.event, slot) for slot in call.vanishing)
            if call.chosen:
                chosen.update(parameter_name(call.event, slot) for slot, _ in call.event.outputs())
            else:
                gradients += [
                    difference._replace(delta=min(difference.delta, call.output_difference))
                    if difference.slot in call.vanishing
                    else difference
                    for difference in call.changed_outputs
                ]
                measured = max(measured, call.output_difference)
            for difference in call.changed_outputs:
                name = parameter_name(call.event, difference.slot)
                apart[name] = max(apart.get(name, 0.0), difference.delta)
        elif call.event.parts.kind == "optimizer":
            steps = True
            stepped.update(optimizer.parameters_of(call.event))
            at_optimizer += _optimizer_differences(call, pairing, comparer, before.vanishing, apart)
            for name, fields in optimizer.parameters_of(call.partner).items():
                if is_tensor(fields.get("grad")):
                    sizes[name] = max(sizes.get(name, 0.0), rms(fields["grad"]))
    largest = max((size for size in sizes.values() if math.isfinite(size)), default=0.0)
    # Where modules were not recorded, the optimizer's gradients are known by what they hold.
    marks = {
        statistics(difference.left)
        for call in judged.values()
        for difference in (call.changed_outputs if call.event.direction == "backward" and call.vanishing else ())
        if difference.slot in call.vanishing
    }
    at_optimizer = [
        difference
        for difference in at_optimizer
        if difference.slot.removesuffix(".grad") not in nothing
        and not (is_tensor(difference.left) and statistics(difference.left) in marks)
    ]
    # With another number of backward passes only their sum can be compared.
    lone = [*pairing.alone(), *pairing.missing()]
    unit, limit = effect.unit_of(judged.values()), effect.step_limit(judged.values())
    # So it is where they are reduced over ranks in another way.
    summed = steps and any(event.direction == "gradient" or event.is_collective for event in lone)
    # And a factor that one side alone gives the loss, and takes from the gradients before anything else uses them.
    # Where the loss itself differs, other gradients come back, and ranks that add up theirs hide whose they are.
    summed = summed or (
        bool(gradients)
        and (
            results_difference(judged, bool(sizes), pairing, comparer) <= limit or have_common_factor(gradients, limit)
        )
        and arrival_of(judged.values(), comparer).clean
    )
    at_optimizer = [difference for difference in at_optimizer if difference.slot.removesuffix(".grad") not in chosen]
    counted = at_optimizer if summed or comparer.crossing else [*gradients, *at_optimizer]
    within = math.inf
    if any(
        call.chosen and any(d.what == "value" for d in call.outputs if is_integer(d.left)) for call in judged.values()
    ):
        # Something else was chosen, and all gradients are those of other terms: it is the loss that shows more.
        within = limit
    small = effect.small_gradient(unit, limit)
    reached = [(effect.gradient_difference(gradient, largest, small), "gradients") for gradient in counted]
    reached = [(min(size, within) if math.isfinite(size) else size, what) for size, what in reached]
    if comparer.crossing:
        reached.append((measured, "gradients"))  # measured by the terms that they are sums of
    if summed and not any(event.is_collective for event in lone):
        reached.append((_clipped_norm_difference(judged), "gradients"))
    if not summed:
        reached.append(
            (results_difference(judged, bool(sizes), pairing, comparer), "the loss" if sizes else "the result")
        )
    state_difference, carried = states.apart(judged.values(), before.states, unit, makers)
    # Between two frameworks no optimizer leaves the same weights: see msprobe.diagnose.origin.movements.
    crossed = comparer.crossing and comparer.follows
    reached.append((state_difference, "states that modules keep"))
    weight_difference, moved_otherwise = (0.0, False) if crossed else _weights_difference(judged.values(), before, unit)
    has_calls = any(call.event.parts.kind == "api" for call in judged.values())
    reached.append((math.inf if unmoved else weight_difference, "weights"))
    known = any(call.event.direction == "forward" and call.event.parameters() for call in judged.values())
    size, what = max(reached, key=lambda pair: pair[0])
    return Reach(
        size,
        frozenset(name for name, size in sizes.items() if effect.is_vanishing(size, largest)) | nothing,
        apart,
        carried,
        what,
        max(math.inf if unmoved else weight_difference, state_difference) if known and not comparer.crossing else None,
        unseen=frozenset() if has_calls else frozenset(sizes.keys() - stepped),
        moved_otherwise=moved_otherwise,
        compared=_compared(judged, bool(sizes), known or bool(stepped)),
    )


def _compared(judged: Iterable[Event], with_gradients: bool, with_weights: bool) -> frozenset[str]:
    """What both sides recorded of :data:`EFFECTS`. ``judged``: the calls that both have."""
    forward = [event for event in judged if event.direction == "forward" and event.is_call]
    has = {
        "loss": any(scalar_of(event) is not None for event in forward),
        "gradients": with_gradients,
        "weights": with_weights,
        "results": bool(forward) and not with_gradients,
    }
    return frozenset(name for name, is_there in has.items() if is_there)


def _clipped_norm_difference(judged: Mapping[Event, Judged]) -> float:
    """How far apart the norm of all gradients is that clipping takes after the backward pass: behind it, whatever their
    size was, it is the same. 0 where nothing takes one.
    """
    after, largest, apart = False, 0.0, 0.0
    for call in judged.values():
        after |= call.event.direction == "backward"
        if not (after and call.event.direction == "forward" and operation(call.event.stem) in operators.NORMS):
            continue
        others = dict(call.partner.outputs())
        for slot, leaf in call.event.outputs():
            sides = [numbers(side) for side in (leaf, others.get(slot) or {}) if is_tensor(side) and numel(side) == 1]
            sizes = [side[3] for side in sides if side]
            # That of all is larger than those that it is made of.
            if len(sizes) == 2 and max(sizes) > largest:
                largest = max(sizes)
                apart = abs(sizes[0] - sizes[1]) / largest
    return apart if math.isfinite(apart) else 0.0


def _optimizer_differences(
    judged: Judged, pairing: Pairing, comparer: Comparer, vanishing: frozenset[str], apart: dict[str, float]
) -> list[Difference]:
    ours, other = optimizer.parameters_of(judged.event), optimizer.parameters_of(judged.partner)
    differences: list[Difference] = []
    unequal: set[str] = set(vanishing)
    for name, key, difference in optimizer.differences(comparer, ours, other):
        if difference.what in ("value", "not_finite", "missing"):
            if key not in ("grad", "weight") and effect.is_clear_state(difference):
                continue  # its states are others, and what they make of the same gradient counts
            unequal.add(name)
            if key == "grad":
                differences.append(difference)
                apart[name] = max(apart.get(name, 0.0), difference.delta)
    for name in ours.keys() & other.keys():
        if (elements := _gradient_by_rows(comparer, ours[name], other[name])) > 0.0:
            unequal.add(name)
            apart[name] = max(apart.get(name, 0.0), elements)
    arranged = set(ours) == set(other) or are_arranged_otherwise(pairing, ours, other)
    if not (arranged or are_in_parts(pairing, ours, other)):
        differences.append(Difference("", "missing", None, None, math.inf))
    if comparer.crossing:
        return differences  # no weight is the same after the step
    results = optimizer.results_of(judged.event), optimizer.results_of(judged.partner)
    for name, key, difference in optimizer.differences(comparer, *results):
        # From the same gradient and state: the step itself makes the difference.
        own = key == "weight" and name not in unequal and difference.what in ("value", "not_finite")
        if own and tensor.is_stepped_otherwise(difference):
            differences.append(Difference(name, "not_finite", difference.left, difference.right, math.inf))
    return differences


def _gradient_by_rows(comparer: Comparer, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """How far the elements of two gradients are apart, whose statistics may be the same, by their rows."""
    left: Any = mine.get("grad")
    right: Any = theirs.get("grad")
    return comparer.rows.between(left, right) if is_tensor(left) and is_tensor(right) else 0.0


def _weights_difference(judged: Iterable[Judged], before: Reach, rounding: float) -> tuple[float, bool]:
    """Parameters that differ in the forward pass, and whether most of those that moved unseen do. ``rounding``: the
    unit that the run computes in.

    Where gradients are apart by rounding, an optimizer that divides by their size makes anything of those that are
    next to nothing; so a few such weights say nothing, but most of them do. What is not trained, and calls write to, as
    to an average of weights, is as far apart as these calls make it.
    """
    judged = list(judged)
    written = before.written | written_in(judged)
    has_calls = any(call.event.parts.kind == "api" for call in judged)
    most = 0.0
    names: set[str] = set()
    after_rounding: set[str] = set()
    for call in judged:
        names.update(parameter_name(call.event, slot) for slot, _ in call.event.parameters())
        for difference in call.parameters:
            if difference.slot.startswith("buffers."):
                continue  # a state, which no gradient moves
            name = parameter_name(call.event, difference.slot)
            if (
                difference.what in ("value", "not_finite")
                and is_floating(difference.left)
                and name not in before.vanishing
            ):
                clear = effect.is_clear_weight(difference, rounding)
                if name not in before.gradients:
                    is_state = difference.left.get("requires_grad") is False
                    is_state &= pair_of(difference) in written or not has_calls
                    most = max(most, math.inf if clear and not is_state else difference.delta)
                elif clear and effect.exceeds_gradient(difference, before.gradients[name]):
                    after_rounding.add(name)
    moved_otherwise = 2 * len(after_rounding & before.unseen) > len(before.unseen) > 0
    return math.inf if moved_otherwise or 2 * len(after_rounding) > len(names) else most, moved_otherwise


def results_difference(
    judged: Mapping[Event, Judged], with_gradients: bool, pairing: Pairing, comparer: Comparer
) -> float:
    """How far the loss is apart, or what the model returns where no gradients were recorded.

    The loss is the last scalar that both sides make by one call, or what their backward passes begin with: where one
    side makes it of pieces, the first of these may be a piece, and where one side scales it, the second is a multiple.
    """
    loss: Judged | None = None
    for call in judged.values():
        if call.event.direction == "forward" and scalar_of(call.event) is not None:
            loss = call
    changed = [] if with_gradients else changed_results(judged.values())
    if loss is not None:
        changed = loss.changed_outputs
    size = max((d.delta if d.what == "value" else math.inf for d in changed), default=0.0)
    if size and loss is not None and (loss_difference := losses_difference(pairing, comparer)) is not None:
        return min(size, loss_difference)
    return size

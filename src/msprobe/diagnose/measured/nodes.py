"""The calls of a pair of steps, in order of execution, each with how far its results and its arguments are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import numbers
from msprobe.diagnose.measured import boundaries, compared, scales
from msprobe.diagnose.measured.by_itself import results_by_itself
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.exchanges import exchanges, node_of_exchange, numbers_of_exchanges
from msprobe.diagnose.measured.handed_on import GradientsHandedOn, handed_on, put_together, shards_among
from msprobe.diagnose.measured.members import members, name_of_member
from msprobe.diagnose.measured.modules import module_nodes
from msprobe.diagnose.measured.node import ROUNDED_INSIDE, SINGLE, MeasuredResult, Node
from msprobe.diagnose.measured.own_arguments import OneCall, result_of_own_arguments
from msprobe.diagnose.measured.tables import ENDLESS, NO_TENSORS, DeviationTable, Made, Tensors
from msprobe.diagnose.pairing.computed_numbers import computed_numbers, with_candidates
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.steps.optimizer import gradients_taken
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance.effective import kind_of
from msprobe.diagnose.tolerance.judge import is_of_another_node
from msprobe.diagnose.tolerance.units import common_unit

#: What is divided by the spread of a row is off by as much as the smallest spread makes it; of fewer elements than so
#: many that has no mean: the inverse of a chi-square to the power of two has none up to 4.
_FEW = 8
#: Statistics of half types are rounded to these.
_OTHER_NORM = 0.01
#: They put elements elsewhere, and where depends on the shape of what they are given.
_MOVES = operators.MOVES - operators.RESHAPES - operators.STORED_OTHERWISE

#: The owner of functions that a program has made itself (``torch.autograd.Function``): what they call comes first.
_OWN_FUNCTION = "Function"


class _Call(NamedTuple):
    """A pair of calls. ``members``: of one that computes the same of several tensors, those of one tensor each, by the
    names that their results have.
    """

    event: Event
    partner: Event
    inputs: Tensors
    outputs: Tensors
    members: Mapping[str, _Member]


class _Member(NamedTuple):
    """A pair of calls of one tensor each."""

    ours: OneCall
    other: OneCall
    inputs: Tensors
    outputs: Tensors


def nodes(pairing: Pairing, is_alone: bool, crossing: bool = False) -> Iterator[Node]:
    """All calls that both sides made, in the candidate's order of execution, by the rows of both dumps. What a module
    or an optimizer consists of stands for it. Gradients of parameters are among them. ``is_alone``: there is one rank,
    so that what a collective gives comes from what it is given. ``crossing``: one side ran on MindSpore, the other on
    PyTorch.
    """
    table = DeviationTable(pairing.candidate.part.rows, pairing.reference.part.rows, crossing)
    calls: dict[Event, _Call] = {}
    computed = computed_numbers(pairing)
    for event in pairing.candidate:
        partner = pairing.partner.get(event)
        if partner is None:
            continue
        if event.parts.kind == "optimizer":
            given = table.note(*(list(gradients_taken(side).items()) for side in (event, partner)))
            calls[event] = _Call(event, partner, given, NO_TENSORS, {})
        if not (event.is_call or event.direction == "gradient"):
            continue
        (inputs, others), (outputs, results) = answering_slots(event, partner, crossing)
        if event in computed:
            others = with_candidates(others, inputs, computed[event])
        given, made_of_it = table.note(inputs, others), table.note(outputs, results)
        calls[event] = _Call(event, partner, given, made_of_it, _members(table, event, partner))
    table.measure()
    run_unit = max(map(common_unit, (pairing.candidate, pairing.reference)))
    has_calls = any(event.is_call for side in (pairing.candidate, pairing.reference) for event in side)
    if not has_calls:
        yield from module_nodes(pairing, run_unit, crossing)
    made, gradients = Made(table), GradientsHandedOn(table, pairing)
    exchanged, over_ranks = {} if is_alone else numbers_of_exchanges(pairing), not (is_alone or crossing)
    behind_norms = _gradients_of_batch_norms(calls)
    for call in calls.values():
        if call.event.direction == "gradient":
            # Where all rows are the same, they explain no difference that is recorded.
            if has_calls and any(table.of(place).distance for place in call.outputs.places):
                is_new, unit = made.is_new_in(call.outputs), max(call.outputs.units)
                yield Node(call.event, "", "gradient", unit, (), "", from_outside=is_new)
            if call.outputs.units and not _is_last_again(pairing, call):
                yield from handed_on(call.event, call.outputs, gradients.arriving(call.event, call.outputs))
            continue
        if call.event.parts.kind == "optimizer":
            yield from handed_on(call.event, call.inputs, gradients.at_optimizer(call.inputs, over_ranks))
            if over_ranks:
                yield from put_together(call.event, gradients.put_together(call.inputs))
            continue
        if call.event.module is None and call.event.direction != "backward":
            yield from handed_on(call.event, call.inputs, gradients.taken(call.inputs))
            if over_ranks and call.event.direction == "forward":
                shards = shards_among(call.event, call.inputs)
                yield from handed_on(call.event, shards, gradients.reduced(shards, is_named=False))
                yield from put_together(call.event, gradients.put_together(call.inputs))
        if call.event in exchanged:
            node = node_of_exchange(table, call.inputs, call.outputs, call.event, exchanged[call.event])
        else:
            node = _node(pairing, calls, table, call, behind_norms)
            if not is_alone and exchanges(pairing, call.event):
                node = replace(node, excused="ranks")
        if call.event.parts.owner == _OWN_FUNCTION and made.has(call.outputs):
            node = replace(node, results=tuple(map(_as_given, node.results)))
        if call.event in computed:
            apart = max(computed[call.event].values())
            node = replace(node, results=tuple(_with_number_apart(result, apart) for result in node.results))
        node = replace(node, from_outside=made.is_new_in(call.inputs))
        made.add(call.outputs)
        gradients.add_results(call.event, call.outputs)
        # Autocast lets them compute in half types though they take and give single precision.
        is_inside = node.unit < run_unit and (node.operation in operators.RECURRENT or _is_batched(call.event))
        yield replace(node, unit=run_unit) if is_inside else node


def _as_given(result: MeasuredResult) -> MeasuredResult:
    """A result that a call before gave, which is judged itself."""
    return replace(result, given=result.distance, given_coherent=result.coherent)


def _with_number_apart(result: MeasuredResult, apart: float) -> MeasuredResult:
    """A result of a call that is given a number which was computed from tensors, and is apart."""
    given, coherent = math.hypot(result.given, apart), math.hypot(result.given_coherent, apart)
    return replace(result, given=given, given_coherent=coherent)


def _is_last_again(pairing: Pairing, call: _Call) -> bool:
    """True for a record of gradients that has those of the last pass, each of which has a record with its number."""
    sides = (pairing.candidate, call.event), (pairing.reference, call.partner)
    return call.event.parts.number is None and any(f"{event.name}.0" in side.by_name for side, event in sides)


def _is_batched(event: Event) -> bool:
    """True for a call inside ``vmap``, which consists of several of aten's."""
    return any(isinstance(leaf, dict) and leaf.get("type") == "BatchedTensor" for _, leaf in event.inputs())


def _members(table: DeviationTable, event: Event, partner: Event) -> dict[str, _Member]:
    """Those of two calls that compute the same of several tensors; empty where they are not the same on both sides."""
    name = operation(event.stem)
    mine = members(name, event.inputs(), event.outputs())
    theirs = members(name, partner.inputs(), partner.outputs()) if mine else {}
    if not mine or mine.keys() != theirs.keys():
        return {}
    members_found = {}
    for number, call_found in mine.items():
        other = theirs[number]
        sides = (
            OneCall(event.stem, call_found.inputs, call_found.outputs),
            OneCall(partner.stem, other.inputs, other.outputs),
        )
        members_found[call_found.slot] = _Member(
            *sides, table.note(call_found.inputs, other.inputs), table.note(call_found.outputs, other.outputs)
        )
    return members_found


def _gradients_of_batch_norms(calls: Mapping[Event, _Call]) -> frozenset[int]:
    """The places of gradients from which a mean over the rows was taken, that is rounded once for all of them."""
    return frozenset(
        place
        for event, call in calls.items()
        if event.direction == "backward" and operation(event.stem) in operators.AVERAGING
        for place in call.outputs.places
    )


def _node(
    pairing: Pairing, calls: Mapping[Event, _Call], table: DeviationTable, call: _Call, behind_norms: frozenset[int]
) -> Node:
    event = call.event
    name = name_of_member(operation(event.stem))
    if not call.members:
        whole = _Member(OneCall.of(event), OneCall.of(call.partner), call.inputs, call.outputs)
        return _node_of(pairing, calls, table, call, whole, name, behind_norms)
    nodes_found: list[Node] = []
    for slot, member in call.members.items():
        node = _node_of(pairing, calls, table, call, member, name, behind_norms)
        nodes_found.append(replace(node, results=tuple(replace(result, slot=slot) for result in node.results)))
    return replace(
        nodes_found[0],
        unit=max(node.unit for node in nodes_found),
        results=tuple(result for node in nodes_found for result in node.results),
        excused=next((node.excused for node in nodes_found if node.excused), ""),
    )


def _node_of(
    pairing: Pairing,
    calls: Mapping[Event, _Call],
    table: DeviationTable,
    call: _Call,
    member: _Member,
    name: str,
    behind_norms: frozenset[int],
) -> Node:
    event, inputs, outputs = call.event, member.inputs, member.outputs
    direction = "backward" if event.direction == "backward" else "forward"
    unit = max((*inputs.units, *outputs.units), default=0.0)
    given = [inputs]
    forward = event
    if direction == "backward":
        forward = pairing.candidate.forward_of(event) or event
        its = calls.get(forward)
        if its is not None and pairing.reference.forward_of(call.partner) is its.partner:
            given += its.inputs, its.outputs
    pairs = [
        (is_floating_slot, table.of(place))
        for tensors in given
        for is_floating_slot, place in zip(tensors.units, tensors.places, strict=True)
    ]
    floating = [deviation for is_floating_slot, deviation in pairs if is_floating_slot]
    is_known = inputs.is_same and not any(deviation.kind == "unknown" for deviation in floating)
    excused = ""
    drawn_by = forward if is_random(forward) else None
    if direction == "backward" and is_of_another_node(pairing, event, call.partner):
        excused = "another node"
    elif drawn_by is not None:
        excused = "random" if is_known else "random arguments"
    elif name in operators.UNSET:
        excused = "unset"
    elif not is_known or (name in _MOVES and _is_of_another_shape(member)):
        excused = "arguments"
    elif any(deviation.kind != "exact" for is_floating_slot, deviation in pairs if not is_floating_slot):
        excused = "whole numbers"
    elif name in operators.CONDITIONED:
        excused = "condition"
    elif name in operators.CENTRING and scales.size_of_row(name, floating) < _FEW:
        excused = "few elements"
    difference = compared.norm_of_difference(name, given[-2] if len(given) > 1 else inputs, table)
    results = []
    rows = next(iter(inputs.lengths), 0)
    # Kernels round a number that all elements are multiplied by to their type, or keep it.
    as_one = (
        unit > SINGLE and name in operators.ELEMENTWISE and any(_is_rounded(factor, unit) for factor in inputs.factors)
    )
    for slot, is_floating_slot, place, length in zip(
        outputs.slots, outputs.units, outputs.places, outputs.lengths, strict=True
    ):
        if not is_floating_slot:
            continue
        deviation = table.of(place)
        if deviation.kind == "unknown":
            excused = excused if excused not in ("", "random") else "results"
        elif direction == "backward" and (
            scales.is_of_several_uses(name, deviation, floating, _place_of(slot)) or _is_summed(event, slot)
        ):
            excused = excused or "several uses"
        elif deviation.kind == "exact":
            results.append(MeasuredResult(slot, 0.0, 0.0, 0.0, 0.0, deviation.count, False))
        else:
            # In half types each element is rounded by itself, and that is more than what rows share, but for a mean.
            shares = unit <= SINGLE or not behind_norms.isdisjoint(inputs.places)
            over_rows = shares and length != rows if direction == "backward" else name in operators.SUMS
            result = None
            try:
                if direction == "forward":
                    result = result_of_own_arguments(slot, member.ours, member.other, deviation, floating, table.rows)
                if result is None:
                    result = _result(name, direction, slot, deviation, floating, unit, over_rows, forward, difference)
                    if unit > SINGLE and direction == "forward" and name in operators.LOSSES:
                        # Kernels for CPUs add up the losses of all rows in their own type.
                        result = replace(result, units=max(result.units, math.sqrt(rows / 3.0)))
                    if name in operators.ALONG_PATHS:
                        result = _along_paths(result, direction, rows if direction == "forward" else length)
                results.append(replace(result, alone=1) if as_one else result)
                if direction == "forward":
                    results += results_by_itself(slot, member.ours, member.other, table.rows, deviation, floating, unit)
            except ArithmeticError:  # numbers that no recorder writes
                excused = excused or "results"
    if excused == "unset" and not results:
        excused = ""
    if direction == "forward" and name in scales.PRODUCTS and _types(event) != _types(call.partner):
        # One side rounds its factors, and each element of these is in many of the result.
        fewest = min((factor.count for factor in floating[:2] if factor.count), default=1)
        results = [replace(result, alone=min(result.alone, fewest)) for result in results]
    generator = "" if floating else name
    return Node(
        event, name, direction, unit, tuple(results), kind_of(event) or "", excused, False, None, drawn_by, generator
    )


def _is_summed(event: Event, slot: str) -> bool:
    """True if the gradient of an argument is not what the call itself gives for it, though that of another one is, as
    where the gradient of a gradient reaches it. What a call gives may be arranged otherwise, and has the same norm.
    """
    own = [(numel(leaf), known[3]) for leaf in event.own_gradients() if (known := numbers(leaf)) is not None]
    is_own = {
        name: any(count == numel(leaf) and abs(known[3] - norm) <= _OTHER_NORM * known[3] for count, norm in own)
        for name, leaf in (event.outputs() if own else ())
        if is_tensor(leaf) and (known := numbers(leaf)) is not None
    }
    return slot in is_own and not is_own[slot] and any(is_own.values())


def _is_of_another_shape(member: _Member) -> bool:
    """True if two calls are given tensors of as many elements in other shapes."""
    mine, theirs = ([leaf.get("shape") for _, leaf in call.inputs if is_tensor(leaf)] for call in member[:2])
    return mine != theirs


def _types(event: Event) -> list[str]:
    return [leaf["dtype"] for _, leaf in event.outputs() if is_tensor(leaf)]


def _result(
    name: str,
    direction: str,
    slot: str,
    made: Deviation,
    floating: list[Deviation],
    unit: float,
    over_rows: bool,
    forward: Event,
    difference: float,
) -> MeasuredResult:
    """``over_rows``: it is a sum over the rows of what arrives, as the gradient of a weight. ``forward``: the
    call itself, or the one that it goes back through. ``difference``: the norm of that of the tensors it compares.
    """
    scale, query = scales.result_scale(name, direction, made, floating, _place_of(slot)), int(direction == "backward")
    if direction == "forward":
        scale = max(scale, compared.terms_of_relative_entropy(name, forward, floating))
    bad_input = False
    one_by_one: dict[int, tuple[float, float]] = {}
    given = scales.chosen_otherwise(name, direction, floating) ** 2
    given += boundaries.crossed_steps(name, direction, floating, made) ** 2
    distances = made if direction == "forward" else floating[-1]
    rows_apart = compared.rows_apart(name, direction, forward, floating[query:], distances)
    if rows_apart is not None:
        given += rows_apart.by_terms(ROUNDED_INSIDE * unit) ** 2
    given += boundaries.cut_off_otherwise(name, direction, forward, floating, unit) ** 2
    power, scores = scales.exponent_of(name, forward), scales.scores_of(name, direction, forward, floating)
    steepest = scales.steepest(power, direction, floating)
    for place, deviation in enumerate(floating):
        if deviation.kind == "lower":
            bad_input = True
            continue
        size = scales.argument_scale(name, direction, place, deviation, made, scale, power)
        if place in (query, query + 1):
            size = compared.size_beside_difference(deviation, difference, size / scores.steepness)
        if rows_apart is not None and place in (query, query + 1):
            size = min(size, deviation.norm / rows_apart.sides[place - query])
        if direction == "forward":
            size = scales.size_beside_factor(name, place, floating, made, size)
        if not place and steepest:
            size = min(size, made.norm / steepest)
        if direction == "forward" and name in operators.ADDS_TO and place == 1:
            size *= scales.smallest_divisor_scale(name, floating)
        if size:
            # What is multiplied by itself counts as often as it stands there.
            times, before = one_by_one.get(id(deviation), (0.0, 0.0))
            one_by_one[id(deviation)] = (
                times + min(deviation.distance / size, ENDLESS),
                before + min(deviation.coherent / size, ENDLESS),
            )
    given += sum(size**2 for size, _ in one_by_one.values())
    coherent = sum(size**2 for _, size in one_by_one.values())
    if over_rows:
        # Errors that are the same in all rows, as those of what a norm subtracts, add up.
        given *= scales.summed(name, direction, made, floating)
    bad = made.kind == "lower" and not bad_input
    if made.kind == "lower" or bad_input:
        return MeasuredResult(slot, 0.0, 0.0, 0.0, 0.0, made.count, bad)
    # Terms that cancel out leave rounding, whose norm is another one on each side: its distance says all that there is.
    is_left_over = scale > made.norm and made.distance > scales.LEFT_OVER * made.norm
    units = scales.units_of_rounding(name, direction, made, floating, unit <= SINGLE)
    if unit <= SINGLE:  # of half types, kernels keep scores in single precision
        units = max(units, scores.steepness)
    return MeasuredResult(
        slot,
        min(made.distance / scale, ENDLESS) if scale else 0.0,
        min(made.coherent / scale, ENDLESS) if scale and not is_left_over else 0.0,
        math.sqrt(given),
        math.sqrt(coherent),
        made.count,
        bad,
        max(1.0, units),
        max(scales.rounded_alone(name, direction, made, floating) // scores.shared, 1),
        max(made.alike / scores.shared, 1.0),
        size=scale / math.sqrt(max(made.count, 1)),
    )


def _along_paths(result: MeasuredResult, direction: str, axis: int) -> MeasuredResult:
    """What follows sums of ``axis`` of its arguments: their errors know nothing of each other, and add up as well."""
    added = math.sqrt(max(axis, 1))
    return replace(
        result,
        units=scales.along_paths(result.units, direction, axis),
        given=result.given * added,
        given_coherent=result.given_coherent * added,
    )


def _place_of(slot: str) -> int | None:
    """Which argument a gradient is of; None where the record does not say."""
    name, _, number = slot.partition(".")
    return int(number) if name == "input" and number.isdecimal() else None


def _is_rounded(number: float, unit: float) -> bool:
    """True if a type of this unit does not have the number."""
    mantissa = math.frexp(number)[0] / unit if math.isfinite(number) else 0.0
    return not (2.0 * mantissa).is_integer()

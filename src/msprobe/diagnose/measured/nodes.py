"""The calls of a pair of steps, in order of execution, each with how far its results and its arguments are apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose import operators
from msprobe.diagnose.measured import scales
from msprobe.diagnose.measured.deviation import UNKNOWN, Deviation, between
from msprobe.diagnose.one_step import Paired
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.tolerance.effective import kind_of
from msprobe.diagnose.tolerance.units import common_unit
from msprobe.store.rows import Row

#: The row of a tensor, from what a record says of it.
Rows = Callable[[Any], "Row | None"]
#: What TF32 keeps of a mantissa is this much.
TF32 = 2.0**-10
#: Types that are no coarser than this are of single precision.
SINGLE = 2.0**-22
#: How far two results are apart that are both rounded once, in units (the distance of 1 to the next number): each is
#: off by a number between half a unit and minus that, root mean square 1 / sqrt(12), over a mantissa m between 1 and 2,
#: of which as many lie between m and m * c anywhere: the mean of 1 / m**2 is 3 / (8 ln 2). sqrt(2 / 12 * 3 / (8 ln 2)).
ROUNDED_ONCE = 0.3003
#: Kernels compute in single precision: of half types the result alone is rounded to the type, in single precision all
#: that is inside, too, and elements that share terms share these errors. Taken for 44 roundings, 0.3003 * sqrt(44).
ROUNDED_INSIDE = 2.0


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a call. ``distance``, ``coherent``: of the result, over its scale. ``given``, ``given_coherent``:
    the roots of the sums of squares of those of the arguments. ``count``: its elements. ``units``: what rounding the
    arguments alone does, in units. ``is_bad``: what is not finite, or fills, is in other places than in the arguments.
    """

    slot: str
    distance: float
    coherent: float
    given: float
    given_coherent: float
    count: int
    is_bad: bool
    units: float = 1.0
    #: How many of its elements are rounded by themselves: what a norm divides a row by is rounded once for all of it.
    alone: int = 1
    #: See :class:`msprobe.diagnose.measured.deviation.Deviation`.
    alike: float = 1.0


@dataclass(frozen=True, slots=True)
class Node:
    """A call of both sides. ``unit``: of the coarsest floating type among arguments and results. ``excused``: why its
    results say nothing, in a word; empty if they do. Another argument, or whole numbers that differ, are facts, which
    others name.
    """

    event: Event
    operation: str
    direction: str
    unit: float
    results: tuple[Result, ...]
    is_product: bool
    excused: str = ""

    def excess(self, product_unit: float = 0.0, doubt: float = 0.0) -> tuple[float, float]:
        """How many bits its results are further apart than its arguments and a unit of rounding, at the worst: by the
        estimated distance, and by what is coherent. Minus infinity where nothing differs. ``doubt``: what is taken off
        the first where what it is compared with is rounding, in bits; where that is an estimate itself, more is, as of
        the sum of two errors.
        """
        unit = max(self.unit, product_unit) if self.is_product and self.unit <= SINGLE else self.unit
        worst = coherent = -math.inf
        # A part of a tensor has sums of its own, and no larger distance.
        is_moved = self.direction == "forward" and self.operation in operators.MOVES
        for one in self.results:
            if one.is_bad:
                return math.inf, math.inf
            floor = (ROUNDED_INSIDE if unit <= SINGLE else ROUNDED_ONCE) * unit * one.units
            if one.distance:
                base = math.hypot(one.given, floor)
                worst = max(worst, math.log2(one.distance / base) - doubt * math.hypot(1.0, one.given / base))
            if one.coherent and not is_moved:
                # What knows nothing of each other shows in sums as well, by the root of the count less.
                floor = math.hypot(one.given / math.sqrt(max(one.alike, 1.0)), floor / math.sqrt(max(one.alone, 1)))
                coherent = max(coherent, math.log2(one.coherent / math.hypot(one.given_coherent, floor)))
        return worst, coherent


def nodes(paired: Paired, candidate: Rows, reference: Rows, is_alone: bool) -> Iterator[Node]:
    """All calls that both sides made, in the candidate's order of execution. What a module or an optimizer consists of
    stands for it. ``is_alone``: there is one rank, so that what a collective gives comes from what it is given.
    """
    pairing = paired.pairing
    of_run = max(map(common_unit, (pairing.candidate, pairing.reference)))
    for event in pairing.candidate:
        partner = pairing.partner.get(event)
        if partner is None or not event.is_call or event.direction == "gradient":
            continue
        found = _node(paired, event, partner, candidate, reference)
        if event.is_collective and not is_alone:
            found = replace(found, excused="ranks")
        # Autocast lets them compute in half types though they take and give single precision.
        yield replace(found, unit=max(found.unit, of_run)) if found.operation in operators.RECURRENT else found


def _node(paired: Paired, event: Event, partner: Event, candidate: Rows, reference: Rows) -> Node:
    (inputs, others), (outputs, results) = answering_slots(event, partner, paired.crossing)
    pairs = list(_pairs(inputs, others, candidate, reference))
    name = operation(event.stem)
    direction = "backward" if event.direction == "backward" else "forward"
    units = [unit for unit, _ in pairs]
    forward_event = event
    if direction == "backward":
        forward_event = paired.pairing.candidate.forward_of(event) or event
        forward, its = paired.pairing.candidate.forward_of(event), paired.pairing.reference.forward_of(partner)
        if forward is not None and its is not None:
            (given, theirs), (made, their) = answering_slots(forward, its, paired.crossing)
            pairs += _pairs(given, theirs, candidate, reference)
            pairs += _pairs(made, their, candidate, reference)
    made_pairs = list(_pairs(outputs, results, candidate, reference))
    units += [unit for unit, _ in made_pairs]
    unit = max(units, default=0.0)
    floating = [found for unit_of_type, found in pairs if unit_of_type]
    whole = [found for unit_of_type, found in pairs if not unit_of_type]
    excused = ""
    if is_random(forward_event) or operation(event.stem) in operators.UNSET:
        excused = "random"
    elif _plain(inputs) != _plain(others) or any(found.kind == "unknown" for found in floating):
        excused = "arguments"
    elif any(found.kind != "exact" for found in whole):
        excused = "whole numbers"
    found_results = []
    for slot, (unit_of_type, deviation) in zip([slot for slot, _ in _tensors(outputs)], made_pairs, strict=False):
        if not unit_of_type:
            continue
        if deviation.kind == "unknown":
            excused = excused or "results"
            continue
        found_results.append(_result(name, direction, slot, deviation, floating, unit))
    return Node(event, name, direction, unit, tuple(found_results), kind_of(event) is not None, excused)


def _result(name: str, direction: str, slot: str, made: Deviation, floating: list[Deviation], unit: float) -> Result:
    scale = scales.of_result(name, direction, made, floating)
    given = coherent = 0.0
    bad_input = False
    given = scales.chosen_otherwise(name, direction, floating) ** 2
    for place, one in enumerate(floating):
        if one.kind == "lower":
            bad_input = True
            continue
        size = scales.of_argument(name, direction, place, one, made, scale)
        if size:
            given += (one.distance / size) ** 2
            coherent += (one.coherent / size) ** 2
    bad = made.kind == "lower" and not bad_input
    if made.kind == "lower" or bad_input:
        return Result(slot, 0.0, 0.0, 0.0, 0.0, made.count, bad)
    return Result(
        slot,
        made.distance / scale if scale else 0.0,
        made.coherent / scale if scale else 0.0,
        math.sqrt(given),
        math.sqrt(coherent),
        made.count,
        bad,
        max(1.0, scales.units_of_rounding(name, made, floating, unit <= SINGLE)),
        scales.rounded_alone(name, made, floating),
        made.alike,
    )


def product_unit(found: Iterable[Node]) -> float:
    """The unit to which the inputs of products in single precision are rounded, where that shows: TF32's, if a quarter
    of the products whose arguments agree to more bits than it has are as far apart as it makes them; else 0. Those that
    are further apart say nothing of it.
    """
    clean = [
        one.distance
        for node in found
        if node.is_product and not node.excused and 0.0 < node.unit <= SINGLE
        for one in node.results
        if one.given < TF32 / 16 and one.distance <= 2 * TF32
    ]
    apart = [one for one in clean if one >= TF32 / 16]
    return TF32 if len(apart) * 4 >= max(len(clean), 1) else 0.0


def _plain(slots: list[Slot]) -> dict[str, Any]:
    """What is no tensor, and where tensors are."""
    return {slot: None if is_tensor(leaf) else leaf for slot, leaf in slots}


def _tensors(slots: list[Slot]) -> list[Slot]:
    return [(slot, leaf) for slot, leaf in slots if is_tensor(leaf)]


def _pairs(
    slots: list[Slot], others: list[Slot], candidate: Rows, reference: Rows
) -> Iterator[tuple[float, Deviation]]:
    """Of each tensor the unit of the coarser type of both sides, 0 for whole numbers, and its deviation."""
    theirs = dict(_tensors(others))
    for slot, leaf in _tensors(slots):
        other = theirs.get(slot)
        if other is None or numel(leaf) != numel(other):
            yield epsilon_of(leaf["dtype"]), UNKNOWN
        else:
            yield (
                max(epsilon_of(leaf["dtype"]), epsilon_of(other["dtype"])),
                between(candidate(leaf), reference(other), numel(leaf)),
            )


FAMILIES: tuple[tuple[str, frozenset[str]], ...] = (
    ("products", scales.PRODUCTS),
    ("norms", operators.CENTRING | {"rms_norm"}),
    ("exponents", operators.EXPONENTS),
    ("sums", operators.SUMS | operators.NORMS),
    ("moves", operators.MOVES | operators.CASTS),
    ("elements", operators.ELEMENTWISE),
)


def family_of(name: str) -> str:
    """The family of an operator; empty for one that is in none."""
    return next((family for family, names in FAMILIES if name in names), "")

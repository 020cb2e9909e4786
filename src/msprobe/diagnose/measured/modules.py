"""Modules, where no calls were recorded (level L0): what each of them takes and gives, against what there was before.

Which calls run in a module, and between the modules in it, is not known: any function of what there was. No part of
that is further apart, in relation to its size, than the furthest of it, but for the rounding of some calls. What a
module gives is judged by what it took, its parameters, and what the modules inside it gave; what a module takes, and
none gave, by what there was in the module around it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from msprobe.compare.name_table import layer_name
from msprobe.diagnose import operators
from msprobe.diagnose.measured import scales
from msprobe.diagnose.measured.by_itself import results_by_itself
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.node import SINGLE, MeasuredResult, Node
from msprobe.diagnose.measured.own_arguments import OneCall
from msprobe.diagnose.measured.tables import ENDLESS, DeviationTable, Tensors
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.tolerance.effective import kind_of
from msprobe.store.rows import KEY

#: The operation of a node that is a module.
MODULE = "module"
#: So many roundings in a row are taken for what runs in a module: their errors add up as the root of it.
_ROUNDED_IN_MODULE = 4.0
#: Gradients are sums of what arrives by several ways, of which some cancel out.
_CANCELLED = {"forward": 1.0, "backward": 2.0}
#: Of more modules the parameters of the same values are not one: they began alike.
_MOST_SHARED = 8
#: What has no more than this share of its norm beside its mean is constant: a mask, or ones.
_CONSTANT = 0.01
#: All elements that they take are in what they give.
_CHOOSE_NOTHING = scales.PRODUCTS | operators.TAKE_ALL_ELEMENTS


class _Condition(NamedTuple):
    """How many times further apart than what there is the results of calls may be that were not recorded. ``scores``:
    the size of the product of two tensors that modules have given, whose exponent is as many times further apart as it
    is large. ``mean``: a tensor's norm over what is left of it where its mean is taken off.
    """

    scores: float = 1.0
    mean: float = 1.0


_NO_CONDITION = _Condition()


class _Pass(NamedTuple):
    """A pass of a module on both sides."""

    inputs: Tensors
    outputs: Tensors
    parameters: Tensors


class _Scope:
    """What there is in a module pass so far: the furthest of it, in relation to its size, and whether all is known."""

    def __init__(self) -> None:
        self.apart = self.coherent = 0.0
        self.is_known = True
        self.is_empty = True

    def add(self, table: DeviationTable, tensors: Tensors) -> None:
        self.is_empty &= not tensors.places
        for is_floating, place in zip(tensors.units, tensors.places, strict=True):
            deviation = table.of(place)
            if not is_floating:
                self.is_known &= deviation.kind == "exact"
            elif not deviation.is_known:
                self.is_known = False
            elif deviation.norm:
                self.apart = max(self.apart, min(deviation.distance / deviation.norm, ENDLESS))
                self.coherent = max(self.coherent, min(deviation.coherent / deviation.norm, ENDLESS))

    def take_over(self, other: _Scope) -> None:
        self.apart = max(self.apart, other.apart)
        self.coherent = max(self.coherent, other.coherent)
        self.is_known &= other.is_known
        self.is_empty &= other.is_empty


def module_nodes(pairing: Pairing, unit: float, crossing: bool = False) -> Iterator[Node]:
    """The passes of all modules that both sides made, and the gradients of their parameters, in the candidate's order
    of execution. ``unit``: of the run. ``crossing``: one side ran on MindSpore, the other on PyTorch.
    """
    table = DeviationTable(pairing.candidate.part.rows, pairing.reference.part.rows, crossing)
    passes: dict[Event, _Pass] = {}
    for event in pairing.candidate:
        partner = pairing.partner.get(event)
        if partner is not None and (event.is_module or event.direction == "gradient"):
            passes[event] = _Pass(
                table.note(event.inputs(), _alike_shaped(event.inputs(), partner.inputs())),
                table.note(event.outputs(), _alike_shaped(event.outputs(), partner.outputs())),
                table.note(event.parameters(), _alike_shaped(event.parameters(), partner.parameters())),
            )
    table.measure()
    # Autocast computes in half types inside of modules that take and give single precision; one that gives a half type
    # says that it is on.
    coarsest = max((size for tensors in passes.values() for size in tensors.outputs.units), default=0.0)
    yield from _Modules(pairing, table, passes, max(unit, coarsest)).nodes()


def _alike_shaped(slots: list[Slot], others: list[Slot]) -> list[Slot]:
    """The reference's, without the rows of tensors that have other shapes: their elements may be in another order."""
    shapes = {slot: leaf.get("shape") for slot, leaf in slots if is_tensor(leaf)}
    return [
        (slot, {**leaf, KEY: -1} if is_tensor(leaf) and shapes.get(slot) != leaf.get("shape") else leaf)
        for slot, leaf in others
    ]


def _sharing(passes: Mapping[Event, _Pass]) -> dict[str, set[str]]:
    """By the path of a module, the others that have a parameter of the same values: one that they share."""
    owners: dict[int, set[str]] = {}
    for event, tensors in passes.items():
        for place in tensors.parameters.places:
            owners.setdefault(place, set()).add(event.parts.path)
    sharing: dict[str, set[str]] = {}
    for place, paths in owners.items():
        if place >= 0 and 1 < len(paths) <= _MOST_SHARED:
            for path in paths:
                sharing.setdefault(path, set()).update(paths - {path})
    return sharing


class _Modules:
    """Goes through the passes of a step."""

    def __init__(self, pairing: Pairing, table: DeviationTable, passes: dict[Event, _Pass], unit: float) -> None:
        self._pairing, self._table, self._passes, self._unit = pairing, table, passes, unit
        # Gradients of several ranks may be sums of what these give.
        self._is_alone = all(side.part.ours.get("world", 1) == 1 for side in (pairing.candidate, pairing.reference))
        #: By the pass around them, of what was given inside it so far, in each direction.
        self._given: dict[tuple[Event | None, str], _Scope] = {}
        self._known: dict[tuple[Event, bool], _Scope] = {}
        #: By the path of a module, of all its passes.
        self._by_module: dict[str, _Scope] = {}
        #: By the path of a module, those that share a parameter with it.
        self._sharing = _sharing(passes)
        #: By the path of a module, of its last pass back what arrived, and what it took in the forward pass.
        self._factors_of_weight: dict[str, tuple[Deviation, ...]] = {}
        self._places: set[int] = set()
        #: By the pass around them, of modules that have given gradients: see :meth:`_aligned`.
        self._behind: dict[Event | None, list[float]] = {}
        #: By the pass around them, the places of what modules have given in the forward pass and none has taken: what
        #: the calls between them compute of.
        self._untaken: dict[Event | None, set[int]] = {}

    def nodes(self) -> Iterator[Node]:
        for event, tensors in self._passes.items():
            if event.direction == "gradient":
                yield self._gradient(event, tensors.outputs)
                continue
            is_judged = event.direction in ("forward", "backward")
            if event.direction == "forward":
                self._untaken.get(event.parent, set()).difference_update(tensors.inputs.places)
            if is_judged:
                around = self._scope(event.parent, event.direction)
                yield from self._node(event, tensors.inputs, around, is_taken=True)
            inside = self._scope(event, event.direction)
            if is_judged:
                yield from self._node(event, tensors.outputs, inside, is_taken=False)
            inside.add(self._table, tensors.outputs)
            if event.direction == "backward":
                self._behind.setdefault(event.parent, []).append(self._aligned(event, given_back=True))
                self._factors_of_weight[event.parts.path] = self._factors(event, "weight")
            self._by_module.setdefault(event.parts.path, _Scope()).take_over(inside)
            self._given.setdefault((event.parent, event.direction), _Scope()).add(self._table, tensors.outputs)
            self._places.update(tensors.outputs.places)
            if event.direction == "forward":
                self._untaken.setdefault(event.parent, set()).update(tensors.outputs.places)

    def _scope(self, event: Event | None, direction: str) -> _Scope:
        """What there is in a pass: what it takes, its parameters, what the modules in it have given; going back, what
        there was in the forward pass as well.
        """
        scope = _Scope()
        forward = self._pairing.candidate.forward_of(event) if event is not None and direction == "backward" else event
        for passed, at in ((event, direction), (forward, "forward")):
            if passed in self._passes:
                scope.take_over(self._own(passed, with_outputs=at != direction))
            if (passed, at) in self._given:
                scope.take_over(self._given[passed, at])
        return scope

    def _own(self, event: Event, with_outputs: bool) -> _Scope:
        """What a pass itself takes (and gives)."""
        scope = self._known.get((event, with_outputs))
        if scope is None:
            scope, tensors = _Scope(), self._passes[event]
            for side in (tensors.inputs, tensors.parameters, *((tensors.outputs,) if with_outputs else ())):
                scope.add(self._table, side)
            self._known[event, with_outputs] = scope
        return scope

    def _node(self, event: Event, tensors: Tensors, scope: _Scope, is_taken: bool) -> Iterator[Node]:
        """``is_taken``: the tensors are what the pass takes, of which a module before it may have given some."""
        results: list[MeasuredResult] = []
        is_known = scope.is_known and (is_taken or tensors.is_same)
        leaves = dict(event.inputs() if is_taken else event.outputs())
        for slot, is_floating, place in zip(tensors.slots, tensors.units, tensors.places, strict=True):
            deviation = self._table.of(place)
            if not is_floating or (is_taken and (deviation.kind == "exact" or place in self._places)):
                continue
            if not deviation.is_known:
                is_known = False
                continue
            operator = "" if is_taken else _operator(event)
            terms = self._terms(event, slot, operator, deviation)
            if event.direction == "backward" and not operator:
                terms = max(terms, self._along(event, place, deviation, is_taken))
            condition = _NO_CONDITION if operator else self._condition(event, is_taken)
            results.append(_result(slot, deviation, leaves[slot], scope, event.direction, operator, terms, condition))
            if operator and event.direction == "forward":
                results += self._by_itself(event, slot, operator, deviation)
        if not results or (is_taken and scope.is_empty):
            if results:
                yield Node(event, MODULE, event.direction, self._unit, (), "", from_outside=True)
            return
        excused = "" if is_known else "arguments"
        product = "" if is_taken else kind_of(event) or ""
        yield Node(event, MODULE, event.direction, self._unit, tuple(results), product, excused, is_taken=is_taken)

    def _by_itself(self, event: Event, slot: str, operator: str, made: Deviation) -> list[MeasuredResult]:
        """A layer as a call of the function that it is, with its parameters as arguments."""
        calls = [
            OneCall(f"Module.{operator}", [*side.inputs(), *side.parameters()], side.outputs())
            for side in (event, self._pairing.partner[event])
        ]
        taken = self._floating(self._passes[event].inputs)
        return results_by_itself(slot, calls[0], calls[1], self._table.rows, made, taken, self._unit)

    def _condition(self, event: Event, is_taken: bool) -> _Condition:
        """How many times further apart than what a pass takes, and modules in it have given, results of calls between
        them may be. Of what a loss gives back nothing is said: where the backward pass begins, scores are behind it.
        """
        around = event.parent if is_taken else event
        if event.direction == "backward":
            if around is None and (around, event.direction) not in self._given:
                return _NO_CONDITION
            around = self._pairing.candidate.forward_of(around) if around is not None else None
        given = [self._table.of(place) for place in self._untaken.get(around, ())]
        taken = self._floating(self._passes[around].inputs) if around in self._passes else []
        largest = max((tensor.norm / math.sqrt(max(tensor.count, 1)) for tensor in given), default=0.0)
        means = [tensor.norm / tensor.spread for tensor in (*given, *taken) if tensor.spread > _CONSTANT * tensor.norm]
        return _Condition(max(largest * largest, 1.0) if math.isfinite(largest) else 1.0, max(means, default=1.0))

    def _terms(self, event: Event, slot: str, operator: str, made: Deviation) -> float:
        """The norm of what a layer gives before terms of it cancel out; 0 where nothing is known of them."""
        if operator in scales.PRODUCTS:
            return _norm_of_product(self._factors(event, slot), made)
        forward = self._passes.get(self._pairing.candidate.forward_of(event) or event)
        if event.direction != "backward" or forward is None:
            return 0.0
        sides = self._passes[event].inputs, forward.inputs, forward.outputs
        return scales.result_scale(operator, "backward", made, [*itertools.chain(*map(self._floating, sides))])

    def _along(self, event: Event, place: int, made: Deviation, is_taken: bool) -> float:
        """The norm of the part of a gradient along its tensor x, before calls between modules take it off: what gives y
        of x, and is twice as large where that is, has ``<x, dL/dx> = <y, dL/dy>`` (Euler), so it is that over the norm
        of x. Norms, softmax and gates in front of norms take all of it off, and rounding is left.
        """
        forward = self._pairing.candidate.forward_of(event)
        around = event.parent if is_taken else event
        sides = self._passes.get(forward) if forward is not None else None
        if sides is None or around is None:
            return 0.0
        tensors = self._floating(sides.outputs if is_taken else sides.inputs)
        norm = max((tensor.norm for tensor in tensors if tensor.count == made.count), default=0.0)
        return (
            max((size / norm for size in (self._aligned(around), *self._behind.get(around, ()))), default=0.0)
            if norm
            else 0.0
        )

    def _aligned(self, event: Event, given_back: bool = False) -> float:
        """The product of the norms of what comes back to a pass (or ``given_back``) and of what it is the gradient."""
        forward = self._pairing.candidate.forward_of(event)
        sides = self._passes.get(forward) if forward is not None else None
        if sides is None:
            return 0.0
        passed = self._passes[event]
        gradients, tensors = (passed.outputs, sides.inputs) if given_back else (passed.inputs, sides.outputs)
        pairs = itertools.product(self._floating(gradients), self._floating(tensors))
        return max(
            (gradient.norm * tensor.norm for gradient, tensor in pairs if gradient.count == tensor.count), default=0.0
        )

    def _factors(self, event: Event, slot: str) -> tuple[Deviation, ...]:
        """What a layer multiplies: what it takes and its weight, what arrives and the weight, or what arrives and what
        it took. ``slot``: of the result; ``weight``: of the gradient of that.
        """
        forward = self._passes.get(self._pairing.candidate.forward_of(event) or event) or self._passes[event]
        arriving = self._floating(self._passes[event].inputs)
        other = self._floating(forward.inputs if slot == "weight" else forward.parameters)
        return (arriving[0], other[0]) if arriving and other else ()

    def _floating(self, tensors: Tensors) -> list[Deviation]:
        return [
            self._table.of(place)
            for is_floating, place in zip(tensors.units, tensors.places, strict=True)
            if is_floating
        ]

    def _gradient(self, event: Event, tensors: Tensors) -> Node:
        """Of matrices: sums over all rows, as the gradients of vectors are, may cancel out."""
        scope, leaves, path = _Scope(), dict(event.outputs()), event.parts.path
        # What several modules share gets the sum of what each of them gives.
        for shared in (path, *self._sharing.get(path, ())):
            if shared in self._by_module:
                scope.take_over(self._by_module[shared])
        operator = _operator(event)
        factors = self._factors_of_weight.get(path, ()) if operator in scales.PRODUCTS else ()
        results = []
        for slot, place in zip(tensors.slots, tensors.places, strict=True):
            deviation = self._table.of(place)
            is_known = self._is_alone and scope.is_known and deviation.is_known
            if not is_known or len(leaves[slot].get("shape") or []) < 2:
                continue
            terms = _norm_of_product(factors, deviation)
            result = _result(slot, deviation, leaves[slot], scope, "backward", operator, terms, _NO_CONDITION)
            if factors and self._unit <= SINGLE:
                # Errors that are the same in all rows, as those of what a norm subtracts, add up.
                added = scales.summed(operator, "backward", deviation, factors)
                result = replace(result, given=result.given * math.sqrt(added))
            results.append(result)
        direction = "backward" if results else "gradient"
        return Node(event, MODULE if results else "", direction, self._unit, tuple(results), "")


def _norm_of_product(factors: Sequence[Deviation], product: Deviation) -> float:
    return scales.norm_of_product(factors[0], factors[1], product) if factors else 0.0


def _operator(event: Event) -> str:
    """What a layer computes, of which no modules inside were recorded; empty for what is none that is known."""
    layer = layer_name(event.parts.owner) if not event.children else None
    return operators.operator_of_layer(layer) if layer is not None else ""


def _result(
    slot: str,
    deviation: Deviation,
    leaf: dict[str, Any],
    scope: _Scope,
    direction: str,
    operator: str,
    terms: float,
    condition: _Condition,
) -> MeasuredResult:
    """A tensor that is made of what is in ``scope``. ``operator``: by this one alone, or (empty) by any. ``terms``:
    its norm before they cancel out. ``condition``: of what lies between.
    """
    is_product = operator in scales.PRODUCTS
    cancelled = 1.0 if is_product else _CANCELLED[direction]
    # As of attention in one call (scales.scores_of): in most rows one score is far above the others.
    times = condition.scores if direction == "backward" else math.sqrt(condition.scores)
    times = max(times, condition.mean)
    given = cancelled * scope.apart * times
    chooses = (deviation.zeros and operator not in _CHOOSE_NOTHING) or operator in operators.COMPARES_ELEMENTS
    if direction == "backward" and chooses:
        # Some elements were not chosen (a maximum, a limit at zero), or get another slope. Of those about the boundary
        # a share as large as they are apart changes sides, whose gradients differ by all they are.
        given = math.hypot(given, math.sqrt(min(scope.apart, 1.0)))
    distance = coherent = 0.0
    # Behind a norm that takes no notice of it, much of a product cancels out.
    size = max(deviation.norm, terms)
    if size:
        distance, coherent = min(deviation.distance / size, ENDLESS), min(deviation.coherent / size, ENDLESS)
    last = max((leaf.get("shape") or [1])[-1], 1)
    # Rows are chosen whole, and a score is one of a row: the elements of a row share what comes of it.
    shared = last if condition.scores > 1.0 or (direction == "backward" and chooses) else 1
    return MeasuredResult(
        slot,
        distance,
        coherent,
        given,
        cancelled * scope.coherent,
        deviation.count,
        False,
        units=1.0 if is_product else math.sqrt(_ROUNDED_IN_MODULE) * times,
        # What a row is divided by, or multiplied by, is rounded once for all of it.
        alone=deviation.count if is_product else max(deviation.count // last, 1),
        alike=max(deviation.alike / shared, 1.0),
    )

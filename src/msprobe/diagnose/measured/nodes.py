"""The calls of a pair of steps, in order of execution, each with how far its results and its arguments are apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from msprobe.compare.entry_names import operation
from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose import operators
from msprobe.diagnose.measured import scales
from msprobe.diagnose.measured.deviation import UNKNOWN, Deviation, between
from msprobe.diagnose.measured.own_arguments import error_of_call
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.steps.process_group import ranks_of_group
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.tolerance.effective import kind_of
from msprobe.diagnose.tolerance.judge import is_of_another_node
from msprobe.diagnose.tolerance.told_units import Rounding, possible_rounding
from msprobe.diagnose.tolerance.units import common_unit
from msprobe.store.rows import Rows, number_of

#: Types that are no coarser than this are of single precision.
SINGLE = 2.0**-22
#: How far two results are apart that are both rounded once, in units (the distance of 1 to the next number): each is
#: off by a number between half a unit and minus that, root mean square 1 / sqrt(12), over a mantissa m between 1 and 2,
#: of which as many lie between m and m * c anywhere: the mean of 1 / m**2 is 3 / (8 ln 2). sqrt(2 / 12 * 3 / (8 ln 2)).
ROUNDED_ONCE = 0.3003
#: Kernels compute in single precision: of half types the result alone is rounded to the type, in single precision all
#: that is inside, too, and elements that share terms share these errors. Taken for 44 roundings, 0.3003 * sqrt(44).
ROUNDED_INSIDE = 2.0


#: What is divided by the spread of a row is off by as much as the smallest spread makes it; of fewer elements than so
#: many (a weight has one for each) that has no mean: the inverse of a chi-square to the power of two has none up to 4.
_FEW = 8


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
    #: What differs is what its own arguments do, on both sides, and nothing besides.
    is_carried: bool = False


class Exchange(NamedTuple):
    """Which collective a call is, and what its rank puts in. ``key``: API and ranks of its group, ``number``: how many
    of the same key came before. ``distance``, ``coherent``: of all that it puts in together, in units of elements; NaN
    where that is not known. ``norms``: of its results.
    """

    key: tuple[str, tuple[int, ...]]
    number: int
    distance: float
    coherent: float
    norms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A call of both sides. ``unit``: of the coarsest floating type among arguments and results. ``product``: what kind
    of kernel it multiplies with (:func:`msprobe.diagnose.tolerance.effective.kind_of`), or empty. ``excused``: why its
    results say nothing, in a word; empty if they do. Another argument, or whole numbers that differ, are facts, which
    others name. ``from_outside``: it takes a tensor that differs, and that no call before it has made. Gradients of a
    module's parameters are a node without results in the direction ``gradient``: they are made of what calls gave.
    """

    event: Event
    operation: str
    direction: str
    unit: float
    results: tuple[Result, ...]
    product: str
    excused: str = ""
    from_outside: bool = False
    #: Of a collective on several ranks: its results have what this rank puts in as ``given``.
    exchange: Exchange | None = None

    def excess(self, product_unit: float = 0.0, doubt: float = 0.0) -> tuple[float, float]:
        """How many bits its results are further apart than its arguments and a unit of rounding, at the worst: by the
        estimated distance, and by what is coherent. Minus infinity where nothing differs. ``doubt``: what is taken off
        the first where what it is compared with is rounding, in bits; where that is an estimate itself, more is, as of
        the sum of two errors.
        """
        unit = max(self.unit, product_unit) if self.product and self.unit <= SINGLE else self.unit
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


class _Tensors(NamedTuple):
    """One tensor after the other: the slot, the unit of the coarser type of both sides (0 for whole numbers), the place
    of the deviation in its table (-1 where there is none), and the size of the first dimension (0 of a number).
    ``is_same``: what is no tensor is the same, and tensors are in the same places. ``factors``: the numbers among them
    that are no whole ones.
    """

    slots: tuple[str, ...]
    units: tuple[float, ...]
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    is_same: bool
    factors: tuple[float, ...]


class _Call(NamedTuple):
    """A pair of calls."""

    event: Event
    partner: Event
    inputs: _Tensors
    outputs: _Tensors


class _Table:
    """The deviations of pairs of tensors: each pair of rows is noted once, and all are computed together."""

    def __init__(self, candidate: Rows, reference: Rows) -> None:
        self._rows = candidate, reference
        self._places: dict[tuple[int, int, int, bool], int] = {}
        self._found: list[Deviation] = []

    def note(self, slots: list[Slot], others: list[Slot]) -> _Tensors:
        """Tensors that answer to each other, by the names of the candidate's."""
        theirs = dict(others)
        is_same = len(slots) == len(theirs)
        found = []
        factors: list[float] = []
        noted = self._places
        for slot, leaf in slots:
            other = theirs.get(slot, _ABSENT)
            if not is_tensor(leaf):
                is_same = is_same and (leaf is other or (leaf is None and is_tensor(other)) or leaf == other)
                if type(leaf) is dict and type(number := leaf.get("value")) is float:
                    factors.append(number)
                continue
            unit = epsilon_of(leaf["dtype"])
            if not is_tensor(other):
                is_same = is_same and other is None
                found.append((slot, unit, -1, 0))
                continue
            if (count := numel(leaf)) != numel(other):
                found.append((slot, unit, -1, 0))
                continue
            if other["dtype"] != leaf["dtype"]:
                unit = max(unit, epsilon_of(other["dtype"]))
            one, its = number_of(leaf), number_of(other)
            place = -1
            if one >= 0 and its >= 0:
                alike = leaf.get("nan") == other.get("nan") and leaf.get("inf") == other.get("inf")
                place = noted.setdefault((one, its, count, alike), len(noted))
            shape = leaf.get("shape")
            found.append((slot, unit, place, shape[0] if shape else 0))
        if not found:
            return _Tensors((), (), (), (), is_same, tuple(factors))
        names, units, places, lengths = zip(*found, strict=True)
        return _Tensors(names, units, places, lengths, is_same, tuple(factors))

    def measure(self) -> None:
        """Compute what was noted."""
        mine, theirs = self._rows[0].numbers, self._rows[1].numbers
        self._found = [between(mine(one), theirs(other), count, alike) for one, other, count, alike in self._places]

    def error_of(self, call: _Call) -> Deviation | None:
        """See :func:`msprobe.diagnose.measured.own_arguments.error_of_call`."""
        return error_of_call(call.event, call.partner, *self._rows)

    def of(self, place: int) -> Deviation:
        """The deviation at a place of the table."""
        return self._found[place] if place >= 0 else UNKNOWN


class _Made:
    """What calls have made so far. Where a tensor is used several times its gradient is a sum, and gradients become
    those of parameters, without a call: what is no further apart than all results with as many elements is one of them.
    """

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._places: set[int] = set()
        self._apart: dict[int, float] = {}

    def add(self, results: _Tensors) -> None:
        """These were made."""
        for place in results.places:
            if place >= 0 and place not in self._places:
                self._places.add(place)
                one = self._table.of(place)
                self._apart[one.count] = self._apart.get(one.count, 0.0) + min(one.distance, _ENDLESS) ** 2

    def is_new_in(self, arguments: _Tensors) -> bool:
        """True if one of these differs, and was not made."""
        for unit, place in zip(arguments.units, arguments.places, strict=True):
            one = self._table.of(place)
            if not unit or one.kind == "exact" or place in self._places:
                continue
            if one.kind != "estimate" or one.distance > _DOUBLED * math.sqrt(self._apart.get(one.count, 0.0)):
                return True
        return False


#: Distances are estimates, each of which may be off by so much.
_DOUBLED = 2.0
_ABSENT = object()


def nodes(pairing: Pairing, is_alone: bool, crossing: bool = False) -> Iterator[Node]:
    """All calls that both sides made, in the candidate's order of execution, by the rows of both dumps. What a module
    or an optimizer consists of stands for it. Gradients of parameters are among them. ``is_alone``: there is one rank,
    so that what a collective gives comes from what it is given. ``crossing``: one side ran on MindSpore, the other on
    PyTorch.
    """
    table = _Table(pairing.candidate.part.rows, pairing.reference.part.rows)
    calls: dict[Event, _Call] = {}
    for event in pairing.candidate:
        partner = pairing.partner.get(event)
        if partner is None or not (event.is_call or event.direction == "gradient"):
            continue
        (inputs, others), (outputs, results) = answering_slots(event, partner, crossing)
        calls[event] = _Call(event, partner, table.note(inputs, others), table.note(outputs, results))
    table.measure()
    of_run = max(map(common_unit, (pairing.candidate, pairing.reference)))
    made = _Made(table)
    numbers = {} if is_alone else _numbers_of_exchanges(pairing)
    for call in calls.values():
        if call.event.direction == "gradient":
            # Where all rows are the same, they explain no difference that is recorded.
            if any(table.of(place).distance for place in call.outputs.places):
                is_new, unit = made.is_new_in(call.outputs), max(call.outputs.units)
                yield Node(call.event, "", "gradient", unit, (), "", from_outside=is_new)
            continue
        if call.event in numbers:
            found = _of_exchange(table, call, numbers[call.event])
        else:
            found = _node(pairing, calls, table, call)
            if not is_alone and _exchanges(pairing, call.event):
                found = replace(found, excused="ranks")
        found = replace(found, from_outside=made.is_new_in(call.inputs))
        made.add(call.outputs)
        # Autocast lets them compute in half types though they take and give single precision.
        yield replace(found, unit=max(found.unit, of_run)) if found.operation in operators.RECURRENT else found


#: A relative distance beyond which no number says more.
_ENDLESS = 1e60
_NAN = math.nan, math.nan
#: What a program's own ``torch.autograd.Function`` calls is not seen, and may be a collective.
_OWN_FUNCTION = "Function."


def _numbers_of_exchanges(pairing: Pairing) -> dict[Event, tuple[tuple[str, tuple[int, ...]], int]]:
    """The collectives of the candidate on several ranks that are known, each with its key and number."""
    found: dict[Event, tuple[tuple[str, tuple[int, ...]], int]] = {}
    numbers: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for event in pairing.candidate:
        if event.is_collective and event.direction == "forward" and len(ranks := ranks_of_group(event)) > 1:
            key = event.stem, ranks
            found[event] = key, numbers[key]
            numbers[key] += 1
    return found


def _of_exchange(table: _Table, call: _Call, place: tuple[tuple[str, tuple[int, ...]], int]) -> Node:
    """What a collective gives may be as far apart as all that is put in: a sum, a part of one, or copies of it."""
    given, made = call.inputs, call.outputs
    taken = [table.of(number) for of_type, number in zip(given.units, given.places, strict=True) if of_type]
    is_known = given.is_same and all(one.is_known for one in taken)
    distance, coherent = (sum(one.distance for one in taken), sum(one.coherent for one in taken)) if is_known else _NAN
    results, norms, excused = [], [], "" if is_known else "arguments"
    for slot, of_type, number in zip(made.slots, made.units, made.places, strict=True):
        one = table.of(number)
        if not of_type or one.kind == "exact":
            continue
        if not one.is_known or not one.norm:
            excused = excused or "results"
            continue
        apart, coherently, put_in, coherently_put_in = (
            min(size / one.norm, _ENDLESS) for size in (one.distance, one.coherent, distance, coherent)
        )
        whole = max(int(one.alike), 1)
        results.append(
            Result(slot, apart, coherently, put_in, coherently_put_in, one.count, False, alone=whole, alike=one.alike)
        )
        norms.append(one.norm)
    exchange = Exchange(*place, distance, coherent, tuple(norms))
    unit = max((*given.units, *made.units), default=0.0)
    name = operation(call.event.stem)
    return Node(call.event, name, "forward", unit, tuple(results), "", excused, exchange=exchange)


def _exchanges(pairing: Pairing, event: Event) -> bool:
    """True for a call, or the backward of one, that exchanges data between ranks, or holds one that does. A group of
    one rank exchanges nothing.
    """
    forward = (pairing.candidate.forward_of(event) if event.direction == "backward" else None) or event
    todo = [event, forward]
    while todo:
        one = todo.pop()
        if one.name.startswith(_OWN_FUNCTION) or (one.is_collective and len(ranks_of_group(one)) != 1):
            return True
        todo += one.children
    return False


def _node(pairing: Pairing, calls: Mapping[Event, _Call], table: _Table, call: _Call) -> Node:
    event, outputs = call.event, call.outputs
    name = operation(event.stem)
    direction = "backward" if event.direction == "backward" else "forward"
    unit = max((*call.inputs.units, *outputs.units), default=0.0)
    given = [call.inputs]
    forward = event
    if direction == "backward":
        forward = pairing.candidate.forward_of(event) or event
        its = calls.get(forward)
        if its is not None and pairing.reference.forward_of(call.partner) is its.partner:
            given += its.inputs, its.outputs
    pairs = [(of_type, table.of(place)) for one in given for of_type, place in zip(one.units, one.places, strict=True)]
    floating = [found for of_type, found in pairs if of_type]
    excused = ""
    if is_random(forward) or name in operators.UNSET:
        excused = "random"
    elif direction == "backward" and is_of_another_node(pairing, event, call.partner):
        excused = "another node"
    elif not call.inputs.is_same or any(found.kind == "unknown" for found in floating):
        excused = "arguments"
    elif any(found.kind != "exact" for of_type, found in pairs if not of_type):
        excused = "whole numbers"
    elif name in operators.CENTRING and min((one.count for one in floating if one.count > 1), default=0) < _FEW:
        excused = "few elements"
    results = []
    rows = next(iter(call.inputs.lengths), 0)
    # Kernels round a number that all elements are multiplied by to their type, or keep it.
    as_one = (
        unit > SINGLE and name in operators.ELEMENTWISE and any(_is_rounded(one, unit) for one in call.inputs.factors)
    )
    for slot, of_type, place, length in zip(outputs.slots, outputs.units, outputs.places, outputs.lengths, strict=True):
        if not of_type:
            continue
        deviation = table.of(place)
        if deviation.kind == "unknown":
            excused = excused or "results"
        elif direction == "backward" and scales.is_of_several_uses(name, deviation, floating, _place_of(slot)):
            excused = excused or "several uses"
        elif deviation.kind == "exact":
            results.append(Result(slot, 0.0, 0.0, 0.0, 0.0, deviation.count, False))
        else:
            # In half types each element is rounded by itself, and that is more than what rows share.
            over_rows = unit <= SINGLE and length != rows if direction == "backward" else name in operators.SUMS
            own = table.error_of(call) if direction == "forward" else None
            try:
                if own is not None:
                    found = _of_own_arguments(slot, own, deviation)
                else:
                    found = _result(name, direction, slot, deviation, floating, unit, over_rows)
                results.append(replace(found, alone=1) if as_one else found)
            except ArithmeticError:  # numbers that no recorder writes
                excused = excused or "results"
    return Node(event, name, direction, unit, tuple(results), kind_of(event) or "", excused)


def _of_own_arguments(slot: str, own: Deviation, made: Deviation) -> Result:
    scale = own.norm
    distance, coherent = (size / scale if scale else 0.0 for size in (own.distance, own.coherent))
    whole = max(int(made.alike), 1)
    return Result(
        slot, distance, coherent, 0.0, 0.0, made.count, False, alone=whole, alike=made.alike, is_carried=not distance
    )


def _result(
    name: str, direction: str, slot: str, made: Deviation, floating: list[Deviation], unit: float, over_rows: bool
) -> Result:
    """``over_rows``: it is a sum over the rows of what arrives, as the gradient of a weight."""
    scale = scales.of_result(name, direction, made, floating, _place_of(slot))
    given = coherent = 0.0
    bad_input = False
    given = scales.chosen_otherwise(name, direction, floating) ** 2
    for place, one in enumerate(floating):
        if one.kind == "lower":
            bad_input = True
            continue
        size = scales.of_argument(name, direction, place, one, made, scale)
        if size:
            given += min(one.distance / size, _ENDLESS) ** 2
            coherent += min(one.coherent / size, _ENDLESS) ** 2
    if over_rows:
        # Errors that are the same in all rows, as those of what a norm subtracts, add up.
        given *= scales.summed(name, direction, made, floating)
    bad = made.kind == "lower" and not bad_input
    if made.kind == "lower" or bad_input:
        return Result(slot, 0.0, 0.0, 0.0, 0.0, made.count, bad)
    return Result(
        slot,
        min(made.distance / scale, _ENDLESS) if scale else 0.0,
        min(made.coherent / scale, _ENDLESS) if scale else 0.0,
        math.sqrt(given),
        math.sqrt(coherent),
        made.count,
        bad,
        max(1.0, scales.units_of_rounding(name, direction, made, floating, unit <= SINGLE)),
        scales.rounded_alone(name, made, floating),
        made.alike,
    )


def _place_of(slot: str) -> int | None:
    """Which argument a gradient is of; None where the record does not say."""
    name, _, number = slot.partition(".")
    return int(number) if name == "input" and number.isdecimal() else None


#: Where no header says anything.
UNTOLD: Mapping[str, Rounding] = possible_rounding({}, {})
#: Of a kind with fewer calls than this that can say so, all that multiply decide.
_FEW_CALLS = 5


def product_units(found: Iterable[Node], possible: Mapping[str, Rounding] = UNTOLD) -> dict[str, float]:
    """The unit to which the inputs of products in single precision are rounded, where that is possible and shows, by
    the kind of their kernels: matrices and convolutions have settings of their own. It shows if a quarter of the calls
    that can say so are as far apart as it makes them, and their arguments are not. Calls that are further apart say
    nothing of it. ``possible``: what headers allow (:func:`msprobe.diagnose.tolerance.told_units.possible_rounding`).
    """
    clean: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for node in found:
        rounding = possible.get(node.product)
        if rounding is None or not rounding.unit or node.excused or not 0.0 < node.unit <= SINGLE:
            continue
        unit = rounding.unit
        sizes = [one for one in node.results if one.distance <= 2 * unit]
        shows = any(one.distance >= max(unit / 16, 2 * one.given) for one in sizes)
        apart[node.product] += shows
        clean[node.product] += shows or any(one.given < unit / 16 for one in sizes)
    every = apart.total(), clean.total()
    units: dict[str, float] = {}
    for kind, count in clean.items():
        few = count < _FEW_CALLS and not possible[kind].is_told
        ones, of_all = every if few else (apart[kind], count)
        if ones and ones * 4 >= of_all:
            units[kind] = possible[kind].unit
    return units


def _is_rounded(number: float, unit: float) -> bool:
    """True if a type of this unit does not have the number."""
    mantissa = math.frexp(number)[0] / unit if math.isfinite(number) else 0.0
    return not (2.0 * mantissa).is_integer()


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

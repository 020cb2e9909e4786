"""Gradients on their way: what arrives at a parameter, and what clipping or an optimizer takes of it.

No call computes them there. A gradient that is one that a call gave is no further apart than that, and one that is the
sum of those of several backward passes no further than all of them: where it is, it was changed on its way, as by a
hook, by clearing gradients between two passes, or by leaving those of the step before.

Which gradient a tensor is, its row says on either side: signed sums of a sum are the sums of signed sums.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence

from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.node import FEW_ELEMENTS, GradientPass, MeasuredResult, Node, TakenGradient
from msprobe.diagnose.measured.own_arguments import SUMMED_IN_SINGLE
from msprobe.diagnose.measured.tables import ENDLESS, DeviationTable, Sums, Tensors, sums_of
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.parameter_names import plain_name
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.store.rows import SUMS, Numbers, number_of

#: In units, over the norms of all that is added up: sums of gradients are rounded once for each.
_ROUNDED = 1.0
#: So many comparisons of a tensor with the gradients of a parameter, in a step.
_MOST_COMPARED = 200_000
#: So many gradients of a step are looked for among those of all ranks, each as the sum of so many passes at the most.
_MOST_PUT_TOGETHER, _MOST_PASSES = 100, 16
#: What other ranks gave is further apart by so much at the most, or cancels out as much.
_OTHER_RANKS = 2.0
_SIDES = 1, 0
_ROOT_OF_SUMS = math.sqrt(SUMS)
_NOT_ADDED_UP = 0, 1.0


class GradientsHandedOn:
    """The gradients of one step on both sides. Give it what is made in the order of execution."""

    def __init__(self, table: DeviationTable, pairing: Pairing) -> None:
        self._table = table
        # What calls of one side alone give: they, and no way between two calls, make what differs.
        self._given_alone = tuple(
            {
                sums
                for event in side
                if event.is_call and event not in paired
                for _, leaf in event.outputs()
                if is_tensor(leaf) and (sums := sums_of(rows.numbers(number_of(leaf))))
            }
            for side, paired, rows in zip(
                (pairing.candidate, pairing.reference), (pairing.partner, pairing.back), table.rows, strict=True
            )
        )
        # The same of backward passes: the rows of gradients of parameters, by how many elements they have.
        self._passed_alone: tuple[dict[int, list[Numbers]], ...] = {}, {}
        lone = (pairing.alone(), pairing.missing())
        for events, rows, by_count in zip(lone, table.rows, self._passed_alone, strict=True):
            for leaf in (leaf for event in events if event.direction == "gradient" for _, leaf in event.outputs()):
                if is_tensor(leaf) and (known := rows.numbers(number_of(leaf))) is not None:
                    by_count.setdefault(numel(leaf), []).append(known)
        # The place of what a call gave since the backward pass began, by the sums on each side.
        self._given: tuple[dict[Sums, int], ...] = {}, {}
        # The places of the gradients of each parameter, in the order of backward passes, by how many elements it has.
        self._delivered: dict[int, dict[str, list[int]]] = {}
        self._is_known: set[int] = set()
        self._read: dict[tuple[int, int], Numbers | None] = {}
        self._compared = 0
        self._put_together = 0
        self._passes_by_count: dict[tuple[int, int], Mapping[str, Sequence[GradientPass]]] = {}

    def add_results(self, event: Event, results: Tensors) -> None:
        """A call gave these."""
        if not self._delivered and event.direction != "backward" and not self._given[0]:
            return
        for unit, place in zip(results.units, results.places, strict=True):
            if unit and place >= 0:
                self._is_known.add(place)
                for side, by_sums in enumerate(self._given):
                    if key := self._key(place, side):
                        by_sums.setdefault(key, place)

    def arriving(self, event: Event, gradients: Tensors) -> Iterator[MeasuredResult]:
        """The gradients of a module's parameters that are, on one side at least, what a call gave."""
        for slot, unit, place in zip(gradients.slots, gradients.units, gradients.places, strict=True):
            if not unit or place < 0:
                continue
            passes = self._delivered.setdefault(self._table.of(place).count, {})
            passes.setdefault(plain_name(event, slot), []).append(place)
            if place in self._is_known:
                continue
            self._is_known.add(place)
            if sources := self._given_by_call(place):
                yield from self._result(slot, place, sources)

    def taken(self, arguments: Tensors) -> Iterator[MeasuredResult]:
        """What a call takes that is, on one side at least, the gradient of a parameter, the sum of those of several
        passes up to the last one, or what a call gave. Each is judged where it is taken first.
        """
        for slot, unit, place in zip(arguments.slots, arguments.units, arguments.places, strict=True):
            if not unit or place < 0 or place in self._is_known or self._is_given_alone(place):
                continue
            delivered = self._delivered.get(self._table.of(place).count)
            sources = self._added_up(place, unit, delivered) if delivered else []
            if sources := sources or self._given_by_call(place):
                self._is_known.add(place)
                yield from self._result(slot, place, sources)

    def at_optimizer(self, gradients: Tensors, over_ranks: bool) -> Iterator[MeasuredResult]:
        """What an optimizer gets, by the names of parameters. ``over_ranks``: ranks may have put it together."""
        yield from self._delivered_at_optimizer(gradients)
        yield from self._arranged_at_optimizer(gradients)
        if over_ranks:
            yield from self.reduced(gradients, is_named=True)

    def _delivered_at_optimizer(self, gradients: Tensors) -> Iterator[MeasuredResult]:
        """What an optimizer gets, by the names of parameters: what the backward passes gave, or that times one number,
        as clipping and scalers make it where no call was recorded.
        """
        whole = self._apart_together()
        for name, unit, place in zip(gradients.slots, gradients.units, gradients.places, strict=True):
            if not unit or place < 0 or place in self._is_known or self._is_given_alone(place):
                continue
            passes = self._delivered.get(self._table.of(place).count, {}).get(name)
            if not passes or self._given_by_call(place):
                continue
            sums = (self._added_up_to(place, passes, side, unit, is_scaled=True) for side in _SIDES)
            count, factor = next((summed for summed in sums if summed[0]), _NOT_ADDED_UP)
            if count:
                self._is_known.add(place)
                # The norm of all, which clips, is as far apart as all of them together.
                common = whole if abs(factor - 1.0) > unit else 0.0
                yield from self._result(name, place, passes[-count:], abs(factor), common)

    def reduced(self, gradients: Tensors, is_named: bool) -> Iterator[MeasuredResult]:
        """What is taken that neither this rank's passes nor a call gave, as ranks that have a part of each parameter
        get it: not much further apart than what the passes gave that parameter, and all of them together. ``is_named``:
        slots are the names of parameters; else it may be any of that size, see :func:`shards_among`.
        """
        whole = self._apart_together()
        for name, unit, place in zip(gradients.slots, gradients.units, gradients.places, strict=True):
            if not unit or place < 0 or place in self._is_known or self._given_by_call(place):
                continue
            made = self._table.of(place)
            if not is_named and (made.count < FEW_ELEMENTS or self._is_given_alone(place)):
                continue
            gradients_by_name = self._delivered.get(made.count, {})
            passes = (
                (by_name.get(name, ()) for by_name in self._delivered.values())
                if is_named
                else gradients_by_name.values()
            )
            parts = [self._table.of(place) for places in passes for place in places]
            if parts and made.norm and all(part.is_known and part.norm for part in parts):
                given = _OTHER_RANKS * max(whole, *(_over(part.distance, part) for part in parts))
                distance, coherent = _over(made.distance, made), _over(made.coherent, made)
                yield MeasuredResult(
                    name, distance, coherent, given, given, made.count, False, units=2.0, alone=made.count, alike=1.0
                )

    def _arranged_at_optimizer(self, gradients: Tensors) -> Iterator[MeasuredResult]:
        """What an optimizer gets for what is no parameter of a module, as a flat buffer of many or a rank's part of it:
        not much further apart than what the passes gave as many elements, where these are the furthest apart.
        """
        names = {name for by_name in self._delivered.values() for name in by_name}
        for name, unit, place in zip(gradients.slots, gradients.units, gradients.places, strict=True):
            if not names or name in names or not unit or place < 0 or place in self._is_known:
                continue
            made = self._table.of(place)
            if made.count < FEW_ELEMENTS or not made.norm or self._given_by_call(place) or self._is_given_alone(place):
                continue
            given = _OTHER_RANKS * self._apart_in(made.count)
            distance, coherent = _over(made.distance, made), _over(made.coherent, made)
            yield MeasuredResult(
                name, distance, coherent, given, given, made.count, False, units=2.0, alone=made.count, alike=1.0
            )

    def _apart_in(self, count: int) -> float:
        """How far those last gradients together are apart, over their norm, that are the furthest apart and have so
        many elements.
        """
        last = [self._table.of(passes[-1]) for by_name in self._delivered.values() for passes in by_name.values()]
        parts = sorted(
            (part for part in last if part.is_known and part.norm), key=lambda part: -_over(part.distance, part)
        )
        taken = 0
        furthest: list[Deviation] = []
        for part in parts:
            if taken >= count:
                break
            taken += part.count
            furthest.append(part)
        norm = math.hypot(*(part.norm for part in furthest))
        return math.hypot(*(part.distance for part in furthest)) / norm if norm else 0.0

    def put_together(self, tensors: Tensors) -> Iterator[TakenGradient]:
        """What is taken that has the size of gradients, and is none that this rank's passes or calls gave."""
        for slot, unit, place in zip(tensors.slots, tensors.units, tensors.places, strict=True):
            deviation = self._table.of(place)
            if not unit or not deviation.distance or not deviation.norm or place in self._is_known:
                continue
            passes = self._passes(deviation.count) if deviation.count >= FEW_ELEMENTS else {}
            sides = [self._numbers(place, side) for side in (0, 1)]
            if not passes or None in sides or self._is_given_alone(place) or self._given_by_call(place):
                continue
            self._is_known.add(place)
            self._put_together += 1
            if self._put_together > _MOST_PUT_TOGETHER:
                return
            mine, theirs = (numbers[2] for numbers in sides if numbers is not None)
            yield TakenGradient(slot, unit, _over(deviation.distance, deviation), (mine, theirs), passes)

    def _passes(self, count: int) -> Mapping[str, Sequence[GradientPass]]:
        """The last gradients of parameters with so many elements."""
        delivered = self._delivered.get(count, {})
        key = count, sum(map(len, delivered.values()))
        if key not in self._passes_by_count:
            passes: dict[str, list[GradientPass]] = {}
            for name, places in delivered.items():
                sides = [[self._numbers(place, side) for side in (0, 1)] for place in places[-_MOST_PASSES:]]
                if not any(None in pair for pair in sides):
                    known = [(mine, theirs) for mine, theirs in sides if mine is not None and theirs is not None]
                    passes[name] = [
                        GradientPass((mine[2], theirs[2]), (math.sqrt(mine[1]), math.sqrt(theirs[1])))
                        for mine, theirs in known
                    ]
            self._passes_by_count[key] = passes
        return self._passes_by_count[key]

    def _apart_together(self) -> float:
        """How far all gradients are apart, over the norm of all."""
        last = [self._table.of(passes[-1]) for by_name in self._delivered.values() for passes in by_name.values()]
        norm = math.hypot(*(each.norm for each in last))
        return math.hypot(*(each.distance for each in last if each.is_known)) / norm if norm else 0.0

    def _is_given_alone(self, place: int) -> bool:
        if any(calls and self._key(place, side) in calls for side, calls in enumerate(self._given_alone)):
            return True
        count = self._table.of(place).count
        return count >= FEW_ELEMENTS and any(
            (numbers := self._numbers(place, side)) is not None
            and math.dist(numbers[2], known[2]) <= _ROOT_OF_SUMS * SUMMED_IN_SINGLE * math.sqrt(known[1])
            for side, by_count in enumerate(self._passed_alone)
            for known in by_count.get(count, ())
        )

    def _given_by_call(self, place: int) -> list[int]:
        """What a call gave and is, on one side, the tensor at a place; empty if there is nothing."""
        keys = ((side, self._key(place, side)) for side in _SIDES)
        return [self._given[side][key] for side, key in keys if key in self._given[side]][:1]

    def _added_up(self, place: int, unit: float, delivered: dict[str, list[int]]) -> list[int]:
        """The gradients of one parameter that are together the tensor at a place; empty if there are none."""
        for side in _SIDES:
            for name, passes in delivered.items():
                self._compared += 1
                if self._compared > _MOST_COMPARED:
                    return []
                count, _ = self._added_up_to(place, passes, side, unit)
                if count:
                    # Lists are in the order of the parameters: the next of the same size is asked first.
                    delivered[name] = delivered.pop(name)
                    return passes[-count:]
        return []

    def _added_up_to(
        self, place: int, passes: Sequence[int], side: int, unit: float, is_scaled: bool = False
    ) -> tuple[int, float]:
        """How many of the last passes come to a tensor together, times which number; 0 if none do. ``is_scaled``: that
        number may be another than 1.
        """
        wanted = self._numbers(place, side)
        if wanted is None or not wanted[1]:
            return _NOT_ADDED_UP
        signed, norms, factor = [0.0] * SUMS, 0.0, 1.0
        for count, source in enumerate(reversed(passes), 1):
            numbers = self._numbers(source, side)
            if numbers is None:
                break
            signed = [total + more for total, more in zip(signed, numbers[2], strict=True)]
            norms += math.sqrt(numbers[1])
            squares = math.fsum(each * each for each in signed) if is_scaled else 0.0
            if squares:
                factor = math.fsum(map(operator.mul, signed, wanted[2])) / squares
            off = math.dist([factor * each for each in signed], wanted[2])
            if off <= _ROOT_OF_SUMS * _ROUNDED * unit * abs(factor) * norms:
                return count, factor
        return _NOT_ADDED_UP

    def _result(
        self, slot: str, place: int, sources: Sequence[int], factor: float = 1.0, common: float = 0.0
    ) -> Iterator[MeasuredResult]:
        """``factor``: what the sum of the sources is multiplied by, which is itself apart by ``common``, relative."""
        whole = self._table.of(place)
        parts = [self._table.of(source) for source in sources]
        if not whole.norm or not all(part.is_known for part in (whole, *parts)):
            return
        yield MeasuredResult(
            slot,
            _over(whole.distance, whole),
            _over(whole.coherent, whole),
            math.hypot(factor * _over(math.hypot(*(part.distance for part in parts)), whole), common),
            math.hypot(factor * _over(math.hypot(*(part.coherent for part in parts)), whole), common),
            whole.count,
            is_bad=False,
            units=factor * math.fsum(part.norm for part in parts) / whole.norm,
            alone=whole.count,
            alike=whole.alike,
        )

    def _numbers(self, place: int, side: int) -> Numbers | None:
        if (place, side) not in self._read:
            self._read[place, side] = self._table.numbers(place, side)
        return self._read[place, side]

    def _key(self, place: int, side: int) -> Sums | None:
        return self._table.sums(place, side) if self._table.of(place).count >= FEW_ELEMENTS else None


def shards_among(event: Event, tensors: Tensors) -> Tensors:
    """Of the tensors that a call takes those of which this rank has a part alone, as the recorder noted."""
    shards = {
        slot
        for slot, leaf in event.inputs()
        if is_tensor(leaf) and leaf.get("local_shape", leaf.get("shape")) != leaf.get("shape")
    }
    kept = [place for place, slot in enumerate(tensors.slots) if slot in shards]
    return tensors._replace(
        slots=tuple(tensors.slots[place] for place in kept),
        units=tuple(tensors.units[place] for place in kept),
        places=tuple(tensors.places[place] for place in kept),
        lengths=tuple(tensors.lengths[place] for place in kept),
    )


def put_together(event: Event, taken: Iterator[TakenGradient]) -> Iterator[Node]:
    """The node of those of a call's tensors that all ranks may have put together, if there are any."""
    gradients = tuple(taken)
    if gradients:
        unit = max(gradient.unit for gradient in gradients)
        yield Node(event, "", event.direction, unit, (), "", hands_on=True, taken_over_ranks=gradients)


def handed_on(event: Event, tensors: Tensors, results: Iterator[MeasuredResult]) -> Iterator[Node]:
    """The node of those of a call's tensors that are judged, if there are any."""
    judged = tuple(results)
    if judged:
        yield Node(event, "", event.direction, max(tensors.units), judged, "", hands_on=True)


def _over(size: float, whole: Deviation) -> float:
    return min(size / whole.norm, ENDLESS)

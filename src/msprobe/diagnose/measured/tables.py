"""The tensors of calls, and how far each pair of them is apart: noted one by one, computed together."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose.measured.deviation import UNKNOWN, Deviation, between
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import Slot, is_tensor
from msprobe.store.rows import Numbers, StoredRows, number_of

#: A relative distance beyond which no number says more.
ENDLESS = 1e60
#: Distances are estimates, each of which may be off by so much.
_DOUBLED = 2.0
_ABSENT = object()
#: What is apart by so much of its norm, and no further than a hundredth in what no order changes, has its elements in
#: another one: what has nothing to do with each other is apart by more, and rounding by less.
_FAR, _ALIKE = 0.25, 0.01


class Tensors(NamedTuple):
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


#: The sum of a tensor, and that of its squares.
Sums = tuple[float, float]


def sums_of(numbers: Numbers | None) -> Sums | None:
    """What distinguishes tensors: their sums; None for one of one number, which others have as well."""
    return (numbers[0], numbers[1]) if numbers is not None and numbers[4] != numbers[5] else None


NO_TENSORS = Tensors((), (), (), (), True, ())


class DeviationTable:
    """The deviations of pairs of tensors: each pair of rows is noted once, and all are computed together."""

    def __init__(self, candidate: StoredRows, reference: StoredRows, crossing: bool = False) -> None:
        """``crossing``: of two frameworks, which may have the elements of a tensor in another order, as kernels that
        transpose a factor themselves do.
        """
        #: Those of both sides.
        self.rows = candidate, reference
        self._crossing = crossing
        self._places: dict[tuple[int, int, int, bool], int] = {}
        self._pairs: list[tuple[int, int]] = []
        self._deviations: list[Deviation] = []
        self._sums: list[tuple[Sums | None, Sums | None]] = []

    def note(self, slots: list[Slot], others: list[Slot]) -> Tensors:
        """Tensors that answer to each other, by the names of the candidate's."""
        theirs = dict(others)
        is_same = len(slots) == len(theirs)
        rows = []
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
                rows.append((slot, unit, -1, 0))
                continue
            count = numel(leaf)
            if (not count and not numel(other)) or (leaf.get("unset") and other.get("unset")):
                continue  # nothing, or memory that nobody has written to
            shape = leaf.get("shape")
            if count != numel(other) or (self._crossing and _is_transposed(shape, other.get("shape"))):
                rows.append((slot, unit, -1, 0))
                continue
            if other["dtype"] != leaf["dtype"]:
                unit = max(unit, epsilon_of(other["dtype"]))
            ours, its = number_of(leaf), number_of(other)
            place = -1
            if ours >= 0 and its >= 0:
                alike = leaf.get("nan") == other.get("nan") and leaf.get("inf") == other.get("inf")
                place = noted.setdefault((ours, its, count, alike), len(noted))
            rows.append((slot, unit, place, shape[0] if shape else 0))
        if not rows:
            return Tensors((), (), (), (), is_same, tuple(factors))
        names, units, places, lengths = zip(*rows, strict=True)
        return Tensors(names, units, places, lengths, is_same, tuple(factors))

    def measure(self) -> None:
        """Compute what was noted."""
        mine, theirs = self.rows[0].numbers, self.rows[1].numbers
        self._pairs = [key[:2] for key in self._places]
        for ours, other, count, alike in self._places:
            numbers, its = mine(ours), theirs(other)
            deviation = between(numbers, its, count, alike)
            if self._crossing and numbers is not None and its is not None and _is_reordered(deviation, numbers, its):
                deviation = UNKNOWN
            self._deviations.append(deviation)
            self._sums.append((sums_of(numbers), sums_of(its)))

    def of(self, place: int) -> Deviation:
        """The deviation at a place of the table."""
        return self._deviations[place] if place >= 0 else UNKNOWN

    def sums(self, place: int, side: int) -> Sums | None:
        """See :func:`sums_of`; of the candidate's (0) or the reference's (1) tensor at a place of the table."""
        return self._sums[place][side]

    def numbers(self, place: int, side: int) -> Numbers | None:
        """The numbers of the candidate's (0) or the reference's (1) tensor at a place of the table."""
        return self.rows[side].numbers(self._pairs[place][side])


def _is_transposed(shape: Any, other: Any) -> bool:
    """True for the same sizes of dimensions in another order."""
    if not (isinstance(shape, list) and isinstance(other, list)) or shape == other:
        return False
    return sorted(map(str, shape)) == sorted(map(str, other))


def _is_reordered(deviation: Deviation, ours: Numbers, other: Numbers) -> bool:
    """True for tensors that are far apart element by element, and alike in all that no order changes: norm, sum, and
    the largest and the least element.
    """
    if deviation.kind != "estimate" or deviation.distance <= _FAR * deviation.norm:
        return False
    norms = math.sqrt(ours[1]), math.sqrt(other[1])
    sums = (ours[0] - other[0]) / math.sqrt(max(deviation.count, 1))
    same = _ALIKE * deviation.norm
    bound = _ALIKE * max(map(abs, (*ours[4:6], *other[4:6])))
    return (
        abs(norms[0] - norms[1]) <= same
        and abs(sums) <= same
        and all(abs(mine - its) <= bound for mine, its in zip(ours[4:6], other[4:6], strict=True))
    )


class Made:
    """What calls have made so far. Where a tensor is used several times its gradient is a sum, and gradients become
    those of parameters, without a call: what is no further apart than all results with as many elements is one of them.
    """

    def __init__(self, table: DeviationTable) -> None:
        self._table = table
        self._places: set[int] = set()
        self._apart: dict[int, float] = {}

    def add(self, results: Tensors) -> None:
        """These were made."""
        for place in results.places:
            if place >= 0 and place not in self._places:
                self._places.add(place)
                deviation = self._table.of(place)
                self._apart[deviation.count] = (
                    self._apart.get(deviation.count, 0.0) + min(deviation.distance, ENDLESS) ** 2
                )

    def has(self, results: Tensors) -> bool:
        """True if all of these tensors, bit by bit as their rows say, were made."""
        return all(place in self._places for place in results.places)

    def is_new_in(self, arguments: Tensors) -> bool:
        """True if one of these differs, and was not made."""
        for unit, place in zip(arguments.units, arguments.places, strict=True):
            deviation = self._table.of(place)
            if not unit or deviation.kind == "exact" or place in self._places:
                continue
            if deviation.kind != "estimate" or deviation.distance > _DOUBLED * math.sqrt(
                self._apart.get(deviation.count, 0.0)
            ):
                return True
        return False

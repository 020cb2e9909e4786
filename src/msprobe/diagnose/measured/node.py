"""One call of a pair of steps, with how far its results and its arguments are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msprobe.diagnose import operators
from msprobe.diagnose.measured import scales
from msprobe.diagnose.steps.timeline import Event

#: Types that are no coarser than this are of single precision.
SINGLE = 2.0**-22
#: How far two results are apart that are both rounded once, in units (the distance of 1 to the next number): each is
#: off by a number between half a unit and minus that, root mean square 1 / sqrt(12), over a mantissa m between 1 and 2,
#: of which as many lie between m and m * c anywhere: the mean of 1 / m**2 is 3 / (8 ln 2). sqrt(2 / 12 * 3 / (8 ln 2)).
ROUNDED_ONCE = 0.3003
#: In bits: one standard deviation of the logarithm of the distance, which is the root of a chi-square of eight draws:
#: sqrt(trigamma(4)) / (2 ln 2).
SPREAD = 0.3843
#: So many deviations are passed once in 30,000 draws: about as many calls as ten steps of a network have.
DOUBT = 4 * SPREAD
#: Of fewer elements the distance and what is coherent are one size, and the relation of two of them may be any.
FEW_ELEMENTS = 8
#: Kernels compute in single precision: of half types the result alone is rounded to the type, in single precision all
#: that is inside, too, and elements that share terms share these errors. Taken for 44 roundings, 0.3003 * sqrt(44).
ROUNDED_INSIDE = 2.0
#: In units: what is coherent in errors of half types whatever the count, as rows that are alike (padding, the same
#: positions of several samples) round alike. Beyond the limits it is a fortieth of a unit.
ROUNDED_ALIKE = 2.0**-8
#: The distance of numbers next to zero, by the unit of their type: float16 has few powers of two. The others have so
#: many that no tensor of a training comes near.
_SMALLEST_STEPS = {2.0**-10: 2.0**-24}


@dataclass(frozen=True, slots=True)
class MeasuredResult:
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
    #: The root mean square of what it is measured by; infinite where that is not known.
    size: float = math.inf

    def unit_of(self, unit: float) -> float:
        """To what its elements are rounded in a type of this unit: small ones to the step of the smallest numbers."""
        step = _SMALLEST_STEPS.get(unit, 0.0)
        return max(unit, step / self.size) if step and self.size else unit


class CollectiveInput(NamedTuple):
    """Which collective a call is, and what its rank puts in. ``key``: API and ranks of its group, ``number``: how many
    of the same key came before. ``distance``, ``coherent``: of all that it puts in together, in units of elements; NaN
    where that is not known. ``norms``: of its results.
    """

    key: tuple[str, tuple[int, ...]]
    number: int
    distance: float
    coherent: float
    norms: tuple[float, ...]


class GradientPass(NamedTuple):
    """What one backward pass gave a parameter on each side: signed sums, and norms."""

    sums: tuple[Sequence[float], Sequence[float]]
    norms: tuple[float, float]


class TakenGradient(NamedTuple):
    """What a call or an optimizer takes that no pass of its rank gave: it may be put together from all ranks.

    ``slot``: where it is taken. ``unit``: of its type. ``sums``: signed sums on each side. ``passes``: of parameters
    with as many elements, by name, what this rank's backward passes gave, in order.
    """

    slot: str
    unit: float
    distance: float
    sums: tuple[Sequence[float], Sequence[float]]
    passes: Mapping[str, Sequence[GradientPass]]


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
    results: tuple[MeasuredResult, ...]
    product: str
    excused: str = ""
    from_outside: bool = False
    #: Of a collective on several ranks: its results have what this rank puts in as ``given``.
    exchange: CollectiveInput | None = None
    #: The call that has drawn the random numbers that it uses: itself, or its forward call.
    drawn_by: Event | None = None
    #: Of a random call: all that take tensors draw from the generator of these, which is one for them (empty); each API
    #: that takes none is by itself, as it may draw elsewhere, such as on the host.
    generator: str = ""
    #: What is judged is what a module takes, and no module gave (:mod:`msprobe.diagnose.measured.modules`).
    is_taken: bool = False
    #: No call computes it: gradients on their way (:mod:`msprobe.diagnose.measured.handed_on`).
    hands_on: bool = False
    #: Gradients that may be put together from those of all ranks.
    taken_over_ranks: tuple[TakenGradient, ...] = ()

    @property
    def given(self) -> float:
        """How far apart its arguments are, at the most of one result."""
        return max(result.given for result in self.results)

    def excess(self, product_unit: float = 0.0, doubt: float = 0.0) -> tuple[float, float]:
        """How many bits its results are further apart than its arguments and a unit of rounding, at the worst: by the
        estimated distance, and by what is coherent. Minus infinity where nothing differs. ``doubt``: what is taken off
        the first where what it is compared with is rounding, in bits; where that is an estimate itself, more is, as of
        the sum of two errors. ``product_unit``: what products in it round to, in single precision; 0 where it has none.
        """
        unit = max(self.unit, product_unit) if self.unit <= SINGLE else self.unit
        worst = coherent = -math.inf
        # A part of a tensor has sums of its own, and no larger distance.
        is_moved = self.direction == "forward" and self.operation in operators.MOVES
        for result in self.results:
            if result.is_bad:
                return math.inf, math.inf
            floor = (ROUNDED_INSIDE if unit <= SINGLE else ROUNDED_ONCE) * result.unit_of(unit) * result.units
            if result.distance:
                base = math.hypot(result.given, floor)
                worst = max(worst, math.log2(result.distance / base) - doubt * math.hypot(1.0, result.given / base))
            if result.coherent and not is_moved:
                # What knows nothing of each other shows in sums as well, by the root of the count less.
                floor = math.hypot(
                    result.given / math.sqrt(max(result.alike, 1.0)), floor / math.sqrt(max(result.alone, 1))
                )
                shared = ROUNDED_ALIKE * unit if unit > SINGLE else 0.0
                coherent = max(coherent, math.log2(result.coherent / math.hypot(result.given_coherent, floor, shared)))
        return worst, coherent


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

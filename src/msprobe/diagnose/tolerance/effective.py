"""The unit of rounding of calls that multiply and sum in float32: their kernels may round the inputs to fewer bits.

TF32 and HF32 keep 10 bits of each input, "medium" may keep 7; sums stay in float32. Rounding to nearest leaves each
input apart by at most half a unit, so that a product is off by one unit of its norm at most, and as a rule by 0.3 of
one (measured: 0.21 to 0.31 units, Q01 to Q03 of ``tests/bugs/clean_ten_bits.py``, task tensor).

1. *Declared.* Where a header says that a side multiplies so on its device, that is the unit: each kind of kernel has
its
   own switch. Where both say the same device and none of them does, float32 is float32, and nothing is estimated.
2. *Estimated.* Where devices differ or a header is lacking, 10 bits are thought possible. What rounds all inputs
   leaves no result of its kind nearer than its own noise, whatever came in. So the level is the lower quartile of how
   far the results of all *other* calls of this kind are apart in the step, over the cancellation in them; that is at
   least an eighth of the unit (measured: 0.12 to 0.23 units in statistics, 0.3 to 0.75 in values).
3. *Bounded.* The estimate is never more than what is possible: a wrong kernel that is further off cannot hide itself,
   however many calls it makes. It takes five other calls; a kind with fewer is judged with all that multiply. A call
   is left out of its own estimate, and a quarter of the calls decides: what is wrong in one call, or behind the first
   quarter of them, raises nothing. Two other calls that took the same, and made the same, show float32.
4. *Declared, but not so.* From five calls on the estimate lowers what is reported, too: "high" is often set where no
kernel
   knows it.

What follows from it: modules and backward calls get the unit of the products in them; the limit of loss, gradients
and weights grows with the square root of the number of such calls.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import rms
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance import units
from msprobe.diagnose.tolerance.declared_units import KINDS, Multiplication, possible_rounding
from msprobe.messages import said

#: The level over its own noise: see 2 above.
_UNITS_OF_LEVEL = 8.0
_OTHERS, _WITNESSES = 5, 2
#: Between what a product is off by at most and what statistics show of it: their largest element stands for all.
_SAFETY = 2.0
#: Gradients, loss: each product adds a unit in a direction of its own, there and back, which batch norms and sums that
#: cancel enlarge (measured: at most 4.4 units of 66 products in Q01, 38 of 94 before batch norms in Q02, three modes).
_THERE_AND_BACK = 8.0


@lru_cache(4096)
def kind_of_word(word: str) -> Multiplication | None:
    """What kind of kernel an operation, or a module of this class, multiplies with; None if it does not."""
    word = word.lower().replace("_", "")
    if word in operators.RECURRENT_LAYERS:
        return "recurrent"
    if word in operators.CONVOLUTIONS:
        return "convolution"
    return "product" if word in operators.MULTIPLIES or "matmul" in word or "attention" in word else None


@dataclass(frozen=True)
class Level:
    """How far the result of a product is apart, over its cancellation; ``witness``: what went in agrees."""

    size: float
    witness: bool


@dataclass
class _OfKind:
    """``possible``: the unit that the headers allow; ``is_declared``: they say that it is so."""

    possible: float
    declared: bool
    sizes: list[float] = field(default_factory=list)
    witnesses: list[float] = field(default_factory=list)

    def unit(self, own: Level | None, every: _OfKind) -> float:
        """The unit of a call, by all others of its kind; ``own``: its own level."""
        if not self.possible:
            return 0.0
        levels = self if self.declared or len(self.sizes) - (own is not None) >= _OTHERS else every
        level = _quantile(levels.sizes, own, _OTHERS, 4)
        if level is None:
            return self.possible if self.declared else 0.0
        if not self.declared:
            same = _quantile(levels.witnesses, own if own is not None and own.witness else None, _WITNESSES, 2)
            if same is not None and same <= units.BY_MODULE * units.FINE:
                return 0.0
        unit = min(self.possible, _UNITS_OF_LEVEL * level)
        return unit if unit > units.BY_MODULE * units.FINE else 0.0


class Products:
    """What the products of one step round their inputs to. ``unit``: the coarsest."""

    def __init__(self, candidate: Timeline, reference: Timeline) -> None:
        possible = possible_rounding(candidate.part.ours, reference.part.ours)
        self._kinds = {kind: _OfKind(possible[kind].unit, possible[kind].is_declared) for kind in KINDS}
        self._every = _OfKind(0.0, False)
        self._levels: dict[Event, Level] = {}
        self._inside: dict[str, tuple[float, int]] = {}
        self.unit = 0.0

    @property
    def is_possible(self) -> bool:
        """True if some kernels may have rounded what they multiply."""
        return any(kind.possible for kind in self._kinds.values())

    def estimate(self, levels: Mapping[Event, Level]) -> bool:
        """Take these levels for what products of the step are apart by. True if any call has a unit of its own now."""
        self._levels = dict(levels)
        for event, level in levels.items():
            for kind in (self._kinds[kind_of(event) or "product"], self._every):
                kind.sizes.append(level.size)
                if level.witness:
                    kind.witnesses.append(level.size)
        for kind in (*self._kinds.values(), self._every):
            kind.sizes.sort()
            kind.witnesses.sort()
        inside: dict[Event, tuple[float, int]] = {}
        for event in levels:
            unit_of_call = self._unit_of_call(event)
            self.unit = max(self.unit, unit_of_call)
            for outer in (event, *event.around()) if unit_of_call else ():
                if outer.is_module:
                    unit, count = inside.get(outer, (0.0, 0))
                    inside[outer] = max(unit, unit_of_call), count + 1
        # Backward passes and gradients of a module are known by its path.
        for module, (unit, count) in inside.items():
            before = self._inside.get(module.parts.path, (0.0, 0))
            self._inside[module.parts.path] = max(unit, before[0]), max(count, before[1])
        return self.unit > 0.0

    def of(self, event: Event) -> tuple[float, int]:
        """The unit to which the inputs of the products of a call or module are rounded, 0 if they are not, and how many
        products that are.
        """
        if not self.unit:
            return 0.0, 0
        if event.parts.path and not event.is_call:
            return self._inside.get(event.parts.path, (0.0, 0))
        return (self._unit_of_call(event), 1) if is_single_product(event) else (0.0, 0)

    def added(self, event: Event, factor: float) -> float:
        """What the products of a call or module may add by rounding their inputs; ``factor``: its amplification."""
        unit, count = self.of(event)
        factor = min(factor, units.BY_MODULE if event.is_call or count > 1 else units.BY_ROUNDING)
        return _SAFETY * unit * factor * math.sqrt(count)

    def in_words(self) -> str:
        """What was taken for rounding, and why."""
        bits = round(-math.log2(self.unit))
        why = (
            "according to a header"
            if any(kind.declared for kind in self._kinds.values())
            else "as all results of such calls show, though no header says so"
        )
        return said("kernels-round", bits, why)

    def _unit_of_call(self, event: Event) -> float:
        kind = kind_of(event)
        return self._kinds[kind].unit(self._levels.get(event), self._every) if kind is not None else 0.0


def is_single_product(event: Event) -> bool:
    """True for a call, or a module without recorded calls, that multiplies in float32."""
    if kind_of(event) is None:
        return False
    return units.unit(event.inputs(), event.outputs()) == units.FINE


def level_of(event: Event, apart: float, arrived: float, factor: float) -> Level | None:
    """The level of a forward call; None if it says nothing: no product in float32, a product with zero, or nothing
    that could be compared.
    """
    if event.direction != "forward" or not math.isfinite(apart) or not is_single_product(event):
        return None
    taken = [leaf for _, leaf in event.inputs() if is_tensor(leaf)]
    if not taken or not rms(taken[0]):
        return None
    return Level(apart / factor, arrived == 0.0)


def effective_step_limit(units_of_products: Iterable[float]) -> float:
    """What loss and gradients may be apart by through products with inputs of fewer bits;
    ``units_of_products``: of each of them in the forward pass.
    """
    positive = [unit for unit in units_of_products if unit]
    unit = max(positive, default=0.0)
    return min(_THERE_AND_BACK * math.sqrt(len(positive)), units.BY_MODULE) * unit


def kind_of(event: Event) -> Multiplication | None:
    """The kind of kernel that a call, or a module without recorded calls, multiplies with; None if it does not."""
    if event.is_call:
        return kind_of_word(operation(event.stem))
    if event.is_module and not event.children:
        return kind_of_word(event.stem.rpartition(".")[2])
    return None


def _quantile(levels: Sequence[float], own: Level | None, least: int, part: int) -> float | None:
    """The level that one in ``part`` of these sorted ones is below, without the call's own; None of fewer than
    ``least``.
    """
    others = len(levels) - (own is not None)
    if others < least:
        return None
    place = (others - 1) // part
    return levels[place + (own is not None and bisect_left(levels, own.size) <= place)]

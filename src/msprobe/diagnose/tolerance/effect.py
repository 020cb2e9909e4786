"""Does a difference reach what counts? What loss, gradients, weights and states of a step may be apart by rounding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, rms
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance import effective, frameworks, noise, units
from msprobe.diagnose.tolerance.judge import Judged

#: So few elements may be moved by a unit on one side and none on the other; this share of a unit in all is more.
_FEW_MOVED, _MOVED = 16, 0.25
#: Of types with few digits so many units would be more than the numbers themselves. There: what results may be apart
#: by whose sum or product cancels (healthy runs in bfloat16: up to 0.08), and the growth with the calls that round:
#: each adds a unit in a direction of its own, so that n of them make the square root of n, there and back.
_COARSE = 0.125
_OF_CALLS = 2.0

#: An optimizer that divides by the size of the gradient makes a full step of one that is nothing but rounding: the
#: weights that follow from gradients this many times smaller than the largest say nothing.
_NOTHING = 1e-4
#: Gradients that are zero in exact arithmetic (the bias of a convolution before a batch norm) are up to a third of a
#: unit of the largest one: a convolution by `unfold`, a batch norm by hand (``test_rewritten_under_autocast.py``).
_OF_ROUNDING = 0.5

#: Of a state whose natural size is not known, rounding may be this many times larger: it may be near zero.
_UNKNOWN_SIZE = 1e3


#: Where rounding may do so much, it hides what an argument does: then the call that gets it says.
_WIDE = 0.01
#: And so much of it is more than rounding does as a rule, if there is something that explains it.
_OF_WIDE = 0.25


def shows(size: float) -> bool:
    """True if loss, gradients or weights are further apart than two units of single precision. Losses are in it,
    and statistics of types with fewer digits are kept more exactly.
    """
    return size > 2 * units.FINE


def unit_of(judged: Iterable[Judged]) -> float:
    """The unit of rounding that a run computes in: of its types, or of its products where that is coarser."""
    every = list(judged)
    return max([_unit_of_types(every), *_units_of_products(every)])


def _units_of_products(judged: Iterable[Judged]) -> list[float]:
    """The units to which products of the forward pass round the inputs, where these are coarser than its type."""
    return [
        call.product_unit
        for call in judged
        if call.product_unit and call.event.direction == "forward" and effective.is_single_product(call.event)
    ]


def _unit_of_types(judged: Iterable[Judged]) -> float:
    """The unit of rounding of the coarsest type that many calls compute in."""
    units_of_results = [call.unit_of_results for call in judged if call.event.direction == "forward"]
    return units.coarsest_of_many(Counter(filter(None, units_of_results))) or units.FINE


def step_limit(judged: Iterable[Judged]) -> float:
    """What gradients and results may be apart by rounding: by the coarsest type that many calls compute in, and by how
    many do.
    """
    every = list(judged)
    unit = _unit_of_types(every)
    rounding = sum(
        call.event.direction == "forward"
        and call.event.is_call
        and operation(call.event.stem) not in operators.MOVES
        and call.unit_of_results >= unit
        for call in every
    )
    return max(
        types_limit(rounding, unit), min(effective.effective_step_limit(_units_of_products(every)), units.LARGEST)
    )


def types_limit(count: int, unit: float) -> float:
    """What gradients may be apart by, if so many calls of the forward pass round to this unit."""
    factor = units.BY_STEP if unit <= units.FINE else units.BY_MODULE
    return min(factor * unit, max(_COARSE, _OF_CALLS * math.sqrt(count) * unit), units.LARGEST)


def frameworks_limit(judged: Iterable[Judged], weights_apart: float) -> float:
    """The same between two frameworks."""
    every = list(judged)
    return max(step_limit(every), frameworks.framework_step_limit(_unit_of_types(every), weights_apart))


def later(tolerance: float) -> float:
    """What a step may be apart by whose weights are apart by rounding: that grows, up to an end."""
    return max(tolerance, min(units.BY_ROUNDING * tolerance, units.LARGEST))


def hides_arguments(tolerance: float) -> bool:
    """True if so wide a tolerance hides what another argument does to a single call."""
    return tolerance > _WIDE


def stands_out(reach: float, tolerance: float) -> bool:
    """True if an effect is more than rounding does as a rule, though less than it may do."""
    return reach > _OF_WIDE * tolerance


def small_gradient(unit: float, limit: float) -> float:
    """Beside the largest gradient, the size below which one counts for less: one of nothing but rounding is then within
    ``limit``. ``unit``: of the type that the run computes in.
    """
    return max(noise.SMALL_GRADIENT, _OF_ROUNDING * unit / limit) if limit else noise.SMALL_GRADIENT


def gradient_difference(difference: Difference, largest: float, small: float) -> float:
    """How far a gradient is apart, by its size beside the largest (``small``: see :func:`small_gradient`); infinite
    where it is missing.
    """
    if difference.what != "value" or not (is_tensor(difference.left) and is_tensor(difference.right)):
        return math.inf
    size = max(rms(difference.left), rms(difference.right))
    if not math.isfinite(difference.delta) or not largest:
        return difference.delta
    return difference.delta * min(1.0, size / (small * largest))


def is_vanishing(size: float, largest: float) -> bool:
    """True for a gradient so small that an optimizer may make anything of it."""
    return size <= _NOTHING * largest


def is_clear_state(difference: Difference) -> bool:
    """True for a state of the optimizer that no rounding in the step before can have moved so far."""
    if not (is_floating(difference.left) and is_floating(difference.right)):
        return False
    return difference.delta > units.BY_MODULE * units.pair_unit(difference)


def is_clear_weight(difference: Difference, unit: float) -> bool:
    """The same for a weight. ``unit``: of the type that the run computes in."""
    return difference.delta > units.BY_MODULE * max(units.eps_of(difference.left), unit)


def is_movement(distance: float, norm: float, count: int, unit: float) -> bool:
    """True if a weight of ``count`` elements has moved by more from step to step than where an optimizer moves a few of
    them over the bound to the next number, which it does on one side and not on the other.
    """
    return distance > unit * max(_MOVED, math.sqrt(_FEW_MOVED / max(count, 1))) * norm


def is_taken_back(before: float, left: float) -> bool:
    """True if what is left of a factor, in logarithms, is what rounding may leave of the one that gradients had."""
    return units.BY_ROUNDING * abs(left) <= abs(before)


def exceeds_gradient(difference: Difference, gradient: float) -> bool:
    """True if a weight is further apart than its gradient explains, which was so far apart."""
    return difference.delta > units.BY_ROUNDING * gradient


def state_limit(came: float, unit: float, sized: bool, agreed: bool = False) -> float:
    """What a state that a module keeps may be apart by. ``came``: what the step before and the calls of its module
    explain; what a step explains may itself be a mistake, so there is an end to it. ``sized``: it is known what size
    the state is measured by. ``agreed``: nothing that its module took or made has differed in any step so far.
    """
    if agreed and sized:
        # Statistics that agree are rounded by half a unit, those of a variance by a whole one; an average by no more.
        return max(units.BY_MODULE * units.FINE, units.BY_ROUNDING * unit)
    rounding = units.BY_MODULE * unit
    most = min(rounding * _UNKNOWN_SIZE, units.LARGEST)
    return max(min(rounding, units.LARGEST), min(units.BY_ROUNDING * came, most)) if sized else most

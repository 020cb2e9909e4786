"""What rounding does between MindSpore and PyTorch: their kernels sum in other orders, so that everything is apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, rms
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import units

#: A tanh of the CPU is 7e-5 too large at 4.8 and 1 from 5.3 on (MindSpore 2.10): 600 units of float32, and more than
#: that by the sizes of a batch. No two forms of these functions are so near to each other.
_APPROXIMATED = 2048.0
#: Weights that are further apart are another matter, and explain no more than these.
_MOST_OF_WEIGHTS = 0.01
#: So many times more may loss and gradients be apart where all calls agree, but not more than this: half of what there
#: is has a cause.
_AGREEING = 10.0
_LARGEST_LIMIT = 0.5
#: So much of what a step moves a weight by may be apart: an epsilon in another place, elements whose gradient is
#: nothing but rounding and that an optimizer moves by a whole step.
_MOVED_APART = 0.1
#: The same where most of the weights are apart.
_MOSTLY_MOVED_APART = 5e-4
#: Gradients that are further apart explain weights that are.
_GRADIENTS_AGREE = 1e-3


def weights_apart(differences: Iterable[float]) -> float:
    """What weights being apart explains, after a step of two optimizers."""
    return min(max(differences, default=0.0), _MOST_OF_WEIGHTS)


def is_rounding(difference: Difference, weights_apart: float) -> bool:
    """True for a difference that the rounding of two frameworks leaves of calls that were not recorded."""
    if not (is_floating(difference.left) and is_floating(difference.right)):
        return False
    return difference.delta <= max(units.BY_MODULE * units.pair_unit(difference), units.BY_CALL * weights_apart)


def is_rounding_of_gradient(difference: Difference, weights_apart: float) -> bool:
    """True for a parameter's gradient that rounding of a whole step leaves so far apart."""
    if not (is_floating(difference.left) and is_floating(difference.right)):
        return False
    return difference.delta <= max(units.BY_STEP * units.pair_unit(difference), units.BY_MODULE * weights_apart)


def is_more(delta: float, unit: float, weights_apart: float) -> bool:
    """True if a call is apart by more than that. ``unit``: of its type."""
    return delta > max(units.BY_STEP * unit, units.BY_MODULE * weights_apart)


def approximation(event: Event, rounding: float) -> float:
    """What functions that kernels approximate, each in a way of its own, may be apart by: those that saturate give up
    their last digits there.
    """
    if event.direction == "backward" or not (event.is_call or event.is_module):
        return 0.0
    word = operation(event.stem) if event.is_call else event.parts.owner.lower()
    return _APPROXIMATED * rounding if word in operators.SATURATES else 0.0


def is_approximated(maker: Event, difference: Difference) -> bool:
    """True for a tensor that may be so far apart because of the function that made it."""
    if not (is_floating(difference.left) and is_floating(difference.right)):
        return False
    return difference.delta <= approximation(maker, units.pair_unit(difference))


def cancels(difference: Difference, largest_gradient: float) -> bool:
    """True for a gradient that is nothing but rounding: that of what a norm takes no notice of is zero in exact
    arithmetic.
    """
    if not (is_floating(difference.left) and is_floating(difference.right)):
        return False
    size = difference.delta * max(rms(difference.left), rms(difference.right))
    return size <= units.BY_MODULE * units.pair_unit(difference) * largest_gradient


def framework_step_limit(unit: float, weights_apart: float) -> float:
    """What gradients and loss of a step may be apart by. ``weights_apart``: what optimizers made of it, which the calls
    of a network hand on, larger.
    """
    return min(max(units.BY_STEP * unit, units.BY_MODULE * weights_apart), units.LARGEST)


def where_all_agree(allowed: float) -> float:
    """What loss and gradients may be apart by where every call agrees: all differ a little."""
    return max(allowed, min(allowed * _AGREEING, _LARGEST_LIMIT))


def movement_limit(sizes: Iterable[float], leaves: Iterable[Any]) -> float:
    """What rounding may do to how far a weight was moved. ``sizes``: of its statistics."""
    return units.BY_MODULE * max(map(units.eps_of, leaves)) * max(map(abs, sizes))


def is_moved_otherwise(part: float) -> bool:
    """True if so large a part of what a step moved a weight by is apart that the weight alone says."""
    return part > _MOVED_APART


def may_be_moved_otherwise(part: float) -> bool:
    """True if it is enough where most weights are."""
    return part > _MOSTLY_MOVED_APART


def gradients_explain(apart: float) -> bool:
    """True if a gradient was so far apart that its weight may be, too."""
    return apart > _GRADIENTS_AGREE

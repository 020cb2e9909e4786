"""How far a known number of roundings moves a result whose inputs agree, so that nothing else can have grown in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import units

#: Calls between may make rounding so many times larger (an angle of some dozens, a sum that cancels), which types of
#: many digits leave room for: up to what no rounding of theirs comes to.
_SEEN = 1e-5


def roundings_limit(events: Sequence[Event], unit_of_run: float) -> float:
    """How far the calls in these events move a result: each by half a unit at most, in directions of their own, four
    deviations of their sum; and a unit by which the statistics themselves are rounded. ``unit_of_run``: that of the
    type that the run computes in, since under autocast calls compute in a coarser one than they take and give.
    """
    every = [call for event in events for call in (event, *event.inside()) if not call.children]
    unit = max((units.unit(call.outputs(), call.inputs()) for call in every), default=0.0)
    unit = max(unit, unit_of_run)
    return max(
        rounding_count_limit(sum(operation(call.stem) not in operators.MOVES for call in every), unit), least(unit)
    )


def rounding_count_limit(count: float, unit: float) -> float:
    """How far so many calls move a result that round to this unit."""
    return unit * (1.0 + 2.0 * math.sqrt(count))


def lone_gradient_limit(count: float, unit: float) -> float:
    """The same of a gradient that calls of one side alone give back. In types of many digits the limit of the whole
    step is as fine as that.
    """
    return rounding_count_limit(count, unit) if unit > units.FINE else math.inf


def least(unit: float) -> float:
    """What is always taken for rounding: a unit, and what calls before the recorded ones may make of one."""
    return max(unit, min(units.BY_MODULE * unit, _SEEN))


def is_same_number(left: float, right: float) -> bool:
    """True if two plain numbers are apart by no more than single precision makes them."""
    return math.isclose(left, right, rel_tol=units.BY_CALL * units.FINE)

"""The unit of rounding: the distance of 1 to the next number of a type. Every limit is a number of units."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msprobe.compare.number_types import EPSILON, epsilon_of
from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.store.rows import SUMS

#: The unit of single precision. Coarser types are those with few digits, of which limits in units are many percent.
FINE = EPSILON["float32"]
#: What rounding may do is counted in four numbers, each four times the one before. Two sides that round one tensor once
#: are within four deviations of that (of normal errors one in 16,000 is beyond). A call makes four times as much of
#: what is modelled by its typical element, in elements that are as much larger. A module enlarges four times, as calls
#: that are not followed (:func:`~msprobe.diagnose.tolerance.noise.amplification`). A step goes there and back. Measured
#: in healthy steps: gradients of float32 are apart by six units between one and two threads, by 184 where convolutions
#: before batch norms sum in another order (``bench/localise/run.py --clean``, Y01), by 140 between two frameworks.
BY_ROUNDING = 4.0
BY_CALL = 4.0 * BY_ROUNDING
BY_MODULE = 4.0 * BY_CALL
BY_STEP = 4.0 * BY_MODULE
#: Nothing that large is rounding, in any type.
LARGEST = 0.3
#: A type that so many calls give their results in is one that the run computes in.
_COMMON = 0.1


def eps_of(leaf: Any) -> float:
    """The distance of 1 to the next number of a tensor's type; 0 for whole numbers."""
    return epsilon_of(str(leaf["dtype"]))


def unit(*sides: Sequence[Slot]) -> float:
    """The rounding unit of the coarsest floating-point type among all these values."""
    coarsest = 0.0
    for side in sides:
        for _, leaf in side:
            if is_tensor(leaf):
                eps = epsilon_of(leaf["dtype"])
                if eps > coarsest:
                    coarsest = eps
    return coarsest


def unit_of_types(types: Iterable[str]) -> float:
    """The rounding unit of the coarsest floating-point type among these."""
    return max(map(epsilon_of, types), default=0.0)


def common_unit(events: Iterable[Event]) -> float:
    """The rounding unit of the coarsest type that many of these calls give their results in; of modules, where
    no calls were recorded.
    """
    passes = [event for event in events if event.direction == "forward"]
    calls = [event for event in passes if event.is_call] or [event for event in passes if event.is_module]
    return coarsest_of_many(Counter(filter(None, (unit(event.outputs()) for event in calls))))


def coarsest_of_many(counts: Counter[float]) -> float:
    """The coarsest unit among those that are frequent; 0 if there is none. ``counts``: how often each was found."""
    total = sum(counts.values())
    return max((unit_counted for unit_counted, count in counts.items() if count >= _COMMON * total), default=0.0)


def pair_unit(difference: Difference) -> float:
    """The unit of the coarser type of what differs; 0 where neither side is a tensor."""
    return max((eps_of(leaf) for leaf in (difference.left, difference.right) if is_tensor(leaf)), default=0.0)


def whole_numbers_up_to(leaf: Any) -> float:
    """The largest number up to which a tensor's floating-point type holds every whole number: 256 in bfloat16, 2048 in
    float16. The next one has a digit more than the type.
    """
    eps = eps_of(leaf)
    return 2.0 / eps if eps else math.inf


def is_coarse(leaf: Any) -> bool:
    """True for a floating-point type that has fewer digits than single precision."""
    return eps_of(leaf) > FINE


def signed_sums_limit(leaf: Any, norms: float) -> float:
    """How far the signed sums of a tensor may be from those of the terms that it is the sum of, as a distance of all of
    these sums: each term and the sum are rounded once. ``norms``: of all terms together.
    """
    return math.sqrt(SUMS) * eps_of(leaf) * norms

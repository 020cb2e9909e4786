"""Calls that make a step at a boundary: rounding to whole numbers, and limits that elements lie at.

An element within its deviation of the boundary is on one side of it here and on the other there, though both are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.diagnose import operators
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.steps.timeline import Event

#: An element lies at a limit if it is no further from it than so many units: it was computed to be there, as the
#: largest of a tensor divided by itself is 1.
_UNITS_FROM_LIMIT = 4.0


def crossed_steps(operation: str, direction: str, given: Sequence[Deviation], result: Deviation) -> float:
    """How far a rounding to whole numbers is apart, over its norm, where elements cross a boundary between two of them:
    of elements anywhere between these a share as large as their deviation, each by 1. A sign has one boundary: of
    elements anywhere in their size a share as large as their deviation beside that, or one that is next to nothing.
    """
    if direction == "backward" or not given or not result.norm or not given[0].distance:
        return 0.0
    count, distance = max(given[0].count, 1), given[0].distance
    if operation in operators.STEPS:
        return math.sqrt(min(distance * math.sqrt(count), count)) / result.norm
    if operation in operators.SIGNS:
        return 2.0 * math.sqrt(max(count * min(distance / given[0].norm, 1.0), 1.0)) / result.norm
    return 0.0


def cut_off_otherwise(operation: str, direction: str, forward: Event, given: Sequence[Deviation], unit: float) -> float:
    """How far the gradients of a call that cuts off what is beyond a limit are apart, over their norm, because its
    largest or smallest element lies at it: rounding decides whether that gets a gradient, and no row says how many such
    elements there are. 1 then, else 0. ``given``: what arrives, then the arguments of the forward call. ``unit``: of
    their type.
    """
    places = operators.LIMITED.get(operation, "").split()
    if direction != "backward" or not places or len(given) < 2 or given[1].kind != "estimate":
        return 0.0
    taken = dict(forward.inputs())
    limits = [taken[slot] for place in places if (slot := f"input.{place}") in taken]
    numbers = [limit["value"] if isinstance(limit, dict) and "value" in limit else limit for limit in limits]
    is_at_limit = any(
        abs(extreme - number) <= _UNITS_FROM_LIMIT * unit * abs(number)
        for number in numbers
        # Zero is where it is.
        if isinstance(number, (int, float)) and number
        for extreme in (given[1].largest, given[1].least)
    )
    return float(is_at_limit)

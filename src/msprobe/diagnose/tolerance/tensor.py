"""Is a tensor the same on both sides? What it may be apart by follows from where it comes from."""

from __future__ import annotations

import math
from typing import Literal

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.tolerance import units

DifferenceSource = Literal["stored", "outside", "unseen", "lone_calls", "step_before"]

#: Units of the coarser type.
_UNITS: dict[DifferenceSource, float] = {
    #: Weights and buffers before the first step: a checkpoint holds the same bits for both; the statistics that were
    #: recorded of them are sums.
    "stored": units.BY_ROUNDING,
    #: A batch, a mask, a table: as the result of one call.
    "outside": units.BY_CALL,
    #: Calculated by some calls that were not recorded, between two modules or in a step of the optimizer: twice that.
    "unseen": 2.0 * units.BY_CALL,
    #: Calculated by calls that one side alone makes: as of a module.
    "lone_calls": units.BY_MODULE,
    #: Weights, by the optimizer in the step before, from gradients that were apart by rounding: the same.
    "step_before": units.BY_MODULE,
}
#: The same of half types by rows: what is rounded to a type once is apart by a third of a unit.
_UNITS_BY_ROWS: dict[DifferenceSource, float] = {"stored": 1.0, "outside": 2.0}
#: Calls that compute the same otherwise make so many times of what is before them, or of a unit, in half types.
_MADE_OTHERWISE = 8.0
#: A weight after a step from the same gradient and the same state: the step is a dozen elementwise calls.
_OF_STEP = 8.0


def is_another(
    difference: Difference,
    source: DifferenceSource,
    measured: float = 0.0,
    unit: float = 0.0,
    by_rows: float = 0.0,
) -> bool:
    """True if a tensor is further apart than rounding makes one that comes from there. ``measured``: how far a second
    healthy run was apart. ``unit``: of the coarsest type that it was computed in, where that is not its own.
    ``by_rows``: the relative distance by rows, which are recorded in full precision; 0 where there are none.
    """
    own = units.pair_unit(difference)
    if own > units.FINE and by_rows > max(_UNITS_BY_ROWS.get(source, math.inf) * own, measured):
        return True
    return difference.delta > max(_UNITS[source] * max(own, unit), measured)


def is_made_otherwise(difference: Difference, by_rows: float, before: float) -> bool:
    """True if calls of one side alone make a tensor of a half type that is further apart, by rows, than the same in
    other calls makes of rounding. ``before``: how far all before it is apart.
    """
    own = units.pair_unit(difference)
    return own > units.FINE and by_rows > _MADE_OTHERWISE * max(own, before)


def is_stepped_otherwise(difference: Difference) -> bool:
    """True if a weight that a step of the optimizer made of the same gradient and state is another one."""
    return difference.delta > _OF_STEP * units.pair_unit(difference)

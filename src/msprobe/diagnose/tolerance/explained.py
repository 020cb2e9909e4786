"""Do the inputs explain what is seen later?

A tensor is as far apart where it is taken as where it was made. Calls that one side alone makes have no pair to be
judged by; they may make a difference larger as others do, but not to what is no rounding in any type.
"""

from __future__ import annotations

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.tolerance import units

#: More than that no rounding comes to that some calls have handed on.
_MOST_OF_CALLS = 0.1


def as_made(seen: Difference, apart: float) -> bool:
    """True if a result that is so far apart explains what is seen where it is taken, by the statistics of the tensor or
    by those of a part or a view of it.
    """
    return _explains(seen, apart, units.BY_ROUNDING)


def by_calls(seen: Difference, apart: float) -> bool:
    """True if so large a difference explains what is seen behind some calls that have no pair: of one side alone, or
    on the way back.
    """
    return _explains(seen, apart, units.BY_MODULE)


def within_calls(seen: Difference, apart: float) -> bool:
    """The same where all that comes to these calls is known: nothing is taken for rounding then, and nothing is too
    much for it.
    """
    return seen.delta <= units.BY_MODULE * apart


def _explains(seen: Difference, apart: float, times: float) -> bool:
    apart = max(units.pair_unit(seen), apart)
    return seen.delta <= max(min(times * apart, _MOST_OF_CALLS), units.BY_ROUNDING * apart)

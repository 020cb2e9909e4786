"""Do the inputs explain what is seen later?

A tensor is as far apart where it is taken as where it was made. Calls that one side alone makes have no pair to be
judged by; they may make a difference larger as others do, but not to what is no rounding in any type.
"""

from __future__ import annotations

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.tolerance import noise, units

#: Distances measured by the statistics of a tensor, and by those of a part or a view of it, may differ by this factor.
_SEEN_AGAIN = 4.0
#: What a few calls make of a difference: SAFETY times the amplification of a module (see ``noise``).
_OF_CHAIN = 64.0
#: The same of a group of calls on the way back.
_OF_GROUP = 4.0 * noise.SAFETY
#: More than that no rounding comes to that some calls have handed on.
_MOST_OF_CHAIN = 0.1


def as_made(seen: Difference, apart: float) -> bool:
    """True if a result that is so far apart explains what is seen where it is taken."""
    return _explains(seen, apart, _SEEN_AGAIN)


def by_chain(seen: Difference, apart: float) -> bool:
    """True if so large a difference explains what is seen behind some calls of one side alone."""
    return _explains(seen, apart, _OF_CHAIN)


def by_group(seen: Difference, apart: float) -> bool:
    """True if so large a difference explains a gradient that comes out of some calls."""
    return _explains(seen, apart, _OF_GROUP)


def within_group(seen: Difference, apart: float) -> bool:
    """The same where all that comes to these calls is known: nothing is taken for rounding then, and nothing is too
    much for it.
    """
    return seen.delta <= _OF_GROUP * apart


def _explains(seen: Difference, apart: float, times: float) -> bool:
    apart = max(units.pair_unit(seen), apart)
    return seen.delta <= max(min(times * apart, _MOST_OF_CHAIN), _SEEN_AGAIN * apart)

"""How the work and the memory of something grow with its size, in numbers that no busy machine changes."""

from __future__ import annotations

import gc
import math
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

#: Twice the size may cost 2.15 times as much: what is linear, with what is done once for all.
MOST_EXPONENT = 1.1


def exponent_of(cost: Callable[[int], float], small: int, large: int) -> float:
    """By which power of the size the cost grows between two sizes: 1 where it is linear, 2 where it is the square."""
    return math.log(cost(large) / cost(small)) / math.log(large / small)


def calls_in(action: Callable[[], object]) -> int:
    """How many functions of Python and of C are called meanwhile, by this thread.

    What C does inside one call, such as a search in a list of numbers, counts as nothing.
    """
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def most_bytes_in(action: Callable[[], object]) -> int:
    """The most memory that Python's objects take meanwhile, in bytes, what the action returns included."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = action()
        most = tracemalloc.get_traced_memory()[1]
        del kept
        return most
    finally:
        tracemalloc.stop()

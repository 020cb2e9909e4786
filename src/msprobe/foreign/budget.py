"""What reading one input of a stranger may cost: one budget, given to every reader.

A reader spends bytes, items and seconds while it works, and asks before it goes deeper or takes a long number. What
exceeds the budget ends in :class:`BudgetError`, a sentence that names the input, the limit and how to raise it.

The limits never hinder an honest file of 10^7 records. ``--limit FACTOR`` on the command line, or the environment
variable ``MSPROBE_LIMIT``, multiplies those of bytes, items and seconds; processes that msprobe starts inherit it.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from msprobe.errors import InvalidInputError
from msprobe.messages import said

FACTOR_VARIABLE = "MSPROBE_LIMIT"


class BudgetError(InvalidInputError):
    """Reading an input would cost more than its budget allows: use a smaller input, or raise the limit."""


@dataclass(frozen=True)
class Limits:
    """What one input may cost at most."""

    #: Bytes of text and binary data that one reader may hold at once or unpack.
    bytes: int = 4 << 30
    #: Values, pairs, instructions and steps that one reader may make or take.
    items: int = 200_000_000
    #: Containers inside containers.
    depth: int = 200
    #: Digits of one number.
    digits: int = 4300
    #: Seconds of wall time that one input may take.
    seconds: float = 3600.0

    def times(self, factor: float) -> Limits:
        """The same with bytes, items and seconds multiplied. Depth and digits protect the interpreter and stay."""
        return replace(
            self, bytes=int(self.bytes * factor), items=int(self.items * factor), seconds=self.seconds * factor
        )


#: Settings that people write: configuration files, launch scripts, mappings.
SETTINGS = Limits(bytes=64 << 20, items=2_000_000, depth=100, digits=4300, seconds=10.0)


def factor() -> float:
    """By how much the user multiplies the limits: ``MSPROBE_LIMIT``, 1 where it is unset.

    Raises InvalidInputError where it is no finite number above 0.
    """
    text = os.environ.get(FACTOR_VARIABLE, "")
    return factor_of(text) if text.strip() else 1.0


def factor_of(text: str) -> float:
    """A factor as users write it. Raises InvalidInputError where it is no number above 0 and at most 1e6."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 1e6:
        raise InvalidInputError(said("limit-factor-wrong", FACTOR_VARIABLE, text[:40]))
    return number


@contextlib.contextmanager
def multiplied(text: str | None) -> Iterator[None]:
    """All limits are multiplied by this factor, here and in processes that are started here; None: as they are.

    Raises InvalidInputError for a factor that is none, that of the environment included.
    """
    if text is None:
        factor()
        yield
        return
    factor_of(text)
    before = os.environ.get(FACTOR_VARIABLE)
    os.environ[FACTOR_VARIABLE] = text
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(FACTOR_VARIABLE, None)
        else:
            os.environ[FACTOR_VARIABLE] = before


class Budget:
    """What is left to one reader of one input. Not shared between threads.

    ``source`` names the input in messages: a path, or what the text belongs to.
    """

    __slots__ = ("_bytes", "_end", "_items", "_source", "_steps", "limits")

    # Reading the clock costs as much as ten items: it is read once in so many.
    _STEPS_PER_LOOK = 4096

    def __init__(self, source: object, limits: Limits | None = None) -> None:
        self.limits = (limits or Limits()).times(factor())
        self._source = source
        self._bytes = self._items = self._steps = 0
        self._end = time.monotonic() + self.limits.seconds

    def spend_bytes(self, count: int) -> None:
        """Take ``count`` bytes off the budget. Raises BudgetError."""
        self._bytes += count
        if count < 0 or self._bytes > self.limits.bytes:
            self._refuse(said("budget-bytes", self.limits.bytes))

    def spend_items(self, count: int = 1) -> None:
        """Take ``count`` items off the budget, and look at the clock now and then. Raises BudgetError."""
        self._items += count
        if self._items > self.limits.items:
            self._refuse(said("budget-values", self.limits.items))
        self._steps += 1
        if not self._steps % self._STEPS_PER_LOOK:
            self.check_time()

    def check_depth(self, depth: int) -> None:
        """Raise BudgetError if containers are nested deeper than allowed."""
        if depth > self.limits.depth:
            self._refuse(said("budget-depth", self.limits.depth), can_be_raised=False)

    def check_digits(self, count: int) -> None:
        """Raise BudgetError if a number has more digits than allowed."""
        if count > self.limits.digits:
            self._refuse(said("budget-digits", self.limits.digits), can_be_raised=False)

    def check_time(self) -> None:
        """Raise BudgetError if the time is over."""
        if time.monotonic() > self._end:
            self._refuse(said("budget-seconds", self.limits.seconds))

    def _refuse(self, what: str, can_be_raised: bool = True) -> None:
        shown = str(self._source)
        shown = (shown if shown.isprintable() else ascii(shown)).strip("'\"")
        shown = shown if len(shown) <= 200 else f"{shown[:120]}...{shown[-60:]}"
        advice = said("budget-hint") if can_be_raised else ""
        raise BudgetError(said("reading-over-budget", shown, what, advice))

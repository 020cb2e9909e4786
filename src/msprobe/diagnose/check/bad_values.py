"""The NaN and infinities of one rank: which calls read them, which write them, and which make them.

Infinities have good uses (a mask of minus infinity, the logarithm of a mask), so an infinity counts only if it is not
masked away again; a NaN counts always, and a call that makes a NaN of somebody else's mask is its birthplace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.values import tensors
from msprobe.diagnose.differences.records import is_integer, numbers
from msprobe.diagnose.steps import communication
from msprobe.diagnose.steps.tensor_info import RecordedTensor
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.steps.unwritten import reads_unwritten


@dataclass(frozen=True)
class GrowthLimits:
    """What counts as a bad value beside a NaN.

    ``every_infinity``: infinities count wherever they are made, masks too. ``largest``: so does a number of greater
    size, as ``large``. ``growth``: and the result of a call whose norm is more than so many times that of its inputs.
    """

    every_infinity: bool = False
    largest: float | None = None
    growth: float | None = None

    @property
    def by_words(self) -> bool:
        """True if bad values are those that the text of a record shows: NaN and infinities."""
        return self.largest is None and self.growth is None


USUAL = GrowthLimits()


@dataclass
class Birth:
    """A call that makes what its inputs do not have: ``nan``, ``inf``, ``-inf`` or ``large``."""

    event: Event
    value: str
    from_infinity: frozenset[str] = frozenset()
    dismissed: bool = False


def bad(leaf: dict[str, Any], largest_size: float | None = None) -> frozenset[str]:
    """Which values that are not finite a tensor is known to have; ``large`` for finite ones beyond ``largest_size``."""
    statistics = numbers(leaf)
    kinds: set[str] = set()
    if leaf.get("nan"):
        kinds.add("nan")
    if statistics is not None:
        largest, least = statistics[0], statistics[1]
        if largest != largest or least != least:
            kinds.add("nan")
        if largest == float("inf"):
            kinds.add("inf")
        if least == float("-inf"):
            kinds.add("-inf")
        if largest_size is not None and not kinds and max(abs(largest), abs(least)) > largest_size:
            kinds.add("large")
    if not kinds and leaf.get("inf"):
        kinds.add("inf")
    return frozenset(kinds)


def births(timeline: Timeline) -> dict[Event, str]:
    """The calls of one rank in which a NaN or an infinity is born that counts, and which of them: ``nan``, ``inf``,
    ``-inf``. What other ranks sent is not looked at.
    """
    return {event: birth.value for event, birth in Watcher(timeline).births.items() if not birth.dismissed}


class Watcher:
    """The bad values of one rank: which events read (``given``), write (``made``) and make them (``births``)."""

    def __init__(self, timeline: Timeline, limits: GrowthLimits = USUAL) -> None:
        self.limits = limits
        self.timeline = timeline
        self.rank = timeline.rank
        self.given: dict[Event, frozenset[str]] = {}
        self.made: dict[Event, frozenset[str]] = {}
        for event in timeline:
            if limits.by_words and _is_finite(event):
                continue
            given, made = self._reads(event), self._writes(event)
            if made and reads_unwritten(event):
                given |= made  # It was there before, or what stood there made it.
            if given:
                self.given[event] = given
            if made:
                self.made[event] = made
        self.any = bool(self.given or self.made)
        self.births = self._births() if self.any else {}
        self.counts = self.any and self._counts()

    def _reads(self, event: Event) -> frozenset[str]:
        if event.is_collective:
            return self._union(communication.read(event, self.rank))
        word = operation(event.stem)
        if event.parts.kind == "api" and (word in operators.FILLS or word in operators.OVERWRITES):
            slots = event.inputs()[1:]
            return frozenset() if word in operators.FILLS else self._union(tensors(slots))
        return self._union([*tensors(event.inputs()), *tensors(event.parameters())])

    def _writes(self, event: Event) -> frozenset[str]:
        if event.is_collective:
            return self._union(communication.written(event, self.rank))
        if event.parts.kind == "api" and operation(event.stem) in operators.FILLS:
            return frozenset()
        made = self._union(tensors(event.outputs()))
        if not made and self.limits.growth is not None and _grows(event, self.limits.growth):
            made = frozenset(("large",))
        if made and event.parts.kind == "api" and operation(event.stem) in operators.READS_MEMORY_OTHERWISE:
            # What moves values makes none; memory that is not filled yet may look like anything.
            made &= self._reads(event) | ({"inf", "-inf"} if _puts_infinity(event) else set())
        return made

    def _union(self, leaves: Iterable[dict[str, Any]]) -> frozenset[str]:
        words: frozenset[str] = frozenset()
        for leaf in leaves:
            words |= bad(leaf, self.limits.largest)
        return words

    def _births(self) -> dict[Event, Birth]:
        first_births: dict[Event, Birth] = {}
        for event, made in self.made.items():
            given = self.given.get(event, frozenset())
            new = made - given
            if not new or "nan" in given or event.is_collective:
                continue
            if event.is_module and any(child in self.made for child in event.children):
                continue  # What runs inside says it better.
            if "nan" in new:
                first_births[event] = Birth(event, "nan", given)
            elif (not given and (self.limits.every_infinity or not _puts_infinity(event))) or (
                given and not _puts_infinity(event) and _is_loss(event)
            ):
                first_births[event] = Birth(event, worst(new), given)
        for birth in first_births.values():
            if birth.value in ("inf", "-inf") and not self.limits.every_infinity:
                birth.dismissed = self._dismissed(birth)
        return first_births

    def _dismissed(self, birth: Birth) -> bool:
        """True if an infinity is masked away again, and nothing bad came of it."""
        gone = False
        for event, given in self.given.items():
            if event.index <= birth.event.index or birth.value not in given or event.parts.kind != "api":
                continue
            made = self.made.get(event, frozenset())
            if "nan" in made:
                return False
            word = operation(event.stem)
            if _is_loss(event) and made:
                return False
            whole = all(is_integer(leaf) for leaf in tensors(event.outputs()))
            if not made and (
                whole or word in operators.SELECTS or (word in operators.FORGETS_INFINITY and birth.value == "-inf")
            ):
                gone = True
        return gone

    def _counts(self) -> bool:
        """True if a bad value reaches what counts: a loss, a gradient, a weight, or the end of the recording."""
        last = next((event for event in reversed(self.timeline.events) if event.direction == "forward"), None)
        for event in self.made:
            if event.direction in ("backward", "gradient", "optimizer") or event is last:
                return True
            if event.is_collective or _is_loss(event):
                return True
        return any(event.is_collective for event in self.given)


def _is_finite(event: Event) -> bool:
    """True if no tensor of a record is known to have a bad value, as in most."""
    for slots in (event.inputs(), event.outputs(), event.parameters()):
        for _, leaf in slots:
            if not (type(leaf) is RecordedTensor and leaf.plain) and is_tensor(leaf) and bad(leaf):
                return False
    return True


def worst(kinds: frozenset[str]) -> str:
    """Of several kinds of bad values the one that says most."""
    return next(kind for kind in ("nan", "inf", "-inf", "large") if kind in kinds)


def _grows(event: Event, growth: float) -> bool:
    """True if a result is so many times as large as all that went into the call."""
    given = [statistics[3] for leaf in tensors(event.inputs()) if (statistics := numbers(leaf)) is not None]
    made = [statistics[3] for leaf in tensors(event.outputs()) if (statistics := numbers(leaf)) is not None]
    return bool(given and made) and 0.0 < max(given) * growth < max(made)


def _puts_infinity(event: Event) -> bool:
    """True if a call is asked to put an infinity somewhere."""
    if event.parts.kind != "api":
        return False
    if operation(event.stem) in operators.MASKS and event.direction == "forward":
        return True
    return any(
        isinstance(leaf, dict) and leaf.get("value") in (float("inf"), float("-inf"), "Infinity", "-Infinity")
        for _, leaf in event.inputs()
    )


def _is_loss(event: Event) -> bool:
    """True if a call makes a number that gradients go back from."""
    return event.direction == "forward" and any(
        leaf.get("shape") == [] and leaf.get("requires_grad") for leaf in tensors(event.outputs())
    )

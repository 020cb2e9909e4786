"""Tensors that calls of the candidate alone leave for the next step: running averages, moments, averages of weights.

No recorded call answers to these calls, so that nothing is put right and judged where they are made. In the next step
they are taken again, and then each of them is one of the tensors that the reference takes there from outside.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msprobe.lockstep.beside import Beside
from msprobe.lockstep.reference import OPTIMIZER, RecordedCall, RecordedStep, Slot, Slots, find_slots
from msprobe.lockstep.regions import Region


@dataclass(frozen=True)
class Apart:
    """A tensor that ``left_by``, a call of a step before, has left, and that differs by ``apart``, relative, from
    ``argument`` of ``recorded``, the nearest of all that the reference has in its place.
    """

    left_by: str
    step: int
    recorded: str
    argument: str
    apart: float


class Carried:
    """What one rank carries from step to step."""

    def __init__(self) -> None:
        # By tensor: the call that has left it, the step of that, and how far rounding may have moved it, by its unit.
        self._left: dict[int, tuple[Any, str, int, Region]] = {}
        self._taken: set[int] = set()
        self._outside: dict[str | None, list[tuple[str, str, Slot]]] = {}

    def begin(self, recorded: RecordedStep | None) -> None:
        """A step begins."""
        self._left = {key: entry for key, entry in self._left.items() if entry[0]() is not None}
        self._taken.clear()
        self._outside = {}
        if recorded is None:
            return
        for call, path, slot in _from_outside(recorded):
            # A pass takes what the passes in it take.
            where, around = [call.parent], call.parent
            while around is not None and (around := recorded.outer(around)) is not None:
                where.append(around)
            for entry in where:
                self._outside.setdefault(entry, []).append((call.name, path, slot))
        for name, record in recorded.optimizers.items():
            # What an optimizer keeps may be kept by calls outside of any.
            slots: Slots = {}
            find_slots("", record.get("input_kwargs"), slots)
            self._outside.setdefault(None, []).extend(
                (name, path[1:], slot) for path, slot in slots.items() if slot.unit
            )

    def leave(self, tensor: Any, name: str, step: int, region: Region) -> None:
        """A call of the candidate alone has written to a tensor, or made it."""
        if not tensor.requires_grad:
            self._taken.add(id(tensor))  # in this step it is the call's own
            self._left[id(tensor)] = weakref.ref(tensor), name, step, region

    def take(self, tensor: Any, parent: str | None, step: int, beside: Beside) -> Apart | None:
        """A call of the candidate alone takes a tensor, in a pass of the reference. What is to be said of it, if it was
        left by a step before, and is none of those that the reference takes there.
        """
        departure = self._left.get(id(tensor))
        if departure is None or departure[0]() is not tensor or departure[2] >= step or id(tensor) in self._taken:
            return None
        self._taken.add(id(tensor))
        _, name, made, region = departure
        nearest: tuple[float, str, str] | None = None
        for recorded, path, slot in self._outside.get(parent, ()):
            other = beside.recorded(tensor, slot)
            if other is None:
                continue
            apart = beside.apart(tensor, other)
            if apart <= region.root.allowed(slot.unit):
                return None
            if nearest is None or apart < nearest[0]:
                nearest = apart, recorded, path
        if nearest is None or not math.isfinite(nearest[0]):
            return None
        apart, recorded, path = nearest
        return Apart(name, made, recorded, path, apart)


def _from_outside(recorded: RecordedStep) -> Iterator[tuple[RecordedCall, str, Slot]]:
    """What recorded calls take that no call of the step has made, and that needs no gradient."""
    for call in recorded:
        if call.parent == OPTIMIZER:
            continue
        for path, slot in call.inputs.items():
            if slot.unit and not slot.requires_grad and recorded.maker(slot, call) is None:
                yield call, path, slot

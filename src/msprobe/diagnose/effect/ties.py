"""Weights that are one tensor on one side and two on the other.

A tied weight stands in two modules with the same values and gets one gradient, that of all its uses; of an untied one
each part gets the gradient of its own use.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.steps.parameter_names import plain_name
from msprobe.diagnose.steps.timeline import Event, Timeline


@dataclass(frozen=True)
class BrokenTie:
    """``other`` is the parameter that a parameter is tied with, on the side ``tied`` alone."""

    other: str
    tied: Literal["candidate", "reference"]


class Ties:
    """The weights of both sides, to be asked which of them are one tensor on one side alone."""

    def __init__(self, candidate: Timeline, reference: Timeline) -> None:
        self._sides = _Weights(candidate), _Weights(reference)

    def broken(self, gradient: Event, slot: str) -> BrokenTie | None:
        """The tie of the parameter whose gradient this is; None if it is tied on both sides or on none."""
        name = plain_name(gradient, slot)
        mine, theirs = self._sides
        for other in theirs.tied_with(name):
            if mine.apart(name, other):
                return BrokenTie(other, "reference")
        for other in mine.tied_with(name):
            if theirs.apart(name, other):
                return BrokenTie(other, "candidate")
        return None


class _Weights:
    """Values and gradients of the parameters of a timeline, as far as they are known."""

    def __init__(self, timeline: Timeline) -> None:
        self.values: dict[str, Hashable] = {}
        self.gradients: dict[str, Hashable] = {}
        for event in timeline:
            if event.direction == "forward" and event.is_module:
                for slot, leaf in event.parameters():
                    self.values.setdefault(plain_name(event, slot), fingerprint(leaf))
            elif event.direction == "gradient":
                for slot, leaf in event.outputs():
                    self.gradients.setdefault(plain_name(event, slot), fingerprint(leaf))
        self._alike: dict[tuple[Hashable, Hashable], list[str]] = {}
        for name, gradient in self.gradients.items():
            self._alike.setdefault((self.values.get(name), gradient), []).append(name)

    def tied_with(self, name: str) -> list[str]:
        """The parameters that have the values and the gradient of another."""
        value, gradient = self.values.get(name), self.gradients.get(name)
        if value is None or gradient is None:
            return []
        return [other for other in self._alike[value, gradient] if other != name]

    def apart(self, first: str, other: str) -> bool:
        """True if two parameters have gradients of their own."""
        known = self.gradients.get(first), self.gradients.get(other)
        return None not in known and known[0] != known[1]

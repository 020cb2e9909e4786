"""Gradients on their way back in one step of one rank: judged where they end a region, and what takes their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture.events import Gradient
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.pairing import Pairs
from msprobe.lockstep.reference import RecordedCall, Slots
from msprobe.lockstep.regions import Mark, Regions


class Gradients:
    """The gradients of a step. ``of_modules``: those of passes of modules have partners, too."""

    def __init__(self, pairs: Pairs, regions: Regions, beside: Beside, of_modules: bool) -> None:
        self._pairs = pairs
        self._regions = regions
        self._beside = beside
        self._of_modules = of_modules
        self._slots: dict[Mark, tuple[Slots, Slots]] = {}
        # Gradients that came already: a graph that is walked twice brings others the second time.
        self._came: set[tuple[str, str, str]] = set()
        # Paired calls that take a parameter, with the path that it has there.
        self._takers: dict[int, list[tuple[Mark, str]]] = {}
        self._idle: set[Mark] = set()
        self._parameter: dict[tuple[Mark, str], int] = {}

    def leave_out(self, mark: Mark) -> None:
        """A call has given back its argument: what is seen at it belongs to the call that made that."""
        self._idle.add(mark)

    def note_parameters(self, mark: Mark, tensors: Sequence[tuple[str, Any]]) -> None:
        """A paired call takes these tensors, by path. What a parameter gets from several calls may come back through
        one of them: autocast casts it once for all.
        """
        for path, tensor in tensors:
            if tensor.requires_grad and tensor.is_leaf:
                self._takers.setdefault(id(tensor), []).append((mark, path))
                self._parameter[mark, path] = id(tensor)

    def other(self, event: Gradient) -> Any:
        """What the reference has in the place of a gradient; None if it is the same, or goes on as it is."""
        mark = event.key, event.number
        came = event.name, event.side, event.place
        if came in self._came or mark in self._idle:
            return None
        found = self._pairs.partner.get(mark)
        if found is None and self._of_modules:
            found = self._pairs.step.module_pass(event.name)
        if found is None:
            return None
        self._came.add(came)
        slot = self._of(mark, found)[0 if event.side == "result" else 1].get(event.place)
        if slot is None or not self._beside.has_shape(event.gradient, slot):
            return None
        other = self._beside.other(event.gradient, slot)
        if other is not None and event.side == "argument":
            other = self._with_other_shares(event, mark, other)
        if event.side == "result":
            for region in self._regions.entered_from(mark):
                agrees = other is None or self._beside.agrees(event.gradient, other, slot, region, gradient=True)
                if agrees and not region.tells_by_gradients:
                    continue
                if agrees or not self._regions.goes_back(mark, region, self._pairs.has_unmade):
                    region.end(event.name, agrees)
        is_passed = self._regions.is_passed(mark, event.name) or self._regions.goes_through(mark, event.name)
        return None if is_passed else other

    def _with_other_shares(self, event: Gradient, mark: Mark, other: Any) -> Any:
        """What the reference has in the place of a parameter's gradient: with the shares of the calls whose gradient
        has not come, if the own one is nearer to that, as they have come with it then.
        """
        whole, came = other, []
        for taker, path in self._takers.get(self._parameter.get((mark, event.place), 0), ()):
            name = _backward(taker), event.side, path
            found = self._pairs.partner.get(taker)
            if found is None or name in self._came:
                continue
            slot = self._of(taker, found)[1].get(path)
            share = None if slot is None else self._beside.recorded(event.gradient, slot)
            if share is None:
                return other
            whole = whole + share
            came.append(name)
        if not came or self._beside.apart(event.gradient, other) <= self._beside.apart(event.gradient, whole):
            return other
        self._came.update(came)
        return whole

    def look_for_missed(self) -> None:
        """The step is over: gradients that the reference has, and that no region has brought back."""
        for mark in self._regions.entries():
            name = _backward(mark)
            found = self._pairs.partner.get(mark)
            for place in self._of(mark, found)[0] if found is not None else ():
                if (name, "result", place) not in self._came:
                    for region in self._regions.entered_from(mark):
                        region.end(name, False)

    def _of(self, mark: Mark, found: RecordedCall) -> tuple[Slots, Slots]:
        slots = self._slots.get(mark)
        if slots is None:
            slots = self._slots[mark] = self._pairs.step.gradients_of(found)
        return slots


def _backward(mark: Mark) -> str:
    return f"{mark[0]}.{mark[1]}.backward"

"""Gradients on their way back in one step of one rank: judged where they end a region, and what takes their place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msprobe.capture.events import Gradient
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.pairing import Pairs
from msprobe.lockstep.reference import RecordedCall, Slot, Slots
from msprobe.lockstep.regions import Mark, Region, Regions


class Gradients:
    """The gradients of a step. ``has_modules``: those of passes of modules have partners, too."""

    def __init__(self, pairs: Pairs, regions: Regions, beside: Beside, has_modules: bool) -> None:
        self._pairs = pairs
        self._regions = regions
        self._beside = beside
        self._has_modules = has_modules
        self._slots: dict[Mark, tuple[Slots, Slots]] = {}
        # Gradients that came already: a graph that is walked twice brings others the second time.
        self._came: set[tuple[str, str, str]] = set()
        # Paired calls that take a parameter, with the path that it has there.
        self._takers: dict[int, list[tuple[Mark, str]]] = {}
        self._idle: set[Mark] = set()
        self._parameter: dict[tuple[Mark, str], int] = {}
        # The same of calls without a partner.
        self._lone_parameters: set[tuple[Mark, str]] = set()
        # Paired calls whose results other paired calls take, so that gradients come back by them.
        self._taken: set[Mark] = set()
        # Ends at which gradients are apart: of which region, by how much of the loss, and in which unit.
        self._doubtful: list[tuple[Region, str, float, float]] = []
        # What the backward pass under way begins with, in units of what it begins with in the reference.
        self._factor = 1.0
        # Backward calls that begin with such a factor, which, and the regions that make it.
        self._roots: dict[str, tuple[float, list[Region]]] = {}
        #: A paired call has taken a gradient that the reference has otherwise: what it comes to hides the factor.
        self.is_factor_taken = False

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

    def note_lone_parameters(self, mark: Mark, tensors: Sequence[tuple[str, Any]]) -> None:
        """A call without a partner takes these tensors, by path."""
        self._lone_parameters.update(
            (mark, path) for path, tensor in tensors if tensor.requires_grad and tensor.is_leaf
        )

    def note_taken(self, tensors: Sequence[tuple[str, Any]]) -> None:
        """A paired call, whose result needs a gradient, takes these tensors, by path."""
        for _, tensor in tensors:
            maker = self._regions.maker(tensor)
            if maker is not None:
                self._taken.add(maker)

    def other(self, event: Gradient) -> Any:
        """What takes the place of a gradient: what the reference has, for a parameter times the factor that the loss
        has; None if it is the same, or goes on as it is.
        """
        other = self._other(event)
        mark = event.key, event.number
        is_of_parameter = (mark, event.place) in self._parameter or (mark, event.place) in self._lone_parameters
        if self._factor == 1.0 or event.side != "argument" or not is_of_parameter:
            return other
        return (event.gradient if other is None else other) * self._factor

    def _other(self, event: Gradient) -> Any:
        mark = event.key, event.number
        came = event.name, event.side, event.place
        if came in self._came or mark in self._idle:
            return None
        pass_ = self._pairs.partner.get(mark)
        if pass_ is None and self._has_modules:
            pass_ = self._pairs.step.module_pass(event.name)
        if pass_ is None:
            return None
        self._came.add(came)
        slot = self._of(mark, pass_)[0 if event.side == "result" else 1].get(event.place)
        if slot is None or not self._beside.has_shape(event.gradient, slot):
            return None
        other = self._beside.other(event.gradient, slot)
        if other is not None and event.side == "argument":
            other = self._with_other_shares(event, mark, other)
        if event.side == "result" and self._is_root(event, mark):
            self._factor = factor = self._beside.factor(event.gradient, slot)
            if factor != 1.0:
                self._roots[event.name] = factor, self._regions.entered_from(mark)
                return other
        if event.side == "result":
            for region in self._regions.entered_from(mark):
                agrees = other is None or self._beside.agrees(event.gradient, other, slot, region, gradient=True)
                if agrees and not region.decides_by_gradients:
                    continue
                if agrees or not self._regions.goes_back(mark, region, self._pairs.has_unmade):
                    region.end(event.name, agrees)
                    self._note_end(event, pass_, slot, other, region, agrees)
        is_passed = self._regions.is_passed(mark, event.name) or self._regions.goes_through(mark, event.name)
        return None if is_passed else other

    def _note_end(
        self, event: Gradient, call: RecordedCall, slot: Slot, other: Any, region: Region, agrees: bool
    ) -> None:
        """How much of the loss a gradient that leaves a region stands for, and by how much of it it is apart."""
        value = call.outputs.get(event.place)
        whole = None if value is None else self._beside.recorded(event.gradient, value)
        if whole is None:
            return
        region.moves = max(region.moves, self._beside.moves(event.gradient if other is None else other, whole))
        if not agrees:
            apart = self._beside.moves(event.gradient - other, whole) or math.inf
            self._doubtful.append((region, event.name, apart, slot.unit))

    def _is_root(self, event: Gradient, mark: Mark) -> bool:
        """True if a backward pass begins here, but for calls of one side alone: with a number that nothing takes which
        the reference has.
        """
        regions = self._regions.entered_from(mark)
        return (
            not self._has_modules
            and event.gradient.numel() == 1
            and mark not in self._taken
            and all(region.is_loose for region in regions)
        )

    def _with_other_shares(self, event: Gradient, mark: Mark, other: Any) -> Any:
        """What the reference has in the place of a parameter's gradient: with the shares of the calls whose gradient
        has not come, if the own one is nearer to that, as they have come with it then.
        """
        whole, came = other, []
        for taker, path in self._takers.get(self._parameter.get((mark, event.place), 0), ()):
            name = _backward(taker), event.side, path
            partner = self._pairs.partner.get(taker)
            if partner is None or name in self._came:
                continue
            slot = self._of(taker, partner)[1].get(path)
            share = None if slot is None else self._beside.recorded(event.gradient, slot)
            if share is None:
                return other
            whole = whole + share
            came.append(name)
        if not came or self._beside.apart(event.gradient, other) <= self._beside.apart(event.gradient, whole):
            return other
        self._came.update(came)
        return whole

    def end_factors(self) -> dict[str, float]:
        """The step is over: the backward calls that began with a factor, with which. Where a paired call has taken
        gradients that had it, what optimizers take shows nothing of it.
        """
        for name, (_, regions) in self._roots.items() if self.is_factor_taken else ():
            for region in regions:
                region.root.end(name, False)
        return {name: factor for name, (factor, _) in self._roots.items()}

    def look_for_missed(self) -> None:
        """The step is over: gradients that the reference has, and that no region has brought back; and those that are
        nothing but rounding of what the region brings back elsewhere.
        """
        clear = {
            (region.root, name) for region, name, apart, unit in self._doubtful if not region.root.is_noise(apart, unit)
        }
        for region, name, _, _ in self._doubtful:
            if (region.root, name) not in clear:
                region.root.ends[name] = True
        for mark in self._regions.entries():
            name = _backward(mark)
            recorded = self._pairs.partner.get(mark)
            for place in self._of(mark, recorded)[0] if recorded is not None else ():
                if (name, "result", place) not in self._came:
                    for region in self._regions.entered_from(mark):
                        region.end(name, False)

    def _of(self, mark: Mark, recorded: RecordedCall) -> tuple[Slots, Slots]:
        slots = self._slots.get(mark)
        if slots is None:
            slots = self._slots[mark] = self._pairs.step.gradients_of(recorded)
        return slots


def _backward(mark: Mark) -> str:
    return f"{mark[0]}.{mark[1]}.backward"

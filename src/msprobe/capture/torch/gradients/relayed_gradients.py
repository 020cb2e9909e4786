"""Gradients of calls, passes and parameters, reported to listeners as they come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.bus import Bus
from msprobe.capture.events import ParameterGradient, Side
from msprobe.capture.relayed_units import Relayed
from msprobe.capture.session import Session
from msprobe.capture.torch import private
from msprobe.capture.torch.gradients.graph_nodes import ArgumentEdge, Base, NodeHooks, collect_tensors
from msprobe.capture.torch.gradients.parameter_gradients import ParameterHooks
from msprobe.capture.torch.gradients.pass_gradients import PassGradients, PassWatch, nodes_of
from msprobe.capture.torch.replacing import gradient_in_place_of
from msprobe.capture.torch.tensors.statistics_framework import OwnWork

_without_functions = private.without_functions


class _Unit:
    """Whose gradients these are: a call or pass, and the places of its results. ``is_changed``: somebody may put others
    in their place.
    """

    __slots__ = ("is_changed", "relayed", "results")

    def __init__(self, relayed: Relayed, results: list[str], is_changed: bool) -> None:
        self.relayed = relayed
        self.results = results
        self.is_changed = is_changed


class RelayedGradients(PassGradients):
    """Notifies the listeners of a call or pass of its gradients."""

    # Set when both are made: the bus asks for gradients, which go to the bus.
    bus: Bus

    def __init__(self, session: Session) -> None:
        super().__init__(session, NodeHooks())

    def watch(self, relayed: Relayed, edges: list[ArgumentEdge], oldest: int, result: Any) -> None:
        """The call or pass has returned."""
        tensors: list[tuple[str, Any]] = []
        if isinstance(result, tuple):
            collect_tensors(result, "output", tensors)
        else:
            collect_tensors(result, "output.0", tensors)
        outputs = [tensor for _, tensor in tensors]
        nodes = nodes_of(outputs)
        if nodes:
            watch = self.follow(relayed.backward, None, edges, oldest, outputs, nodes)
            is_changed = self.bus.changes_gradients(relayed.gradient_routes, relayed.key, relayed.number)
            watch.unit = _Unit(relayed, [path for path, _ in tensors], is_changed)

    # ------------------------------------------------------------ others in their place

    def _arrive(
        self,
        watch: PassWatch,
        places: list[tuple[int, int]],
        through: Sequence[tuple[int, int]],
        received: Sequence[Any],
    ) -> Sequence[Any] | None:
        """Gradients that arrive at results may be replaced."""
        unit: _Unit = watch.unit
        if not unit.is_changed or watch.generation != self.session.generation:
            super()._arrive(watch, places, through, received)
            return None
        given, rest = list(received), list(received)
        self.session.guard(self._offer_results, unit, places, {slot for slot, _ in through}, given, rest)
        super()._arrive(watch, places, through, rest)
        return _if_changed(given, received)

    def _offer_results(
        self, unit: _Unit, places: list[tuple[int, int]], handed: set[int], given: list[Any], rest: list[Any]
    ) -> None:
        """Put others into ``given``; what was reported is taken out of ``rest``."""
        for slot, index in places:
            if slot < len(given) and slot not in handed and _is_plain(given[slot]):
                given[slot] = self._changed(unit.relayed, "result", unit.results[index], given[slot])
                rest[slot] = None

    def _pass_on(
        self,
        watch: PassWatch,
        slots: list[tuple[int, int]],
        parts: Sequence[Base],
        passed_on: Sequence[Any],
        received: Sequence[Any],
    ) -> Sequence[Any] | None:
        """Gradients of arguments may be replaced once the last of their shares leaves."""
        unit: _Unit = watch.unit
        if not unit.is_changed or watch.generation != self.session.generation:
            super()._pass_on(watch, slots, parts, passed_on, received)
            return None
        given, rest = list(passed_on), list(slots)
        self.session.guard(self._offer_arguments, watch, slots, given, rest)
        super()._pass_on(watch, rest, parts, passed_on, received)
        return _if_changed(given, passed_on)

    def _offer_arguments(
        self, watch: PassWatch, slots: list[tuple[int, int]], given: list[Any], rest: list[tuple[int, int]]
    ) -> None:
        """Put others into ``given``; what was reported is taken out of ``rest``."""
        gathering = watch.gather()
        for index in dict.fromkeys(index for _, index in slots):
            places = [place for place in slots if place[1] == index]
            own = [position for position, _ in places if given[position] is not None]
            is_last = gathering.passed.get(index, 0) + len(places) >= watch.shares[index]
            left = gathering.sums.get(index)
            if not own or not is_last or not all(map(_is_plain, [given[index] for index in own])):
                continue
            if left is not None:
                if not _is_plain(left):
                    continue
                gathering.take(index)
            shares = [*([] if left is None else [left]), *(given[index] for index in own)]
            total = shares[0] if len(shares) == 1 else _sum(shares)
            other = self._changed(watch.unit.relayed, "argument", watch.paths[index], total)
            for place in places:
                rest.remove(place)
            if other is not total:
                # What the engine adds up is the other one, and nothing else; up to rounding, if a share has left.
                for place_given in own:
                    given[place_given] = None
                given[own[0]] = other if left is None else _sum([other, -left])

    def _changed(self, relayed: Relayed, side: Side, place: str, gradient: Any) -> Any:
        """Report a gradient that may be replaced; what the backward pass goes on with."""
        with _without_functions():
            try:
                event = relayed.gradient(side, place, gradient, can_be_replaced=True)
                other = self.bus.show_gradient(relayed.gradient_routes, event, gradient_in_place_of)
                return gradient if other is None else other[0]
            except Exception as error:
                self.session.fault(relayed.backward, error)
                return gradient

    # ------------------------------------------------------------ reported

    def _take_result(self, watch: PassWatch, index: int, gradient: Any) -> None:
        if gradient is not None:
            unit: _Unit = watch.unit
            relayed = unit.relayed
            self.bus.show_gradient(relayed.gradient_routes, relayed.gradient("result", unit.results[index], gradient))

    def _share(self, watch: PassWatch, index: int) -> Callable[[Any], Any]:
        relayed: Relayed = watch.unit.relayed
        place = watch.paths[index]

        def take(gradient: Any) -> None:
            self.bus.show_gradient(relayed.gradient_routes, relayed.gradient("argument", place, gradient))

        return take

    def _finish(self, watch: PassWatch) -> None:
        gathering = watch.gather()
        for index in range(len(watch.paths)):
            # Those with several uses: the others were reported when they came.
            gathering.result(index, self._share(watch, index))


def _is_plain(gradient: Any) -> bool:
    """Whether another one can be put in its place."""
    return type(gradient) is torch.Tensor and gradient.layout is torch.strided


def _if_changed(given: Sequence[Any], own: Sequence[Any]) -> Sequence[Any] | None:
    """What a hook answers: None where the gradients are its own."""
    return None if all(item is other for item, other in zip(given, own, strict=True)) else tuple(given)


def _sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    with _without_functions() if any(part.requires_grad for part in parts) else OwnWork():
        return functools.reduce(torch.add, parts)


class RelayedParameterGradients(ParameterHooks):
    """Notifies listeners of the gradients of parameters."""

    bus: Bus

    def __init__(self, session: Session, hooks: NodeHooks) -> None:
        super().__init__(hooks)
        self.session = session
        # How many have come in this step: (entry, key of the parameter).
        self._counts: dict[tuple[str, str], int] = {}

    def arrive(self, owners: Sequence[tuple[str, str]], gradients: Sequence[Any]) -> None:
        session, gradient = self.session, gradients[0]
        if gradient is None or not session.recording:
            return
        with _without_functions():
            for entry, parameter in owners:
                try:
                    number = self._counts.get((entry, parameter), 0)
                    self._counts[entry, parameter] = number + 1
                    key = entry.removesuffix(".parameters_grad")
                    routes = self.bus.open_routes("parameter_gradient", key, number)
                    if routes:
                        event = ParameterGradient(entry, session.step, session.rank(), key, parameter, number, gradient)
                        self.bus.show_gradient(routes, event)
                except Exception as error:
                    session.fault(entry, error)

    def begin_step(self) -> None:
        """A new step: nothing has come yet."""
        self._counts.clear()
        self.prune()

"""Gradients of calls, passes and parameters of a MindSpore program, reported to listeners as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe.capture.bus import Bus
from msprobe.capture.events import ParameterGradient
from msprobe.capture.mindspore.calls.surface import Surface
from msprobe.capture.mindspore.gradients.asked_gradients import AskedGradients
from msprobe.capture.mindspore.gradients.backward_graph import NodeHooks
from msprobe.capture.mindspore.gradients.node_gradients import GraphGradients, Watch
from msprobe.capture.relayed_units import Relayed
from msprobe.capture.session import Session


class RelayedGradients(GraphGradients):
    """Notifies the listeners of a call or pass of its gradients."""

    # Set when both are made: the bus asks for gradients, which go to the bus.
    bus: Bus

    def __init__(self, session: Session, asked: AskedGradients) -> None:
        super().__init__(session, NodeHooks())
        self.asked = asked
        # By the backward entry: whose gradients these are, and the places of its arguments that are not keywords.
        self._open_backward: dict[str, tuple[Relayed, list[str]]] = {}
        # What the base class describes is reported instead, and no record is put.
        self.units: Any = self
        self.filter = None
        self.input = self.output = True

    def follow(self, relayed: Relayed, note: Any, tensors: Any) -> None:
        """The call or pass has returned these tensors."""
        places = [edge.path for edge in note.edges if not edge.path.startswith("kwargs.")]
        self._open_backward[relayed.backward] = relayed, places
        self.watch(relayed, note, tensors)

    def described(self, gradient: Any, path: str, entry: str) -> None:
        """Report a gradient in the place of its description."""
        passes = self._open_backward.get(entry)
        if passes is None:
            return
        relayed, places = passes
        kind, _, place = path.removeprefix(f"{entry}.").partition(".")
        if kind == "input":
            event = relayed.gradient("result", f"output.{place}", gradient)
        else:
            event = relayed.gradient("argument", place if place.startswith("kwargs.") else places[int(place)], gradient)
        self.bus.show_gradient(relayed.gradient_routes, event)

    def put(self, *record: Any) -> None:
        """All was reported when it came."""

    def _begin(self, watch: Watch) -> None:
        if not watch.begun:
            watch.begun = watch.wanted = True
            self.open[watch] = None

    def forget_step(self) -> None:
        super().forget_step()
        self._open_backward.clear()


class RelayedParameterGradients:
    """Notifies listeners of the gradients of the parameters of cells."""

    bus: Bus

    def __init__(self, session: Session, names: Surface) -> None:
        self.session = session
        self.names = names
        self._handles: list[Any] = []
        # By identity of the parameter: its names, and the parameter, which is kept so that its identity stays its own.
        self._owners: dict[int, tuple[Any, list[tuple[str, str]]]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._watched: set[tuple[str, int]] = set()

    def watch(self, name: str, cell: Any) -> None:
        """Put hooks on the parameters of this cell, when it is named first: to ask a parameter waits for all work
        before it.
        """
        if (name, id(cell)) in self._watched:
            return
        self._watched.add((name, id(cell)))
        for key, parameter in self.names.own_parameters(cell):
            if not parameter.requires_grad:
                continue
            known = self._owners.get(id(parameter))
            if known is None:
                known = self._owners[id(parameter)] = (parameter, [])
                self._handles.append(parameter.register_hook(self._hook(known[1])))
            if (name, key) not in known[1]:
                known[1].append((name, key))

    def _hook(self, owners: list[tuple[str, str]]) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            if self.session.recording:
                for name, key in owners:
                    self.session.guard(self._arrive, name, key, gradient)

        return arrived

    def _arrive(self, name: str, key: str, gradient: Any) -> None:
        number = self._counts.get((name, key), 0)
        self._counts[name, key] = number + 1
        routes = self.bus.open_routes("parameter_gradient", name, number)
        if routes:
            session = self.session
            event = ParameterGradient(
                f"{name}.parameters_grad", session.step, session.rank(), name, key, number, gradient
            )
            self.bus.show_gradient(routes, event)

    def begin_step(self) -> None:
        """A new step: nothing has come yet."""
        self._counts.clear()

    def remove(self) -> None:
        """Take the hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            self.session.guard(handle.remove)
        self._owners.clear()
        self._watched.clear()

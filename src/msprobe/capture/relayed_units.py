"""What listeners are notified of, between its beginning and its end: a call or a pass of a module, also on to its
backward; a step of an optimizer, a collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture.events import Collective, Failure, Gradient, OptimizerStep, Side, path_of
from msprobe.capture.routes import Route
from msprobe.capture.session import Session


class RelayedEvent:
    """A step of an optimizer, or a collective, that listeners are notified of, until it is over. ``dumped``: what the
    dumper made of it.
    """

    __slots__ = ("dumped", "event", "routes")

    def __init__(self, event: OptimizerStep | Collective, routes: Sequence[Route], dumped: Any) -> None:
        # Let go of when it is over, by whoever keeps this.
        self.event: OptimizerStep | Collective | None = event
        self.routes = routes
        self.dumped = dumped

    def end(self) -> OptimizerStep | Collective | None:
        """It is over: its event, once."""
        event, self.event = self.event, None
        return event


class Relayed:
    """A call or pass that listeners are notified of, between its beginning and its end, and on to its backward."""

    # What gradients are looked for by: a call is no pass, and what was there before says nothing to listeners.
    module: Any = None
    parent: Any = None

    __slots__ = (
        "among_modes",
        "backward",
        "dumped",
        "event",
        "gradient_routes",
        "key",
        "note",
        "number",
        "rank",
        "routes",
        "step",
    )

    def __init__(self, session: Session, key: str, number: int, backward: str, routes: Sequence[Route]) -> None:
        self.key = key
        self.number = number
        self.step = session.step
        self.rank = session.rank()
        # The name of the backward entry.
        self.backward = backward
        self.routes = routes
        self.gradient_routes = [route for route in routes if route.backward]
        # Let go of when it is over: gradients come later, and need none of it.
        self.event: Any = None
        # What the dumper made of it.
        self.dumped: Any = None
        # What was noted of the arguments, to find their gradients.
        self.note: Any = None
        self.among_modes = False

    def gradient(self, side: Side, place: str, gradient: Any, can_be_replaced: bool = False) -> Gradient:
        """The event of one of its gradients."""
        return Gradient(
            self.backward, self.step, self.rank, self.key, self.number, side, place, gradient, can_be_replaced
        )

    def failure(self, error: BaseException) -> Failure:
        """The event of its failure."""
        return Failure(self.event.name, self.step, self.rank, self.event, error)

    def close(self) -> Any:
        """It is over: only its gradients are still to come. What was noted to find them, None if nobody wants them."""
        note = self.note
        self.event = self.note = self.dumped = None
        return note


class RelayedCall(Relayed):
    """A call; with other arguments than its own if ``is_changed``."""

    __slots__ = ("args", "before_call", "is_changed", "kwargs")

    # What a dumper reads that is asked to end it, as recording was stopped and begun anew inside of the call: nothing
    # of it is dumped.
    base = entry = ""
    recorded = False
    watched = False
    versions = ()

    def __init__(self, session: Session, key: str, number: int, routes: Sequence[Route]) -> None:
        super().__init__(session, key, number, f"{key}.{number}.backward", routes)
        self.args: Sequence[Any] = ()
        self.kwargs: dict[str, Any] = {}
        self.is_changed = False
        # The versions of the tensors among its arguments, where somebody may change its result.
        self.before_call: Sequence[int] = ()


class RelayedPass(Relayed):
    """A pass of a module."""

    __slots__ = ("module", "path")

    def __init__(self, session: Session, key: str, number: int, routes: Sequence[Route], module: Any) -> None:
        super().__init__(session, key, number, f"{key}.backward.{number}", routes)
        self.module = module
        self.path = path_of(key)


def arguments_of(call: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """With what to make a call that has begun: what a listener gave for its arguments, or these."""
    return (call.args, call.kwargs) if type(call) is RelayedCall and call.is_changed else (args, kwargs)

"""Collectives on their way to the dumper and to listeners: when they are issued, and when their buffers are filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.capture.bus import Relay
from msprobe.capture.events import Collective, Failure, Origin
from msprobe.capture.routes import Route, routes_around_dump


class RelayedCollective:
    """A collective that listeners are notified of, until it is over; ``dumped``: what the dumper made of it."""

    __slots__ = ("dumped", "event", "routes")

    def __init__(self, event: Collective, routes: Sequence[Route], dumped: Any) -> None:
        # Let go of when it is over, by whoever keeps this.
        self.event: Collective | None = event
        self.routes = routes
        self.dumped = dumped


class RelayedCollectives(Relay):
    """Collectives, to the dumper (None: it records none in this step) and to listeners.

    See :class:`msprobe.capture.targets.Collectives`.
    """

    def begin_collective(self, key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        bus, session = self.bus, self.session
        number = session.number(key)
        dumped = None
        if self.dumper is not None:
            dumped = self.dumper.begin_collective(key, args, kwargs, number)
        routes = bus.open_routes("collective", key, number)
        if not routes:
            return dumped
        # Found out now: until an asynchronous one is over, the frame may be long gone, and must not be kept.
        stack = session.stacks.here()
        origin = Origin(lambda: stack, bus.parent(), getattr(dumped, "order", None) or None)
        name = f"{key}.{number}.forward"
        event = Collective(name, session.step, bus.rank, key, number, origin, args, kwargs)
        bus.show(routes, "before", event)
        return RelayedCollective(event, routes, dumped)

    def leave_under_way(self, begun: Any, outputs: list[Any], facts: Mapping[str, Any], result: Any = None) -> None:
        dumped = begun.dumped if type(begun) is RelayedCollective else begun
        if dumped is not None:
            self.dumper.leave_under_way(dumped, outputs, facts, result)

    def end_collective(self, begun: Any, results: Any, facts: Mapping[str, Any], result: Any = None) -> None:
        dumped = begun.dumped if type(begun) is RelayedCollective else begun
        event = _event_of(begun)
        early, late = routes_around_dump(begun.routes) if event is not None else ((), ())
        self.bus.show(early, "after", event, results)
        if dumped is not None:
            self.session.guard(self.dumper.end_collective, dumped, results, facts, result)
        self.bus.show(late, "after", event, results)

    def fail_collective(self, begun: Any, error: BaseException) -> None:
        dumped = begun.dumped if type(begun) is RelayedCollective else begun
        if dumped is not None:
            self.dumper.fail_collective(dumped, error)
        event = _event_of(begun)
        if event is not None:
            self.bus.show_failure(begun.routes, Failure(event.name, event.step, event.rank, event, error))


def _event_of(begun: Any) -> Collective | None:
    """What is notified of it, once."""
    if type(begun) is not RelayedCollective:
        return None
    event, begun.event = begun.event, None
    return event

"""Collectives on their way to the dumper and to listeners: told when they are issued, and when their buffers are known
to be filled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.capture.bus import Bus
from msprobe.capture.events import Collective, Failure, Origin
from msprobe.capture.routes import Way, ways_around_dump


class HeardCollective:
    """A collective that listeners are told of, until it is over; ``dumped``: what the dumper made of it."""

    __slots__ = ("dumped", "event", "ways")

    def __init__(self, event: Collective, ways: Sequence[Way], dumped: Any) -> None:
        # Let go of when it is over, by whoever keeps this.
        self.event: Collective | None = event
        self.ways = ways
        self.dumped = dumped


class HeardCollectives:
    """Collectives, to the dumper (None: it records none in this step) and to listeners.

    See :class:`msprobe.capture.targets.Collectives`.
    """

    def __init__(self, bus: Bus, dumper: Any) -> None:
        self.bus = bus
        self.session = bus.session
        self.dumper = dumper

    def begin_collective(self, key: str, args: Sequence[Any], kwargs: Mapping[str, Any], skip: int) -> Any:
        """See the protocol."""
        bus, session = self.bus, self.session
        number = session.number(key)
        dumped = None
        if self.dumper is not None:
            dumped = self.dumper.begin_collective(key, args, kwargs, skip + 1, number)
        ways = bus.open_ways("collective", key, number)
        if not ways:
            return dumped
        # Found out now: until an asynchronous one is over, the frame may be long gone, and must not be kept.
        stack = session.stacks.of(sys._getframe(skip + 1))
        origin = Origin(lambda: stack, bus.parent(), getattr(dumped, "order", None) or None)
        name = f"{key}.{number}.forward"
        event = Collective(name, session.step, bus.rank, key, number, origin, args, kwargs)
        bus.show(ways, "before", event)
        return HeardCollective(event, ways, dumped)

    def leave_under_way(self, begun: Any, outputs: list[Any], facts: Mapping[str, Any], result: Any = None) -> None:
        """See the protocol."""
        dumped = begun.dumped if type(begun) is HeardCollective else begun
        if dumped is not None:
            self.dumper.leave_under_way(dumped, outputs, facts, result)

    def end_collective(self, begun: Any, results: Any, facts: Mapping[str, Any], result: Any = None) -> None:
        """See the protocol."""
        dumped = begun.dumped if type(begun) is HeardCollective else begun
        event = _event_of(begun)
        early, late = ways_around_dump(begun.ways) if event is not None else ((), ())
        self.bus.show(early, "after", event, results)
        if dumped is not None:
            self.session.guard(self.dumper.end_collective, dumped, results, facts, result)
        self.bus.show(late, "after", event, results)

    def fail_collective(self, begun: Any, error: BaseException) -> None:
        """See the protocol."""
        dumped = begun.dumped if type(begun) is HeardCollective else begun
        if dumped is not None:
            self.dumper.fail_collective(dumped, error)
        event = _event_of(begun)
        if event is not None:
            self.bus.show_failure(begun.ways, Failure(event.name, event.step, event.rank, event, error))


def _event_of(begun: Any) -> Collective | None:
    """What is told of it, once."""
    if type(begun) is not HeardCollective:
        return None
    event, begun.event = begun.event, None
    return event

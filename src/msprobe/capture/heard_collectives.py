"""Collectives on their way to listeners: told when they are issued, and when their buffers are known to be filled."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.capture.bus import Bus
from msprobe.capture.events import Collective, Failure, Origin
from msprobe.capture.routes import Way


class HeardCollective:
    """A collective that listeners are told of, until it is over."""

    __slots__ = ("_bus", "_event", "_ways")

    def __init__(self, bus: Bus, event: Collective, ways: Sequence[Way]) -> None:
        self._bus = bus
        self._event: Collective | None = event
        self._ways = ways

    def end(self, result: Any) -> None:
        """Its results are there."""
        event, self._event = self._event, None
        if event is not None:
            self._bus.show(self._ways, "after", event, result)

    def fail(self, error: BaseException) -> None:
        """It has raised."""
        event, self._event = self._event, None
        if event is not None:
            self._bus.show_failure(self._ways, Failure(event.name, event.step, event.rank, event, error))


def begin_collective(
    bus: Bus,
    key: str,
    number: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    frame: types.FrameType,
    dumped: Any,
) -> HeardCollective | None:
    """A collective is issued, from ``frame``; None if nobody wants to know. ``dumped``: what the dumper made of it."""
    ways = bus.open_ways("collective", key, number)
    if not ways:
        return None
    session = bus.session
    order = getattr(dumped, "order", None) or None
    # Found out now: until an asynchronous one is over, the frame may be long gone, and must not be kept.
    stack = session.stacks.of(frame)
    origin = Origin(lambda: stack, bus.parent(), order)
    name = f"{key}.{number}.forward"
    event = Collective(name, session.step, session.rank(), key, number, origin, args, kwargs)
    bus.show(ways, "before", event)
    return HeardCollective(bus, event, ways)

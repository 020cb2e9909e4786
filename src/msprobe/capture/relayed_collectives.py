"""Collectives on their way to the dumper and to listeners: when they are issued, and when their buffers are filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.capture.bus import Relay
from msprobe.capture.events import Collective, Origin
from msprobe.capture.relayed_units import RelayedEvent


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
        return RelayedEvent(event, routes, dumped)

    def leave_under_way(self, begun: Any, outputs: list[Any], facts: Mapping[str, Any], result: Any = None) -> None:
        dumped = self.dumped(begun)
        if dumped is not None:
            self.dumper.leave_under_way(dumped, outputs, facts, result)

    def end_collective(self, begun: Any, results: Any, facts: Mapping[str, Any], result: Any = None) -> None:
        dumped = self.dumped(begun)
        self.show_end(begun, results, lambda: self.dumper.end_collective(dumped, results, facts, result))

    def fail_collective(self, begun: Any, error: BaseException) -> None:
        dumped = self.dumped(begun)
        if dumped is not None:
            self.dumper.fail_collective(dumped, error)
        self.show_failed(begun, error)

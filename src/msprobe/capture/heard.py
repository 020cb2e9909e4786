"""Calls and passes of modules on their way to the dumper and to listeners.

What notices calls and passes talks to a *target*: the dumper, where it is alone, or :class:`HeardCalls` and
:class:`HeardPasses` here as soon as a listener is on, which hand on to both. Changers come first, then the dumper, then
observers: these see what the program goes on with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from msprobe.capture.bus import Bus
from msprobe.capture.events import Call, Failure, Gradient, ModulePass, Origin, Side, path_of
from msprobe.capture.routes import Way


class Calls(Protocol):
    """Whoever is told of calls; the dumper is one."""

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any], skip: int) -> Any:
        """A call is about to be made, ``skip`` frames above. What to give to the other two, None for neither."""

    def end_call(self, call: Any, result: Any, outputs: Any = None) -> Any:
        """It has returned. ``(result,)`` for another one in its place, else None."""

    def fail_call(self, call: Any, error: BaseException) -> None:
        """It has raised."""


class Passes(Protocol):
    """Whoever is told of passes of modules; the dumper is one."""

    def enter(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The module is about to run. ``(args, kwargs)`` for other arguments, else None."""

    def leave(self, name: str, module: Any, result: Any) -> Any:
        """It has run, or raised. ``(result,)`` for another result, else None."""


class Heard:
    """A call or pass that listeners are told of, between its beginning and its end, and on to its backward."""

    # What gradients are looked for by: a call is no pass, and what was there before says nothing to listeners.
    module: Any = None
    parent: Any = None

    __slots__ = (
        "backward",
        "dumped",
        "event",
        "gradient_ways",
        "key",
        "note",
        "number",
        "quiet",
        "rank",
        "step",
        "ways",
    )

    def __init__(self, bus: Bus, key: str, number: int, backward: str, ways: Sequence[Way]) -> None:
        self.key = key
        self.number = number
        self.step = bus.session.step
        self.rank = bus.session.rank()
        # The name of the backward entry.
        self.backward = backward
        self.ways = ways
        self.gradient_ways = [way for way in ways if way.backward]
        # Let go of when it is over: gradients come later, and need none of it.
        self.event: Any = None
        # What the dumper made of it.
        self.dumped: Any = None
        # What was noted of the arguments, to find their gradients.
        self.note: Any = None
        self.quiet = False

    def gradient(self, side: Side, place: str, gradient: Any) -> Gradient:
        """The event of one of its gradients."""
        return Gradient(self.backward, self.step, self.rank, self.key, self.number, side, place, gradient)

    def failure(self, error: BaseException) -> Failure:
        """The event of its failure."""
        return Failure(self.event.name, self.step, self.rank, self.event, error)

    def close(self, bus: Bus, result: Any) -> None:
        """It is over: only its gradients are still to come."""
        note = self.note
        self.event = self.note = self.dumped = None
        if note is not None:
            bus.surroundings.watch(self, note, result)


class HeardCall(Heard):
    """A call; with other arguments than its own if ``is_changed``."""

    __slots__ = ("args", "is_changed", "kwargs")

    # What a dumper reads that is asked to end it, as recording was stopped and begun anew inside of the call: nothing
    # of it is dumped.
    base = ""
    keep = False
    watched = False
    versions = ()

    def __init__(self, bus: Bus, key: str, number: int, ways: Sequence[Way]) -> None:
        super().__init__(bus, key, number, f"{key}.{number}.backward", ways)
        self.args: Sequence[Any] = ()
        self.kwargs: dict[str, Any] = {}
        self.is_changed = False


def arguments_of(call: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """With what to make a call that has begun: what a listener gave for its arguments, or these."""
    return (call.args, call.kwargs) if type(call) is HeardCall and call.is_changed else (args, kwargs)


class HeardPass(Heard):
    """A pass of a module."""

    __slots__ = ("handled", "module", "path")

    def __init__(self, bus: Bus, key: str, number: int, ways: Sequence[Way], module: Any) -> None:
        super().__init__(bus, key, number, f"{key}.backward.{number}", ways)
        self.module = module
        self.path = path_of(key)
        # The identity of the exception that was being handled when it began.
        self.handled = id(sys.exc_info()[1])


class HeardCalls:
    """Calls, to the dumper (None: it records no calls in this step) and to listeners."""

    def __init__(self, bus: Bus, dumper: Any) -> None:
        self.bus = bus
        self.session = bus.session
        self.dumper = dumper

    def begin_call(
        self,
        key: str,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        skip: int,
        function: Callable[..., Any] | None = None,
    ) -> Any:
        """See :class:`Calls`. ``function``: what is called, where it can be called again."""
        bus, session, dumper = self.bus, self.session, self.dumper
        try:
            number = session.number(key)
            ways = bus.open_ways("call", key, number)
        except Exception as error:
            session.fault(key, error)
            return None
        if not ways:
            return None if dumper is None else dumper.begin_call(key, args, kwargs, skip + 1, number)
        surroundings = bus.surroundings
        heard = HeardCall(bus, key, number, ways)
        try:
            frame = sys._getframe(skip + 1)
            origin = Origin(lambda: session.stacks.of(frame), bus.parent(), None)
            name = f"{key}.{number}.forward"
            event = heard.event = Call(
                name, heard.step, heard.rank, key, number, origin, args, kwargs or {}, function, surroundings.copied
            )
            for given in bus.before(ways, event):
                event = heard.event = replace(event, args=given.args, kwargs=given.kwargs)
                heard.args, heard.kwargs, heard.is_changed = given.args, dict(given.kwargs), True
            if dumper is not None:
                if heard.is_changed:
                    args, kwargs = heard.args, heard.kwargs
                heard.dumped = dumper.begin_call(key, args, kwargs, skip + 1, number)
                origin.order = getattr(heard.dumped, "order", None) or None
            bus.show_before(ways, event, surroundings.tensors_of((*event.args, *event.kwargs.values())))
            if heard.gradient_ways:
                heard.note = surroundings.note(event.args, event.kwargs)
        except Exception as error:
            session.fault(key, error)
        return heard

    def end_call(self, call: Any, result: Any, outputs: Any = None) -> Any:
        """See :class:`Calls`. ``outputs``: what to record as the result instead."""
        if type(call) is not HeardCall:
            return None if self.dumper is None else self.dumper.end_call(call, result, outputs)
        bus, event = self.bus, call.event
        other = None
        try:
            if event is not None:
                other = bus.after(call.ways, event, result)
                if other is not None:
                    result, outputs = other[0], None
            if call.dumped is not None and self.dumper is not None:
                self.dumper.end_call(call.dumped, result, outputs)
            if event is not None:
                tensors = bus.surroundings.tensors_of((*event.args, *event.kwargs.values(), result))
                bus.show_after(call.ways, event, result, tensors)
                call.close(bus, result)
        except Exception as error:
            self.session.fault(call.backward, error)
        return other

    def fail_call(self, call: Any, error: BaseException) -> None:
        """See :class:`Calls`."""
        if type(call) is not HeardCall:
            if self.dumper is not None:
                self.dumper.fail_call(call, error)
            return
        if call.dumped is not None and self.dumper is not None:
            self.dumper.fail_call(call.dumped, error)
        if call.event is not None:
            self.bus.show_failure(call.ways, call.failure(error))
            call.event = call.note = call.dumped = None


class HeardPasses:
    """Passes of modules, to the dumper (None: it does not watch these) and to listeners."""

    def __init__(self, bus: Bus, dumper: Any) -> None:
        self.bus = bus
        self.session = bus.session
        self.dumper = dumper

    def enter(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """See :class:`Passes`."""
        session, dumper = self.session, self.dumper
        if not session.recording or session.thread.muted or self.bus.surroundings.is_traced():
            # As the dumper would answer.
            return None
        heard: HeardPass | None
        try:
            heard, changed = self._before(name, module, args, kwargs)
        except Exception as error:
            session.fault(name, error)
            heard = changed = None
        if changed is not None:
            args, kwargs = changed
        if dumper is None:
            session.number(name)
        else:
            dumper.enter(name, module, args, kwargs, 1)
        if heard is not None:
            session.guard(self._enter, heard, args, kwargs)
        return changed

    def _before(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[HeardPass, Any]:
        bus, session = self.bus, self.session
        # The next call of `number` gives it: that of the dumper, where there is one.
        number = session.counters.get(name, 0)
        heard = HeardPass(bus, name, number, bus.open_ways("pass", name, number), module)
        changed: Any = None
        if heard.ways:
            # Without this, `enter`, the hook, and what calls the hook: as the dumper has it.
            frame = sys._getframe(4)
            origin = Origin(lambda: session.stacks.of(frame), bus.parent(), None)
            entry = f"{name}.forward.{number}"
            heard.event = ModulePass(entry, heard.step, heard.rank, name, number, origin, module, args, kwargs)
            for given in bus.before(heard.ways, heard.event):
                changed = tuple(given.args), dict(given.kwargs)
                heard.event = replace(heard.event, args=changed[0], kwargs=changed[1])
        return heard, changed

    def _enter(self, heard: HeardPass, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        bus, surroundings = self.bus, self.bus.surroundings
        running = self.session.thread.modules
        if self.dumper is not None and running and running[-1].module is heard.module:
            heard.dumped = running[-1]
        if heard.event is not None:
            heard.event.origin.order = getattr(heard.dumped, "order", None) or None
            bus.show_before(heard.ways, heard.event, surroundings.tensors_of((*args, *kwargs.values())))
            if heard.gradient_ways:
                heard.note = surroundings.note(args, kwargs)
        if bus.ways("parameter_gradient", heard.key):
            surroundings.watch_parameters(heard.key, heard.module)
        bus.thread.passes.append(heard)

    def leave(self, name: str, module: Any, result: Any) -> Any:
        """See :class:`Passes`."""
        bus, dumper = self.bus, self.dumper
        heard = self._ended(module)
        error = sys.exc_info()[1] if result is None else None
        if heard is not None and id(error) == heard.handled:
            error = None
        other = None
        if heard is not None and heard.event is not None and error is None:
            other = bus.session.guard(bus.after, heard.ways, heard.event, result)
            if other is not None:
                result = other[0]
        if dumper is not None:
            dumper.leave(name, module, result)
        if heard is not None and heard.event is not None:
            if error is not None:
                bus.session.guard(bus.show_failure, heard.ways, heard.failure(error))
            else:
                bus.session.guard(self._after, heard, result)
        return other

    def _after(self, heard: HeardPass, result: Any) -> None:
        event = heard.event
        tensors = self.bus.surroundings.tensors_of((*event.args, *event.kwargs.values(), result))
        self.bus.show_after(heard.ways, event, result, tensors)
        heard.close(self.bus, result)

    def _ended(self, module: Any) -> HeardPass | None:
        """The pass of ``module`` that is over; those inside of it that did not tell their end are, too."""
        running = self.bus.thread.passes
        if all(one.module is not module for one in running):
            return None
        while True:
            heard = running.pop()
            if heard.module is module:
                return heard

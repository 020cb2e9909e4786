"""Calls and passes of modules on their way to the dumper and to listeners.

What notices calls and passes talks to a *target* (:mod:`msprobe.capture.targets`): the dumper, where it is alone, or
:class:`HeardCalls` and :class:`HeardPasses` here as soon as a listener is on, which hand on to both. Changers come
first, then the dumper, then observers: these see what the program goes on with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msprobe.capture.bus import Bus
from msprobe.capture.events import Call, ModulePass, Origin
from msprobe.capture.heard_units import Heard, HeardCall, HeardPass


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
        """See :class:`msprobe.capture.targets.Calls`. ``function``: what is called, where it can be called again."""
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
        heard = HeardCall(session, key, number, ways)
        try:
            frame = sys._getframe(skip + 1)
            origin = Origin(lambda: session.stacks.of(frame), bus.parent(), None)
            name = f"{key}.{number}.forward"
            event = heard.event = Call(
                name, heard.step, heard.rank, key, number, origin, args, kwargs or {}, function, surroundings.copied
            )
            event = _changed(bus, heard, behind=False)
            if dumper is not None:
                if heard.is_changed:
                    args, kwargs = heard.args, heard.kwargs
                heard.dumped = dumper.begin_call(key, args, kwargs, skip + 1, number)
                origin.order = getattr(heard.dumped, "order", None) or None
            event = _changed(bus, heard, behind=True)
            tensors = surroundings.tensors_of((*event.args, *event.kwargs.values()))
            if any(way.listening.changer is not None for way in ways):
                heard.before_call = surroundings.versions(tensors)
            bus.show_before(ways, event, tensors)
            if heard.gradient_ways:
                heard.note = surroundings.note(event.args, event.kwargs)
        except Exception as error:
            session.fault(key, error)
        return heard

    def end_call(self, call: Any, result: Any, outputs: Any = None) -> Any:
        """See :class:`msprobe.capture.targets.Calls`. ``outputs``: what to record as the result instead."""
        if type(call) is not HeardCall:
            return None if self.dumper is None else self.dumper.end_call(call, result, outputs)
        bus, event = self.bus, call.event
        other = None
        try:
            if event is not None:
                other = bus.after(call.ways, event, result, kept=_kept(bus, call))
                if other is not None:
                    result, outputs = other[0], None
                _watch_first(bus, call, result)
            if call.dumped is not None and self.dumper is not None:
                self.dumper.end_call(call.dumped, result, outputs)
            if event is not None:
                behind = bus.after(call.ways, event, result, behind=True, kept=_kept(bus, call))
                if behind is not None:
                    other, result = behind, behind[0]
                tensors = bus.surroundings.tensors_of((*event.args, *event.kwargs.values(), result))
                bus.show_after(call.ways, event, result, tensors)
                _follow(bus, call, result)
        except Exception as error:
            self.session.fault(call.backward, error)
        return other

    def fail_call(self, call: Any, error: BaseException) -> None:
        """See :class:`msprobe.capture.targets.Calls`."""
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
        """See :class:`msprobe.capture.targets.Passes`."""
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
            behind = session.guard(self._changed, heard, True)
            if behind is not None:
                changed = args, kwargs = behind
            session.guard(self._enter, heard, args, kwargs)
        return changed

    def _before(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[HeardPass, Any]:
        session = self.session
        # The next call of `number` gives it: that of the dumper, where there is one.
        number = session.counters.get(name, 0)
        bus = self.bus
        heard = HeardPass(session, name, number, bus.open_ways("pass", name, number), module)
        changed: Any = None
        if heard.ways:
            # Without this, `enter`, the hook, and what calls the hook: as the dumper has it.
            frame = sys._getframe(4)
            origin = Origin(lambda: session.stacks.of(frame), bus.parent(), None)
            entry = f"{name}.forward.{number}"
            heard.event = ModulePass(entry, heard.step, heard.rank, name, number, origin, module, args, kwargs)
            changed = self._changed(heard, False)
        return heard, changed

    def _changed(self, heard: HeardPass, behind: bool) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments that changers have for a pass, before the dump or behind it; None if they have none."""
        changed: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        for given in self.bus.before(heard.ways, heard.event, behind) if heard.event is not None else ():
            changed = tuple(given.args), dict(given.kwargs)
            heard.event = replace(heard.event, args=changed[0], kwargs=changed[1])
        return changed

    def _enter(self, heard: HeardPass, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        bus, surroundings = self.bus, self.bus.surroundings
        running = self.session.thread.modules
        if self.dumper is not None and running and running[-1].module is heard.module:
            heard.dumped = running[-1]
        if heard.event is not None:
            heard.event.origin.order = getattr(heard.dumped, "order", None) or None
            tensors = surroundings.tensors_of((*args, *kwargs.values())) if bus.wants_looks(heard.ways) else ()
            bus.show_before(heard.ways, heard.event, tensors)
            if heard.gradient_ways:
                heard.note = surroundings.note(args, kwargs)
        if bus.ways("parameter_gradient", heard.key):
            surroundings.watch_parameters(heard.key, heard.module)
        bus.thread.passes.append(heard)

    def leave(self, name: str, module: Any, result: Any, error: BaseException | None = None) -> Any:
        """See :class:`msprobe.capture.targets.Passes`."""
        bus, dumper = self.bus, self.dumper
        heard = self._ended(module)
        other = None
        if heard is not None and heard.event is not None and error is None:
            other = bus.session.guard(bus.after, heard.ways, heard.event, result)
            if other is not None:
                result = other[0]
            if heard.note is not None:
                bus.session.guard(_watch_first, bus, heard, result)
        if dumper is not None:
            dumper.leave(name, module, result, error)
        if heard is not None and heard.event is not None and error is None:
            behind = bus.session.guard(bus.after, heard.ways, heard.event, result, True)
            if behind is not None:
                other, result = behind, behind[0]
        if heard is not None and heard.event is not None:
            if error is not None:
                bus.session.guard(bus.show_failure, heard.ways, heard.failure(error))
            else:
                bus.session.guard(self._after, heard, result)
        return other

    def _after(self, heard: HeardPass, result: Any) -> None:
        event, bus = heard.event, self.bus
        told = (*event.args, *event.kwargs.values(), result)
        tensors = bus.surroundings.tensors_of(told) if bus.wants_looks(heard.ways) else ()
        bus.show_after(heard.ways, event, result, tensors)
        _follow(bus, heard, result)

    def _ended(self, module: Any) -> HeardPass | None:
        """The pass of ``module`` that is over; those inside of it that did not tell their end are, too."""
        running = self.bus.thread.passes
        if all(one.module is not module for one in running):
            return None
        while True:
            heard = running.pop()
            if heard.module is module:
                return heard


def _changed(bus: Bus, heard: HeardCall, behind: bool) -> Any:
    """Give a call the arguments that changers have for it, before the dump or behind it; its event."""
    for given in bus.before(heard.ways, heard.event, behind):
        heard.event = replace(heard.event, args=given.args, kwargs=given.kwargs)
        heard.args, heard.kwargs, heard.is_changed = given.args, dict(given.kwargs), True
    return heard.event


def _kept(bus: Bus, heard: HeardCall) -> list[Any]:
    """The tensors among the arguments of a call that is over to which it has not written."""
    if not heard.before_call:
        return []
    event = heard.event
    tensors = bus.surroundings.tensors_of((*event.args, *event.kwargs.values()))
    now = bus.surroundings.versions(tensors)
    return [one for one, was, after in zip(tensors, heard.before_call, now, strict=True) if was == after]


def _watch_first(bus: Bus, heard: Heard, result: Any) -> None:
    """It has returned. Where its gradients may be replaced, the dumper's hooks come behind these, and see others."""
    note = heard.note
    if note is not None and bus.changes_gradients(heard.gradient_ways, heard.key, heard.number, before_dump=True):
        heard.note = None
        bus.surroundings.watch(heard, note, result)


def _follow(bus: Bus, heard: Heard, result: Any) -> None:
    """It is over: only its gradients are still to come."""
    note = heard.close()
    if note is not None:
        bus.surroundings.watch(heard, note, result)

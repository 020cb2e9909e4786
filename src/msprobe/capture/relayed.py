"""Calls and passes of modules on their way to the dumper and to listeners.

What notices calls and passes talks to a *target* (:mod:`msprobe.capture.targets`): the dumper, where it is alone, or
:class:`RelayedCalls` and :class:`RelayedPasses` here as soon as a listener is on, which hand on to both. Changers come
first, then the dumper, then observers: these see what the program goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msprobe.capture.bus import Bus, Relay
from msprobe.capture.events import Call, ModulePass, Origin
from msprobe.capture.relayed_units import Relayed, RelayedCall, RelayedPass
from msprobe.capture.stacks import program_frame


class RelayedCalls(Relay):
    """Calls, to the dumper (None: it records no calls in this step) and to listeners."""

    def begin_call(
        self,
        key: str,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        function: Callable[..., Any] | None = None,
    ) -> Any:
        """See :class:`msprobe.capture.targets.Calls`. ``function``: what is called, where it can be called again."""
        bus, session, dumper = self.bus, self.session, self.dumper
        try:
            number = session.number(key)
            routes = bus.open_routes("call", key, number)
        except Exception as error:
            session.fault(key, error)
            return None
        if not routes:
            return None if dumper is None else dumper.begin_call(key, args, kwargs, number)
        support = bus.support
        relayed = RelayedCall(session, key, number, routes)
        try:
            frame = program_frame()
            origin = Origin(lambda: session.stacks.of(frame), bus.parent(), None)
            name = f"{key}.{number}.forward"
            event = relayed.event = Call(
                name, relayed.step, relayed.rank, key, number, origin, args, kwargs or {}, function, support.copied
            )
            event = _changed(bus, relayed, behind=False)
            if dumper is not None:
                if relayed.is_changed:
                    args, kwargs = relayed.args, relayed.kwargs
                relayed.dumped = dumper.begin_call(key, args, kwargs, number)
                origin.order = getattr(relayed.dumped, "order", None) or None
            event = _changed(bus, relayed, behind=True)
            tensors = support.tensors_of((*event.args, *event.kwargs.values()))
            if any(route.listening.changer is not None for route in routes):
                relayed.before_call = support.versions(tensors)
            bus.show_before(routes, event, tensors)
            if relayed.gradient_routes:
                relayed.note = support.note(event.args, event.kwargs)
        except Exception as error:
            session.fault(key, error)
        return relayed

    def end_call(self, call: Any, result: Any, outputs: Any = None) -> Any:
        """See :class:`msprobe.capture.targets.Calls`. ``outputs``: what to record as the result instead."""
        if type(call) is not RelayedCall:
            return None if self.dumper is None else self.dumper.end_call(call, result, outputs)
        bus, event = self.bus, call.event
        other = None
        try:
            if event is not None:
                other = bus.after(call.routes, event, result, kept=_kept(bus, call))
                if other is not None:
                    result, outputs = other[0], None
                _watch_first(bus, call, result)
            if call.dumped is not None and self.dumper is not None:
                self.dumper.end_call(call.dumped, result, outputs)
            if event is not None:
                behind = bus.after(call.routes, event, result, behind=True, kept=_kept(bus, call))
                if behind is not None:
                    other, result = behind, behind[0]
                tensors = bus.support.tensors_of((*event.args, *event.kwargs.values(), result))
                bus.show_after(call.routes, event, result, tensors)
                _follow(bus, call, result)
        except Exception as error:
            self.session.fault(call.backward, error)
        return other

    def fail_call(self, call: Any, error: BaseException) -> None:
        if type(call) is not RelayedCall:
            if self.dumper is not None:
                self.dumper.fail_call(call, error)
            return
        if call.dumped is not None and self.dumper is not None:
            self.dumper.fail_call(call.dumped, error)
        if call.event is not None:
            self.bus.show_failure(call.routes, call.failure(error))
            call.event = call.note = call.dumped = None


class RelayedPasses(Relay):
    """Passes of modules, to the dumper (None: it does not watch these) and to listeners."""

    def enter(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        session, dumper = self.session, self.dumper
        if not session.recording or session.thread.muted or self.bus.support.is_traced():
            # As the dumper would answer.
            return None
        relayed: RelayedPass | None
        try:
            relayed, changed = self._before(name, module, args, kwargs)
        except Exception as error:
            session.fault(name, error)
            relayed = changed = None
        if changed is not None:
            args, kwargs = changed
        if dumper is None:
            session.number(name)
        else:
            dumper.enter(name, module, args, kwargs)
        if relayed is not None:
            behind = session.guard(self._changed, relayed, True)
            if behind is not None:
                changed = args, kwargs = behind
            session.guard(self._enter, relayed, args, kwargs)
        return changed

    def _before(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[RelayedPass, Any]:
        session = self.session
        # The next call of `number` gives it: that of the dumper, where there is one.
        number = session.counters.get(name, 0)
        bus = self.bus
        relayed = RelayedPass(session, name, number, bus.open_routes("pass", name, number), module)
        changed: Any = None
        if relayed.routes:
            frame = program_frame()
            origin = Origin(lambda: session.stacks.of(frame), bus.parent(), None)
            entry = f"{name}.forward.{number}"
            relayed.event = ModulePass(entry, relayed.step, relayed.rank, name, number, origin, module, args, kwargs)
            changed = self._changed(relayed, False)
        return relayed, changed

    def _changed(self, relayed: RelayedPass, behind: bool) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments that changers have for a pass, before the dump or behind it; None if they have none."""
        changed: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        for given in self.bus.before(relayed.routes, relayed.event, behind) if relayed.event is not None else ():
            changed = tuple(given.args), dict(given.kwargs)
            relayed.event = replace(relayed.event, args=changed[0], kwargs=changed[1])
        return changed

    def _enter(self, relayed: RelayedPass, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        bus, support = self.bus, self.bus.support
        running = self.session.thread.modules
        if self.dumper is not None and running and running[-1].module is relayed.module:
            relayed.dumped = running[-1]
        if relayed.event is not None:
            relayed.event.origin.order = getattr(relayed.dumped, "order", None) or None
            tensors = support.tensors_of((*args, *kwargs.values())) if bus.wants_looks(relayed.routes) else ()
            bus.show_before(relayed.routes, relayed.event, tensors)
            if relayed.gradient_routes:
                relayed.note = support.note(args, kwargs)
        if bus.routes("parameter_gradient", relayed.key):
            support.watch_parameters(relayed.key, relayed.module)
        bus.thread.passes.append(relayed)

    def leave(self, name: str, module: Any, result: Any, error: BaseException | None = None) -> Any:
        bus, dumper = self.bus, self.dumper
        relayed = self._ended(module)
        other = None
        if relayed is not None and relayed.event is not None and error is None:
            other = bus.session.guard(bus.after, relayed.routes, relayed.event, result)
            if other is not None:
                result = other[0]
            if relayed.note is not None:
                bus.session.guard(_watch_first, bus, relayed, result)
        if dumper is not None:
            dumper.leave(name, module, result, error)
        if relayed is not None and relayed.event is not None and error is None:
            behind = bus.session.guard(bus.after, relayed.routes, relayed.event, result, True)
            if behind is not None:
                other, result = behind, behind[0]
        if relayed is not None and relayed.event is not None:
            if error is not None:
                bus.session.guard(bus.show_failure, relayed.routes, relayed.failure(error))
            else:
                bus.session.guard(self._after, relayed, result)
        return other

    def _after(self, relayed: RelayedPass, result: Any) -> None:
        event, bus = relayed.event, self.bus
        shown = (*event.args, *event.kwargs.values(), result)
        tensors = bus.support.tensors_of(shown) if bus.wants_looks(relayed.routes) else ()
        bus.show_after(relayed.routes, event, result, tensors)
        _follow(bus, relayed, result)

    def _ended(self, module: Any) -> RelayedPass | None:
        """The pass of ``module`` that is over; those inside of it whose end was not seen are, too."""
        running = self.bus.thread.passes
        if all(relayed.module is not module for relayed in running):
            return None
        while True:
            relayed = running.pop()
            if relayed.module is module:
                return relayed


def _changed(bus: Bus, relayed: RelayedCall, behind: bool) -> Any:
    """Give a call the arguments that changers have for it, before the dump or behind it; its event."""
    for given in bus.before(relayed.routes, relayed.event, behind):
        relayed.event = replace(relayed.event, args=given.args, kwargs=given.kwargs)
        relayed.args, relayed.kwargs, relayed.is_changed = given.args, dict(given.kwargs), True
    return relayed.event


def _kept(bus: Bus, relayed: RelayedCall) -> list[Any]:
    """The tensors among the arguments of a call that is over to which it has not written."""
    if not relayed.before_call:
        return []
    event = relayed.event
    tensors = bus.support.tensors_of((*event.args, *event.kwargs.values()))
    now = bus.support.versions(tensors)
    return [tensor for tensor, was, after in zip(tensors, relayed.before_call, now, strict=True) if was == after]


def _watch_first(bus: Bus, relayed: Relayed, result: Any) -> None:
    """It has returned. Where its gradients may be replaced, the dumper's hooks come behind these, and see others."""
    note = relayed.note
    routes = relayed.gradient_routes
    if note is not None and bus.changes_gradients(routes, relayed.key, relayed.number, before_dump=True):
        relayed.note = None
        bus.support.watch(relayed, note, result)


def _follow(bus: Bus, relayed: Relayed, result: Any) -> None:
    """It is over: only its gradients are still to come."""
    note = relayed.close()
    if note is not None:
        bus.support.watch(relayed, note, result)

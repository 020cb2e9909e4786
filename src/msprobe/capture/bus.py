"""Who listens, and what reaches them: the middle between what notices and who wants to know.

:class:`Bus` knows the listeners of a run, which of them are on in this step, and how what goes by a name reaches them
(:mod:`msprobe.capture.routes`). It notifies them one by one: unseen, so that what a listener computes is recorded by
nobody and leaves random generators and the grad mode as they were, and apart, so that one that raises is reported once
and dropped. How calls and passes come here: :mod:`msprobe.capture.relayed`.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from msprobe import log
from msprobe.capture.adapter import ListenerSupport
from msprobe.capture.events import Event, EventKind, Failure, Step
from msprobe.capture.listeners import Arguments, Changer, Changes, Listener, NewGradient, Observer, Result, Values
from msprobe.capture.relayed_units import RelayedEvent, RelayedPass
from msprobe.capture.routes import Listening, Route, matches, numbers_of, routes_around_dump, routes_of
from msprobe.capture.session import Session
from msprobe.capture.unmet_wants import UnmetWants
from msprobe.errors import InvalidInputError
from msprobe.guard import pass_on
from msprobe.messages import Wording, said, text_of


class PassesOfThread(threading.local):
    """The passes of wanted modules that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.passes: list[RelayedPass] = []


class Bus:
    """The listeners of one run, notified of what happens in it."""

    def __init__(self, session: Session, support: ListenerSupport) -> None:
        self.session = session
        self.support = support
        self.thread = PassesOfThread()
        self._listening: list[Listening] = []
        # Those that are on in this step, and what was decided for them.
        self.active: list[Listening] = []
        self._routes: dict[tuple[EventKind, str], tuple[Route, ...]] = {}
        # The models themselves, by name, where the dump does not have them: for those who ask for them.
        self.roots: frozenset[str] = frozenset()
        self._unmet = UnmetWants()
        # Those that know of the beginning of this step.
        self._begun: list[Listening] = []
        self._step: Step | None = None
        # Of this step, asked for once.
        self.rank: int | None = None
        # What waits for the end of an optimizer step.
        self._waiting: list[Callable[[], None]] = []

    # ---------------------------------------------------------------- who listens

    def add(self, listener: Any) -> None:
        """Notify ``listener`` from the next start on. Raises InvalidInputError if it is none, or is here already."""
        if not isinstance(listener, (Observer, Changer)):
            raise InvalidInputError(said("listener-of-wrong-class", type(listener).__name__))
        if any(listening.listener is listener for listening in self._listening):
            raise InvalidInputError(said("listener-already-added", type(listener).__name__))
        self._listening.append(Listening(listener))

    def remove(self, listener: Any) -> None:
        """Notify ``listener`` no more; one that does not listen is left alone."""
        for listening in self._listening:
            if listening.listener is listener:
                listening.dropped = True
        self._listening = [listening for listening in self._listening if listening.listener is not listener]

    def adopt(self, other: Bus) -> None:
        """Go on with the listeners of another run's bus."""
        self._listening = other._listening

    @property
    def has_listeners(self) -> bool:
        """True if somebody may want events of some step."""
        return any(not listening.dropped for listening in self._listening)

    # ---------------------------------------------------------------- a step

    def begin(self) -> bool:
        """Recording begins in this step, or goes on: decide who is on. True if somebody is."""
        session = self.session
        step, rank = session.step, session.rank()
        self.rank = rank
        on = [
            listening
            for listening in self._listening
            if not listening.dropped and self._is_on(listening.listener, step, rank)
        ]
        if on != self.active:
            self.active = on
            self._routes.clear()
        self.thread.passes.clear()
        session.gradients_change = False
        if not on:
            return False
        self._step = Step(step, rank)
        for listening in on:
            if listening not in self._begun:
                self._begun.append(listening)
                self.call(listening, listening.listener.step_begin, self._step)
        self.active = [listening for listening in on if not listening.dropped]
        session.gradients_change = any(
            listening.behind and listening.changer is not None and listening.changer.changes.gradients
            for listening in self.active
        )
        return bool(self.active)

    def stays(self, step: int) -> bool:
        """True if in this step the same are on as now."""
        rank = self.session.rank()
        on = [
            listening
            for listening in self._listening
            if not listening.dropped and self._is_on(listening.listener, step, rank)
        ]
        return bool(on) and on == self.active

    @staticmethod
    def _is_on(listener: Listener, step: int, rank: int | None) -> bool:
        try:
            return bool(listener.is_on) and listener.cadence.has(step, rank)
        except Exception as error:
            pass_on(error)
            log.once(
                ("cadence", id(listener)),
                "error",
                said("cadence-fails", type(listener).__name__, type(error).__name__, error),
            )
            return False

    def end(self) -> None:
        """Nothing more is noticed until the next :meth:`begin`."""
        self.active = []
        self._routes.clear()
        self.thread.passes.clear()

    def end_step(self) -> None:
        """The step is over."""
        begun, self._begun = self._begun, []
        step, self._step = self._step, None
        for listening in begun:
            if step is not None and not listening.dropped:
                self.call(listening, listening.listener.step_end, step)
        self._unmet.end_step(begun)

    def end_listening(self) -> None:
        """Nothing more will be reported: whoever asked for names that nothing had is notified."""
        self._unmet.end_listening(self._listening)

    # ---------------------------------------------------------------- what they want

    def wants(self, kind: EventKind) -> bool:
        """True if somebody who is on wants events of this kind."""
        return any(kind in listening.wants.kinds for listening in self.active)

    def wants_looks(self, routes: Sequence[Route]) -> bool:
        """True if tensors have to be looked up, to see that nobody among ``routes`` writes to them."""
        return any(not route.listening.careful for route in routes)

    def wants_module(self, key: str, path: str) -> bool:
        """True if the module of this name has to be watched for somebody who is on."""
        is_wanted = False
        self._unmet.met_module(key, path)
        for listening in self._asking(key):
            wants = listening.wants
            if wants.modules and not matches(wants.modules, path):
                continue
            listening.met_module = True
            is_named = numbers_of(tuple(wants.names), key) != frozenset()
            listening.met_name |= is_named
            if "call" in wants.kinds and wants.modules:
                is_wanted = True
            if ("pass" in wants.kinds or "parameter_gradient" in wants.kinds) and is_named:
                is_wanted = True
        return is_wanted

    def routes(self, kind: EventKind, key: str) -> tuple[Route, ...]:
        """How what goes by ``key`` reaches those who are on; decided once."""
        routes = self._routes.get((kind, key))
        if routes is None:
            routes = self._routes[kind, key] = routes_of(self._asking(key), kind, key) if self.active else ()
            for route in routes:
                route.listening.met_name = True
            for listening in self.active:
                if kind == "call" and listening.listener.names_met is not None:
                    listening.listener.names_met.add(key)
        return routes

    def _asking(self, key: str) -> list[Listening]:
        """Those who are on and may want what goes by ``key``: all, but for a model itself only who names it."""
        if key not in self.roots:
            return self.active
        return [listening for listening in self.active if listening.wants.names or listening.wants.modules]

    def open_routes(self, kind: EventKind, key: str, number: int) -> list[Route]:
        """Those of :meth:`routes` that this one event takes."""
        routes = self.routes(kind, key)
        if not routes:
            return []
        paths = [running.path for running in self.thread.passes]
        return [route for route in routes if route.is_open(number, paths)]

    def parent(self) -> str | None:
        """The entry of the innermost pass in this thread of a module that is watched."""
        dumped = self.session.thread.modules
        if dumped:
            return dumped[-1].entry
        relayed = self.thread.passes
        return f"{relayed[-1].key}.forward.{relayed[-1].number}" if relayed else None

    # ---------------------------------------------------------------- reporting

    def call(self, listening: Listening, method: Callable[..., Any], *shown: Any, tensors: Sequence[Any] = ()) -> Any:
        """Call a method of a listener; what it returns. One that raises, or writes to ``tensors``, is dropped."""
        if listening.dropped:
            return None
        thread = self.session.thread
        thread.muted += 1
        if listening.careful:
            try:
                return method(*shown)
            except Exception as error:
                self._drop(listening, method, shown[0], error)
                return None
            finally:
                thread.muted -= 1
        try:
            versions = self.support.versions(tensors) if tensors else ()
            with self.support.unseen():
                answer = method(*shown)
            if versions and self.support.versions(tensors) != versions:
                raise PermissionError(said("listener-wrote-tensor"))
            return answer
        except Exception as error:
            self._drop(listening, method, shown[0], error)
            return None
        finally:
            thread.muted -= 1

    def before(self, routes: Sequence[Route], event: Any, behind: bool = False) -> Iterator[Arguments]:
        """Show the changers among ``routes`` that something is about to happen; the arguments that they give.
        ``behind``: those that come behind the dump, or those that come before it.
        """
        for route in routes:
            listening = route.listening
            if listening.changer is not None and route.forward and listening.behind is behind:
                answer = self.call(listening, listening.changer.before, event)
                if answer is not None and self._may_change(listening, "before", event, "arguments", answer, Arguments):
                    self._write(listening, "before", event, answer.written)
                    yield answer

    def after(
        self, routes: Sequence[Route], event: Any, result: Any, behind: bool = False, kept: Sequence[Any] = ()
    ) -> tuple[Any] | None:
        """Notify the changers that it has happened. ``(result,)``: what they put in place of the result, else None.
        ``kept``: tensors whose memory nobody may write to.
        """
        replaced: tuple[Any] | None = None
        for route in routes:
            listening = route.listening
            if listening.changer is None or not route.forward or listening.behind is not behind:
                continue
            answer = self.call(listening, listening.changer.after, event, result)
            if answer is not None and self._may_change(listening, "after", event, "results", answer, Result):
                thread = self.session.thread
                thread.muted += 1
                try:
                    if answer.written:
                        result = self.support.written(result, answer.value, kept)
                    else:
                        given = *event.args, *event.kwargs.values()
                        result = self.support.in_place_of(result, answer.value, given)
                    replaced = (result,)
                except Exception as error:
                    self._drop(listening, listening.changer.after, event, error)
                finally:
                    thread.muted -= 1
        return replaced

    def show(self, routes: Sequence[Route], moment: Literal["before", "after"], event: Any, *more: Any) -> None:
        """Notify all among ``routes`` of what has no other result: only what tensors hold may be changed."""
        for route in routes:
            if route.forward:
                listening = route.listening
                answer = self.call(listening, getattr(listening.listener, moment), event, *more)
                if answer is None or listening.changer is None:
                    continue
                if self._may_change(listening, moment, event, "values", answer, Values):
                    self._write(listening, moment, event, answer.pairs)

    def _write(self, listening: Listening, moment: str, event: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
        if not pairs:
            return
        try:
            with self.session.thread.mute():
                for own, given in pairs:
                    self.support.write(own, given)
        except Exception as error:
            self._drop(listening, getattr(listening.listener, moment), event, error)

    def afterwards(self, work: Callable[[], None]) -> None:
        """Do ``work`` when the optimizer step that listeners are being notified of is over, and nobody goes through its
        hooks any more: hooks may be put and taken away then. What comes first is done first.
        """
        self._waiting.append(work)

    def leave_step(self) -> None:
        """An optimizer step is over: what has waited for it is done."""
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            self.session.guard(work)

    def show_before(self, routes: Sequence[Route], event: Any, tensors: Sequence[Any] = ()) -> None:
        """Notify the observers among ``routes`` that something is about to happen."""
        for route in routes:
            listener = route.listening.listener
            if isinstance(listener, Observer) and route.forward:
                self.call(route.listening, listener.before, event, tensors=tensors)

    def show_after(self, routes: Sequence[Route], event: Any, result: Any, tensors: Sequence[Any] = ()) -> None:
        """Notify the observers that it has happened."""
        for route in routes:
            listener = route.listening.listener
            if isinstance(listener, Observer) and route.forward:
                self.call(route.listening, listener.after, event, result, tensors=tensors)

    def show_failure(self, routes: Sequence[Route], failure: Any) -> None:
        """Notify everybody who was notified of its beginning that it has raised."""
        for route in routes:
            if route.forward:
                self.call(route.listening, route.listening.listener.failed, failure)

    def show_gradient(
        self, routes: Sequence[Route], event: Any, in_place_of: Callable[[Any, Any], Any] | None = None
    ) -> tuple[Any] | None:
        """Notify those who want gradients of one. ``(gradient,)``: what a changer puts in its place, else None.

        ``in_place_of(own, given)`` makes of what is given what the backward pass goes on with, or raises ValueError.
        """
        replaced: tuple[Any] | None = None
        if len(routes) == 1 and routes[0].backward and routes[0].listening.careful:
            self.call(routes[0].listening, routes[0].listening.listener.gradient, event)
            return None
        for route in routes:
            if not route.backward:
                continue
            listening = route.listening
            method = listening.listener.gradient
            answer = self.call(listening, method, event, tensors=() if listening.careful else (event.gradient,))
            if answer is None or listening.changer is None:
                continue
            if self._may_change(listening, "gradient", event, "gradients", answer, NewGradient) and in_place_of:
                try:
                    with self.session.thread.mute():
                        replaced = (in_place_of(event.gradient, answer.value),)
                    event = replace(event, gradient=replaced[0])
                except Exception as error:
                    self._drop(listening, method, event, error)
        return replaced

    def changes_gradients(self, routes: Sequence[Route], key: str, number: int, before_dump: bool = False) -> bool:
        """True if somebody among ``routes`` may put other gradients in the place of those that come back through it.
        ``before_dump``: somebody who comes before the dump.
        """
        asked = (route.listening for route in routes if route.backward)
        changers = (listening.changer for listening in asked if not (before_dump and listening.behind))
        return any(
            changer is not None and changer.changes.gradients and _names(changer.changes, key, number)
            for changer in changers
        )

    # ---------------------------------------------------------------- those that cannot go on

    def _may_change(
        self, listening: Listening, moment: str, event: Event, what: str, answer: Any, expected: type
    ) -> bool:
        changer = listening.changer
        assert changer is not None
        try:
            changes = changer.changes
            if not isinstance(answer, expected):
                reason = said("changer-answer-of-class", type(answer).__name__, expected.__name__)
            elif not getattr(changes, what):
                reason = said("changer-does-not-name-what", what)
            elif not _names(changes, event.key, event.number):  # type: ignore[attr-defined]
                reason = said("changer-does-not-name-call")
            elif what == "gradients" and not getattr(event, "can_be_replaced", False):
                reason = said("changer-gradient-fixed")
            else:
                return True
            raise PermissionError(said("listener-may-not-change", what, event.name, reason))
        except Exception as error:
            self._drop(listening, getattr(changer, moment), event, error)
            return False

    def _drop(self, listening: Listening, method: Callable[..., Any], event: Any, error: Exception) -> None:
        pass_on(error)
        listening.dropped = True
        where = getattr(event, "name", None) or f"step {getattr(event, 'step', '?')}"
        log.error(
            said(
                "listener-failed",
                listening.name,
                getattr(method, "__name__", "a method"),
                where,
                type(error).__name__,
                _first_line(error),
            )
        )
        log.debug("".join(traceback.format_exception(error)))


class Relay:
    """What hands on to the dumper (None: it records none of these in this step) and to the listeners of the bus."""

    def __init__(self, bus: Bus, dumper: Any) -> None:
        self.bus = bus
        self.session = bus.session
        self.dumper = dumper

    @staticmethod
    def dumped(begun: Any) -> Any:
        """What the dumper made of a step or collective that has begun; None: nothing."""
        return begun.dumped if type(begun) is RelayedEvent else begun

    def show_end(self, begun: Any, result: Any, dump: Callable[[], Any]) -> None:
        """A step or collective is over: notify those who come before the dump, ``dump`` it, notify all others."""
        event = begun.end() if type(begun) is RelayedEvent else None
        early, late = routes_around_dump(begun.routes) if event is not None else ((), ())
        self.bus.show(early, "after", event, result)
        if self.dumped(begun) is not None:
            self.session.guard(dump)
        self.bus.show(late, "after", event, result)

    def show_failed(self, begun: Any, error: BaseException) -> None:
        """It has raised, or was not made."""
        event = begun.end() if type(begun) is RelayedEvent else None
        if event is not None:
            self.bus.show_failure(begun.routes, Failure(event.name, event.step, event.rank, event, error))


def _names(changes: Changes, key: str, number: int) -> bool:
    """Whether they name the call or pass of this number."""
    numbers = numbers_of(tuple(changes.names), key) if changes.names else frozenset()
    return numbers is None or number in numbers


def _first_line(error: Exception) -> str:
    """What an error says, without what frameworks add to that."""
    text = text_of(error)
    return text if isinstance(text, Wording) else (text.splitlines() or [""])[0][:300].rstrip(".")

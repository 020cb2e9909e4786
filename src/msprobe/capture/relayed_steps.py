"""Steps of optimizers on their way to the dumper and to listeners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture.bus import Relay
from msprobe.capture.events import Failure, OptimizerStep, Origin
from msprobe.capture.optimizer_steps import NoticedStep
from msprobe.capture.routes import Route, routes_around_dump
from msprobe.capture.stacks import program_frame

SKIPPED = "the step was skipped: the gradients are not finite"


class RelayedStep:
    """A step that listeners are notified of, until it is over; ``dumped``: what the dumper made of it."""

    __slots__ = ("dumped", "event", "routes")

    def __init__(self, event: OptimizerStep, routes: Sequence[Route], dumped: Any) -> None:
        self.event = event
        self.routes = routes
        self.dumped = dumped


class RelayedSteps(Relay):
    """Steps of optimizers, to the dumper (None: it records none in this step) and to listeners.

    See :class:`msprobe.capture.targets.OptimizerSteps`.
    """

    def begin_step(self, key: str, step: NoticedStep) -> Any:
        bus, session = self.bus, self.session
        number = session.number(key)
        dumped = None
        if self.dumper is not None:
            dumped = session.guard(self.dumper.begin_step, key, step, number)
        routes = bus.open_routes("optimizer", key, number)
        if not routes:
            return dumped
        known, frame = step.stack, program_frame()
        origin = Origin(
            lambda: session.stacks.of(frame) if known is None else known,
            bus.parent(),
            getattr(dumped, "order", None),
        )
        event = OptimizerStep(
            f"{key}.{number}.forward",
            session.step,
            bus.rank,
            key,
            number,
            origin,
            step.optimizer,
            step.has_closure,
            step.parameters,
            step.is_skipped,
        )
        bus.show(routes, "before", event)
        return RelayedStep(event, routes, dumped)

    def end_step(self, begun: Any, error: BaseException | None) -> None:
        relayed = begun if type(begun) is RelayedStep else None
        first, rest = routes_around_dump(relayed.routes) if relayed is not None and error is None else ([], [])
        if relayed is not None and first:
            self.bus.show(first, "after", relayed.event, None)
        dumped = relayed.dumped if relayed is not None else begun
        if dumped is not None:
            self.session.guard(self.dumper.end_step, dumped, error)
        if relayed is None:
            return
        if error is not None:
            self._fail(relayed, error)
        elif rest:
            self.bus.show(rest, "after", relayed.event, None)

    def skip_step(self, begun: Any) -> None:
        """Listeners are notified that it has failed."""
        dumped = begun.dumped if type(begun) is RelayedStep else begun
        if dumped is not None:
            self.session.guard(self.dumper.skip_step, dumped)
        if type(begun) is RelayedStep:
            self._fail(begun, RuntimeError(SKIPPED))

    def leave_step(self) -> None:
        self.bus.leave_step()

    def _fail(self, begun: RelayedStep, error: BaseException) -> None:
        event = begun.event
        self.bus.show_failure(begun.routes, Failure(event.name, event.step, event.rank, event, error))

"""Steps of optimizers on their way to the dumper and to listeners."""

from __future__ import annotations

from typing import Any

from msprobe.capture.bus import Relay
from msprobe.capture.events import OptimizerStep, Origin
from msprobe.capture.optimizer_steps import NoticedStep
from msprobe.capture.relayed_units import RelayedEvent
from msprobe.capture.stacks import program_frame

SKIPPED = "the step was skipped: the gradients are not finite"


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
        return RelayedEvent(event, routes, dumped)

    def end_step(self, begun: Any, error: BaseException | None) -> None:
        if error is None:
            self.show_end(begun, None, lambda: self.dumper.end_step(self.dumped(begun), None))
            return
        dumped = self.dumped(begun)
        if dumped is not None:
            self.session.guard(self.dumper.end_step, dumped, error)
        self.show_failed(begun, error)

    def skip_step(self, begun: Any) -> None:
        """Listeners are notified that it has failed."""
        dumped = self.dumped(begun)
        if dumped is not None:
            self.session.guard(self.dumper.skip_step, dumped)
        self.show_failed(begun, RuntimeError(SKIPPED))

    def leave_step(self) -> None:
        self.bus.leave_step()

"""Listeners that watch a training as long as it runs, of all frameworks: its steps are those of its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msprobe.capture.events import EventKind
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.listening import Listening
from msprobe.capture.optimizer_turns import OptimizerTurns, Outcome


def _ignore(has_raised: bool) -> None:
    """Nobody asks for it."""


class TrainingListening(Listening):
    """Listeners of a training whose program calls nothing in each step.

    A step ends when the optimizers of the model have stepped (:class:`OptimizerTurns`), and the next begins at once:
    evaluation between two steps belongs to the later one. It may run beside a PrecisionDebugger, which dumps some of
    the steps.
    """

    def __init__(self, *listeners: Any) -> None:
        super().__init__(*listeners)
        self._steps = _Steps(self)
        self._turns: OptimizerTurns | None = None
        self._over: Sequence[Callable[[], None]] = ()
        self._left_out: Callable[[bool], None] = _ignore
        self.recorder.bus.add(self._steps)

    def follow(
        self,
        model: Any,
        optimizers: Sequence[Any] = (),
        first_step: int = 0,
        over: Sequence[Callable[[], None]] = (),
        left_out: Callable[[bool], None] = _ignore,
    ) -> None:
        """Begin: the step that runs now is ``first_step``.

        ``model``: a module (a cell) or a list of them. ``optimizers``: those whose steps are meant, each as often as it
        steps in a step of the training. None given: all that change a parameter of the model. ``over`` is called when a
        step is over, before the next begins; ``left_out`` when it comes again: a gradient scaler has left it out, or
        (its argument is True) an optimizer has raised. No optimizer steps while these run.
        """
        models = model if isinstance(model, (list, tuple)) else [model]
        self._turns = self._new_turns(models, optimizers)
        self._over, self._left_out = over, left_out
        self.recorder.session.number_steps_from(first_step)
        self.start(model)

    def has(self, optimizer: Any) -> bool:
        """True if the steps of ``optimizer`` are those of the training."""
        return self._turns is not None and self._turns.has(optimizer)

    def end(self) -> None:
        """Nothing is watched any more, and nothing is left attached."""
        self._turns = None
        self.stop()
        self.close()

    def note(self, optimizer: Any, outcome: Outcome) -> None:
        """A step of ``optimizer`` has ended."""
        turns, afterwards = self._turns, self.recorder.bus.afterwards
        if turns is None or not turns.has(optimizer):
            return
        progress = turns.note(optimizer, outcome)
        if progress == "complete":
            for work in (*self._over, self._next):
                afterwards(work)
        elif progress == "left out":
            afterwards(partial(self._left_out, outcome == "raised"))

    def _next(self) -> None:
        if self._turns is not None:
            self.recorder.next_step()

    def _new_turns(self, models: Sequence[Any], optimizers: Sequence[Any]) -> OptimizerTurns:
        raise NotImplementedError


class _Steps(Observer):
    """Sees the steps of optimizers."""

    wants = Wants(kinds=frozenset[EventKind](("optimizer",)))
    is_careful = True

    def __init__(self, training: TrainingListening) -> None:
        self._training = training

    def after(self, event: Any, result: Any) -> None:
        """An optimizer has stepped."""
        self._training.note(event.optimizer, "taken")

    def failed(self, event: Any) -> None:
        """It has raised, or was left out."""
        step = event.event
        self._training.note(step.optimizer, "skipped" if step.is_skipped else "raised")

"""Listeners that watch a training as long as it runs, of all frameworks: its steps are those of its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture.events import Event, EventKind
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.listening import Listening


class TrainingListening(Listening):
    """Listeners of a training whose program calls nothing in each step.

    A step ends when an optimizer of the model has stepped, and the next begins at once: evaluation between two steps
    belongs to the later one. It may run beside a PrecisionDebugger, which dumps some of the steps.
    """

    def __init__(self, *listeners: Any) -> None:
        super().__init__(*listeners)
        self._steps = _Steps(self)
        self._given: Any = None
        self.recorder.bus.add(self._steps)

    def follow(self, model: Any, optimizers: Sequence[Any] = (), first_step: int = 0, parts: int = 1) -> None:
        """Begin: the step that runs now is ``first_step``.

        ``model``: a module (a cell) or a list of them. ``optimizers``: those whose steps are meant; of several that
        step in turn the first one that steps ends the steps. None given: the first that steps and has a parameter of
        the model. ``parts``: so many steps of the optimizers make one step, where that is more than one.
        """
        self._steps.follow(model, optimizers, parts)
        self.recorder.session.number_steps_from(first_step)
        self._given = model
        self.start(model)

    def has_parameters_of(self, optimizer: Any) -> bool:
        """True if ``optimizer`` changes a parameter of the models that are followed."""
        return self._steps.is_meant(optimizer)

    def end(self) -> None:
        """Nothing is watched any more, and nothing is left attached."""
        self._given = None
        self.stop()
        self.close()
        self._steps.forget()

    def next(self) -> None:
        """A step is over; the next one begins."""
        if self._given is not None:
            self.recorder.next_step()

    def parameters_of(self, model: Any) -> Sequence[Any]:
        """The parameters of a model."""
        raise NotImplementedError

    def parameters_in(self, optimizer: Any) -> Sequence[Any]:
        """The parameters that an optimizer changes."""
        raise NotImplementedError


class PartsOfStep:
    """Counts the steps of optimizers that make one step. ``number``: how many do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._done = 0

    def is_last(self) -> bool:
        """One more is done: True if the step is complete."""
        self._done = (self._done + 1) % self.number
        return self._done == 0

    def begin_again(self) -> None:
        """What was done is of no step."""
        self._done = 0


class _Steps(Observer):
    """Sees when a step of the training is over."""

    wants = Wants(kinds=frozenset[EventKind](("optimizer",)))
    is_careful = True

    def __init__(self, training: TrainingListening) -> None:
        self._training = training
        self._leader: Any = None
        self._meant: tuple[int, ...] = ()
        self._parameters: frozenset[int] = frozenset()
        self._parts = PartsOfStep(1)

    def follow(self, model: Any, optimizers: Sequence[Any], parts: int) -> None:
        self._parts = PartsOfStep(parts)
        models = model if isinstance(model, (list, tuple)) else [model]
        self._leader = None
        self._meant = tuple(id(optimizer) for optimizer in optimizers)
        self._parameters = frozenset(
            id(parameter) for part in models for parameter in self._training.parameters_of(part)
        )

    def forget(self) -> None:
        self._leader = None

    def is_meant(self, optimizer: Any) -> bool:
        if self._meant:
            return id(optimizer) in self._meant
        return any(id(parameter) in self._parameters for parameter in self._training.parameters_in(optimizer))

    def after(self, event: Event, result: Any) -> None:
        """An optimizer has stepped."""
        optimizer = event.optimizer  # type: ignore[attr-defined]
        if self._parts.number > 1:
            if self.is_meant(optimizer) and self._parts.is_last():
                self._training.recorder.bus.afterwards(self._training.next, place=2)
            return
        if self._leader is None and self.is_meant(optimizer):
            self._leader = optimizer
        if optimizer is self._leader:
            self._training.recorder.bus.afterwards(self._training.next, place=2)

    def failed(self, event: Any) -> None:
        """It has raised, or was left out."""
        if self.is_meant(event.event.optimizer):
            self._parts.begin_again()

"""Listeners of a program that is not dumped: what the debuggers do for their listeners, without a configuration."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar

from msprobe.capture.debugger import Debugger
from msprobe.errors import InvalidInputError
from msprobe.guard import answers_user
from msprobe.messages import said

_Own = TypeVar("_Own", bound="Listening")


class Listening:
    """Notifies listeners of what happens between ``start`` and ``stop``, and writes nothing.

    ::

        listening = Listening(GradientNorms())
        for batch in loader:
            with listening.step(model):
                loss = model(batch)
                loss.backward()
            optimizer.step()

    A program that has a PrecisionDebugger gives its listeners to that: ``debugger.add(listener)``. Raises
    InvalidInputError for what is no listener, or if there is a PrecisionDebugger.
    """

    def __init__(self, *listeners: Any) -> None:
        self.recorder = self._new_recorder()
        for listener in listeners:
            self.recorder.bus.add(listener)

    def add(self, listener: Any) -> None:
        """Notify one more, from the next start on."""
        self.recorder.bus.add(listener)

    def remove(self, listener: Any) -> None:
        """Notify ``listener`` nothing more."""
        self.recorder.bus.remove(listener)

    def start(self, model: Any = None) -> None:
        """Begin to notify, in the steps and ranks of each listener's cadence. ``model``: as a debugger's start takes
        it; needed for passes of modules and gradients of parameters.
        """
        raise NotImplementedError

    @answers_user
    def stop(self) -> None:
        """Say nothing more until the next start; nothing is left attached."""
        if self.recorder.session.recording:
            self.recorder.stop()

    @answers_user
    def next_step(self) -> None:
        """This iteration is over: the listeners are notified, and all numbers begin at zero again."""
        self.recorder.next_step()

    def step(self: _Own, model: Any = None) -> _Iteration:
        """One iteration as a block: start, stop and next_step."""
        return _Iteration(self, model)

    @answers_user
    def close(self) -> None:
        """It is over: the step that was not ended is reported as ended, and nothing is left attached."""
        self.recorder.close(is_end=False)

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _new_recorder(self) -> Any:
        raise NotImplementedError


class _Iteration:
    def __init__(self, listening: Listening, model: Any) -> None:
        self.listening = listening
        self.model = model

    def __enter__(self) -> Listening:
        self.listening.start(self.model)
        return self.listening

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.listening.stop()
        self.listening.next_step()


def refuse_beside(debugger: type[Debugger]) -> None:
    """Raise InvalidInputError if there is a debugger in this process, which has listeners of its own."""
    if debugger.existing() is not None:
        raise InvalidInputError(said("listening-beside-debugger"))

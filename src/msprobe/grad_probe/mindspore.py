"""The gradient probe in MindSpore's dynamic graph: a listener for the steps of one optimizer, which reads the gradients
that it is given.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np

from msprobe import log
from msprobe.capture.events import Event, EventKind, Failure
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.capture.mindspore.training import TrainingListening, warn_of_static_graph
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError
from msprobe.grad_probe.measure import Array, ProbedGradient, measure
from msprobe.grad_probe.probe import Probe
from msprobe.grad_probe.writer import Entry
from msprobe.messages import said


class GradientProbe(Observer):
    """Watches one optimizer from :meth:`watch` to :meth:`end`."""

    wants = Wants(kinds=frozenset[EventKind](("optimizer",)))
    #: Nothing here uses random numbers or writes to a tensor.
    is_careful = True

    def __init__(self, settings: Settings) -> None:
        self.probe = Probe(settings, "mindspore")
        self._optimizer: Any = None
        self._wanted: frozenset[str] = frozenset()
        self._listening: TrainingListening | None = None

    def watch(self, optimizer: Any) -> None:
        """Begin. Raises InvalidInputError for what is no optimizer, PathError for old files that are refused."""
        if self._listening is not None:
            log.warning(said("gradients-watched-already"))
            return
        parameters = getattr(optimizer, "parameters", None)
        if not callable(optimizer) or not isinstance(parameters, (list, tuple, mindspore.ParameterTuple)):
            kind = type(optimizer).__name__
            raise InvalidInputError(said("gradient-optimizer-wrong", kind))
        self.probe.check_folder(RANKS.current())
        warn_of_static_graph("monitor()")
        names = [str(parameter.name) for parameter in parameters]
        self._wanted = self.probe.wanted_names(names)
        self._optimizer = optimizer
        self._listening = TrainingListening(self)
        self._listening.start()
        self.probe.announce(RANKS.current(), [name for name in names if name in self._wanted])

    def end(self) -> None:
        """Take all hooks away and wait for the files."""
        watching, self._listening = self._listening, None
        if watching is None:
            return
        watching.end()
        self.probe.end_training(RANKS.current(), has_begun=False)
        why = said("optimizer-has-not-stepped")
        self.probe.close(why if self._wanted else said("probed-optimizer-lacks-parameters"))
        self._optimizer = None

    # ---------------------------------------------------------------- the moments of a step

    def before(self, event: Event) -> None:
        """An optimizer is about to step."""
        if event.optimizer is self._optimizer and self.probe.is_wanted(RANKS.current()):  # type: ignore[attr-defined]
            without = []
            for place, (name, optimized) in enumerate(event.parameters.items()):  # type: ignore[attr-defined]
                gradient = optimized.gradient
                if name in self._wanted and gradient is None:
                    without.append(name)
                elif name in self._wanted:
                    self.probe.add(place, name, gradient, int(getattr(gradient, "size", 0)), self._entry)
            self.probe.note_missing(without)

    def after(self, event: Event, result: Any) -> None:
        """It has stepped."""
        if event.optimizer is self._optimizer:  # type: ignore[attr-defined]
            self.probe.end_step(RANKS.current())

    def failed(self, event: Failure) -> None:
        """It has raised."""
        if event.event.optimizer is self._optimizer:  # type: ignore[attr-defined]
            self.probe.give_up_step()

    def _entry(self, name: str, gradient: Any) -> Entry:
        fields = self.probe.fields
        shape = tuple(int(size) for size in gradient.shape)
        local_shape: tuple[int, ...] | None = None
        if not isinstance(gradient, mindspore.Tensor):
            # Rows or elements of a sparse gradient.
            gradient = gradient.values
            local_shape = tuple(int(size) for size in gradient.shape)
            self.probe.note_kind(name, "gradient-is-sparse")
        if gradient.dtype == mindspore.bfloat16:
            gradient = gradient.astype(mindspore.float32)
        array: Array = np.ascontiguousarray(gradient.asnumpy())
        if array.dtype.kind == "c":
            array = array.view(array.real.dtype).reshape(*array.shape, 2)
            local_shape = array.shape
            self.probe.note_kind(name, "gradient-is-complex")
        norm = None
        if fields.compat_norm and array.size:
            norm = float(np.sqrt(np.square(array).sum(dtype=array.dtype)))
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float32)
        flat = array.reshape(-1)
        return measure(
            ProbedGradient(name, flat, flat.__array_interface__["data"][0], shape, local_shape, norm), fields
        )

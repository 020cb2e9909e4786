"""Gradients of calls, passes and parameters, told to listeners as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msprobe.capture.bus import Bus
from msprobe.capture.events import ParameterGradient
from msprobe.capture.heard_units import Heard
from msprobe.capture.session import Session
from msprobe.capture.torch import private
from msprobe.capture.torch.gradients import ArgumentEdge, NodeHooks, collect_tensors
from msprobe.capture.torch.parameter_gradients import ParameterHooks
from msprobe.capture.torch.pass_gradients import PassGradients, PassWatch, nodes_of

_without_functions = private.without_functions


class _Unit:
    """Whose gradients these are: a call or pass, and the places of its results."""

    __slots__ = ("heard", "results")

    def __init__(self, heard: Heard, results: list[str]) -> None:
        self.heard = heard
        self.results = results


class HeardGradients(PassGradients):
    """Tells the listeners of a call or pass of its gradients."""

    # Set when both are made: the bus asks for gradients, which go to the bus.
    bus: Bus

    def __init__(self, session: Session) -> None:
        super().__init__(session, NodeHooks())

    def watch(self, heard: Heard, edges: list[ArgumentEdge], oldest: int, result: Any) -> None:
        """The call or pass has returned."""
        found: list[tuple[str, Any]] = []
        if isinstance(result, tuple):
            collect_tensors(result, "output", found)
        else:
            collect_tensors(result, "output.0", found)
        outputs = [tensor for _, tensor in found]
        nodes = nodes_of(outputs)
        if nodes:
            watch = self.follow(heard.backward, None, edges, oldest, outputs, nodes)
            watch.unit = _Unit(heard, [path for path, _ in found])

    def _take_result(self, watch: PassWatch, index: int, gradient: Any) -> None:
        if gradient is not None:
            unit: _Unit = watch.unit
            heard = unit.heard
            self.bus.show_gradient(heard.gradient_ways, heard.gradient("result", unit.results[index], gradient))

    def _share(self, watch: PassWatch, index: int) -> Callable[[Any], Any]:
        heard: Heard = watch.unit.heard
        place = watch.paths[index]

        def take(gradient: Any) -> None:
            self.bus.show_gradient(heard.gradient_ways, heard.gradient("argument", place, gradient))

        return take

    def _finish(self, watch: PassWatch) -> None:
        gathering = watch.gather()
        for index in range(len(watch.paths)):
            # Those with several uses: the others were told of when they came.
            gathering.result(index, self._share(watch, index))


class HeardParameterGradients(ParameterHooks):
    """Tells listeners of the gradients of parameters."""

    bus: Bus

    def __init__(self, session: Session, hooks: NodeHooks) -> None:
        super().__init__(hooks)
        self.session = session
        # How many have come in this step: (entry, key of the parameter).
        self._counts: dict[tuple[str, str], int] = {}

    def arrive(self, owners: Sequence[tuple[str, str]], gradient: Any) -> None:
        """See the base class."""
        session = self.session
        if gradient is None or not session.recording:
            return
        with _without_functions():
            for entry, parameter in owners:
                try:
                    number = self._counts.get((entry, parameter), 0)
                    self._counts[entry, parameter] = number + 1
                    key = entry.removesuffix(".parameters_grad")
                    ways = self.bus.open_ways("parameter_gradient", key, number)
                    if ways:
                        event = ParameterGradient(entry, session.step, session.rank(), key, parameter, number, gradient)
                        self.bus.show_gradient(ways, event)
                except Exception as error:
                    session.fault(entry, error)

    def begin_step(self) -> None:
        """A new step: nothing has come yet."""
        self._counts.clear()
        self.prune()

"""The backward of calls and passes where MindSpore does not show its graph (2.7 and older): what arrives at results.

A hook on a result sees its gradient and changes nothing. To see what leaves a call to one of its arguments there, an
operator would have to stand before the argument (``ops.HookBackward``). It would add up the argument's uses inside the
call before those outside, so weights would come out with other last bits: these gradients are null instead. Nearly all
of them stand at the call that made the argument, as the gradient of its result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from mindspore import Parameter

from msprobe import log
from msprobe.capture.adapter import Followed, PlacedTensor
from msprobe.capture.mindspore.gradients import backward_graph as graph
from msprobe.capture.mindspore.gradients.backward_graph import NO_KEY, Edge, NodeHooks
from msprobe.capture.mindspore.gradients.node_gradients import GraphGradients, Watch
from msprobe.capture.session import Session
from msprobe.messages import said

_DIFFERENTIABLE = ("Float", "BFloat", "Complex")


class ResultGradients(GraphGradients):
    """Watches the gradients of results (:class:`msprobe.capture.adapter.Gradients`)."""

    def __init__(self, session: Session, hooks: NodeHooks) -> None:
        super().__init__(session, hooks)
        # A result may be a parameter under another object (``Tensor.to``), where a hook would stay.
        self._handles: list[Any] = []
        log.warning(said("argument-gradients-unseen"))

    def note(self, tensors: Sequence[PlacedTensor]) -> tuple[list[Edge], set[int]]:
        return [Edge(None, NO_KEY, path) for path, _ in tensors], {id(tensor) for _, tensor in tensors}

    def watch(self, unit: Followed, note: Any, tensors: Sequence[PlacedTensor]) -> None:
        edges, arguments = note
        watch = Watch(unit, edges, [path for path, _ in tensors], self.session.generation, {})
        for index, (_, tensor) in enumerate(tensors):
            if id(tensor) in arguments or isinstance(tensor, Parameter):
                continue
            if not str(tensor.dtype).startswith(_DIFFERENTIABLE):
                continue
            with contextlib.suppress(RuntimeError):
                # Raised by results that take no part in a backward pass.
                self._handles.append(tensor.register_hook(self._hook(watch, index)))
                watch.nodes += 1

    def close_open(self) -> None:
        """See :class:`msprobe.capture.adapter.Gradients`. Recording stops: hooks are of no use any more."""
        super().close_open()
        handles, self._handles = self._handles, []
        for handle in handles:
            self.session.guard(handle.remove)

    def _hook(self, watch: Watch, index: int) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            self._arrive(watch, [(0, index)], (), (gradient,))

        return arrived


def gradients_for(session: Session, hooks: NodeHooks) -> GraphGradients:
    """The most that this MindSpore allows."""
    return (GraphGradients if graph.is_readable() else ResultGradients)(session, hooks)

"""The backward entries of modules: what comes back through each pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.backward_records import add_gradients, put_backward
from msprobe.capture.stacks import CallStack
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.gradients.graph_nodes import ArgumentEdge
from msprobe.capture.torch.gradients.pass_gradients import PassGradients, PassWatch, nodes_of
from msprobe.capture.units import Unit


class FollowedPass(Unit):
    """A module's pass between its beginning and its end."""

    __slots__ = ("edges", "oldest", "parameters")

    def __init__(self, entry: str, backward: str, order: int, stack: CallStack, parent: Any) -> None:
        # Not that of Unit: this is made for every pass, and the rest of what it has there is set at once.
        self.entry = entry
        self.backward = backward
        self.order = order
        self.stack = stack
        self.parent = parent
        self.inputs: Any = []
        self.kwinputs: Any = {}
        self.attributes = None
        self.watched = False
        self.edges: list[ArgumentEdge] = []
        # The module's own as they were when the pass began.
        self.parameters: Sequence[Any] = ()
        # The autograd sequence number before it.
        self.oldest = 0


class ModuleGradients(PassGradients):
    """Writes the backward entries of modules."""

    def __init__(self, calls: CallRecorder) -> None:
        super().__init__(calls.session, calls.hooks)
        self.calls = calls
        self.visible = private.has("gradients")

    def watch(self, begun: FollowedPass, result: Any) -> None:
        """The pass is over: see what comes back through it."""
        if not self.visible:
            return
        nodes: dict[Any, list[tuple[int, int]]]
        if type(result) is torch.Tensor:
            node = result.grad_fn
            if node is None:
                return
            outputs = [result]
            nodes = {node: [(result.output_nr, 0)]}
        else:
            outputs = [tensor for _, tensor in self.calls.tensors_in((result,), {})]
            nodes = nodes_of(outputs)
            if not nodes:
                return
        self.follow(begun.backward, begun.parent, begun.edges, begun.oldest, outputs, nodes)

    def _begin(self, watch: PassWatch) -> None:
        watch.begun = True
        flt = self.calls.filter
        watch.wanted = flt is None or flt.enter_module(watch.entry)
        watch.order = self.session.next_order()
        self.open[watch] = None

    def _take_result(self, watch: PassWatch, index: int, gradient: Any) -> None:
        calls = self.calls
        if gradient is None or not watch.wanted or not calls.input:
            return
        if calls.saving:
            watch.inputs[index] = calls.described(gradient, f"{watch.entry}.input.{index}", watch.entry)
        else:
            watch.inputs[index] = calls.statistics.describe(gradient)

    def _share(self, watch: PassWatch, index: int) -> Callable[[Any], Any]:
        calls = self.calls
        if not calls.saving:
            return calls.statistics.describe
        entry = watch.entry
        path = f"{entry}.output.{watch.places[index]}"
        return lambda gradient: calls.described(gradient, path, entry)

    def _finish(self, watch: PassWatch) -> None:
        calls = self.calls
        if watch.wanted:
            tree: dict[str, Any] = {}
            if calls.input:
                tree["input"] = watch.inputs
            if calls.output:
                gathering = watch.gather()
                gradients = [gathering.result(i, self._share(watch, i)) for i in range(len(watch.paths))]
                add_gradients(tree, watch.paths, gradients, watch.merged, watch.handed)
            put_backward(calls, watch.entry, tree, watch.order, watch.parent, watch.note)
        if calls.filter is not None:
            calls.filter.leave_module(watch.entry)

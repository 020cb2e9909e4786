"""The backward of recorded calls: what arrives at a call's results and what leaves it to its arguments.

Read off the autograd graph (``graph_nodes``). A call of one node has one hook, which sees both
sides. A call of several has hooks on the nodes of its results and on its boundary; its record is written when the last
of them has run, or at stop for what did not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.backward_records import merged_arguments, put_backward
from msprobe.capture.torch import private
from msprobe.capture.torch.gradients.graph_nodes import (
    ArgumentEdge,
    GradientGathering,
    NodeHooks,
    collect_tensors,
    find_boundary,
    has_inner_nodes,
    identity_of,
    is_foreign,
    shares_of,
)
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.capture.units import CallWriter, Unit
from msprobe.store.handed_through import HANDED_THROUGH

_without_functions = private.without_functions


class OpenCall(Unit):
    """A call between its beginning and its end."""

    __slots__ = ("among_modes", "args", "base", "edges", "handed", "kwargs", "oldest", "versions")

    def __init__(self, key: str, number: int) -> None:
        # Not that of Unit: this is made for every call, and what it has there is set when it is known.
        self.base = base = f"{key}.{number}"
        self.entry = base + ".forward"
        self.recorded = self.watched = False
        self.order = 0
        self.inputs: Any = None
        self.attributes = None
        self.args: Sequence[Any] = ()
        self.kwargs: dict[str, Any] = {}
        self.edges: list[ArgumentEdge] = []
        self.versions: list[tuple[Any, int]] = []
        # Arguments that are results, untouched: what comes back to such a result is the gradient of the call before.
        self.handed: dict[str, str] = {}
        # The autograd sequence number before it.
        self.oldest = 0
        # Modes or tensor types of the user see what is called, also by us.
        self.among_modes = False


class CallGradients:
    """Watches the gradients of recorded calls."""

    def __init__(self, calls: CallWriter, statistics: TensorStatistics, hooks: NodeHooks) -> None:
        self.calls = calls
        self.session = calls.session
        self.statistics = statistics
        self.hooks = hooks
        self.filter = calls.filter
        self.input = calls.input
        self.output = calls.output
        self.open_watches: dict[_Watch, None] = {}
        self.visible = private.has("gradients")

    def watch(self, call: OpenCall, result: Any) -> None:
        """``call`` has returned ``result``: see to it that its gradients are noticed."""
        if not self.visible:
            return
        node: Any = None
        others: list[Any] = []
        if isinstance(result, torch.Tensor):
            if not result.requires_grad:
                return
            node = result.grad_fn
        else:
            tensors: list[tuple[str, Any]] = []
            collect_tensors(result, "", tensors)
            for _, tensor in tensors:
                if tensor.requires_grad and tensor.grad_fn is not None:
                    if node is None:
                        node = tensor.grad_fn
                    elif tensor.grad_fn is not node and tensor.grad_fn not in others:
                        others.append(tensor.grad_fn)
        if node is None:
            return
        generation = self.session.generation
        edges = call.edges or []
        if not others and not has_inner_nodes(node, call.oldest):
            # One node does the whole call: what it gets and what it passes on is all there is to know.
            arrived: dict[str, Any] = {}
            if is_foreign(node) or self.session.gradients_change:
                # It may write over what it gets; or somebody puts others in their place, before the node runs.
                self.hooks.before(node, self._arriving, call.base, generation, arrived)
            self.hooks.after(node, self._single, call.base, call.parent, generation, arrived, call.handed)
            return
        boundary = find_boundary([node, *others], edges, call.oldest)
        watch = _Watch(call, edges, boundary, generation, len(others))
        if self.session.gradients_change:
            self.hooks.before(node, self._arriving, call.base, generation, watch.received)
        self.hooks.after(node, self._first, watch)
        for other in others:
            self.hooks.before(other, self._other, watch)
        viewed = result._base if isinstance(result, torch.Tensor) else None
        base = None if viewed is None else viewed.grad_fn
        for place in boundary:
            if place.node is base:
                watch.base_slots = place.slots
            self.hooks.after(place.node, self._boundary, watch, place.slots)

    def _arriving(self, base: str, generation: int, arrived: dict[str, Any], received: Sequence[Any]) -> None:
        if generation != self.session.generation:
            return
        with _without_functions():
            name = base + ".backward"
            try:
                arrived.clear()
                if self.filter is None or self.filter.wants_call(name):
                    self._received(name, arrived, received)
            except Exception as error:
                self.session.fault(name, error)

    def _single(
        self,
        base: str,
        parent: Any,
        generation: int,
        arrived: dict[str, Any],
        handed: dict[str, str],
        passed_on: Sequence[Any],
        received: Sequence[Any],
    ) -> None:
        session = self.session
        if generation != session.generation:
            return
        with _without_functions():
            name = base + ".backward"
            try:
                if self.filter is not None and not self.filter.wants_call(name):
                    return
                tree = dict(arrived)
                arrived.clear()
                if not tree:
                    self._received(name, tree, received)
                self._passed_on(name, tree, passed_on)
                if handed:
                    tree[HANDED_THROUGH] = handed
                put_backward(self.calls, name, tree, session.next_order(), parent)
            except Exception as error:
                session.fault(name, error)

    def _opened(self, watch: _Watch) -> bool:
        """True if this pass through the call is recorded; decided when the first of its gradients arrives."""
        if watch.tree is None:
            if watch.gathering is None:
                return False
            if self.filter is not None and not self.filter.wants_call(watch.base + ".backward"):
                watch.gathering = None
                return False
            watch.tree = {}
            watch.order = self.session.next_order()
            self.open_watches[watch] = None
        return True

    def _first(self, watch: _Watch, passed_on: Sequence[Any], received: Sequence[Any]) -> None:
        session = self.session
        if watch.generation != session.generation:
            return
        with _without_functions():
            name = watch.base + ".backward"
            try:
                if watch.tree:
                    # The graph is walked again before all of the last walk's gradients arrived.
                    self._close(watch)
                if not self._opened(watch):
                    return
                assert watch.tree is not None
                if watch.received:
                    watch.tree.update(watch.received)
                    watch.received.clear()
                    self._passed_on(name, watch.tree, passed_on)
                else:
                    self._gradients(name, watch.tree, received, passed_on)
                if watch.early:
                    # The boundary may have come first.
                    self._close_if_done(watch)
                elif not watch.awaited:
                    self._close(watch)
            except Exception as error:
                session.fault(name, error)

    def _other(self, watch: _Watch, received: Sequence[Any]) -> None:
        if watch.generation != self.session.generation:
            return
        with _without_functions():
            try:
                if self._opened(watch):
                    watch.extra += [None if g is None else self.statistics.describe(g) for g in received]
            except Exception as error:
                self.session.fault(watch.base + ".backward", error)

    def _boundary(
        self, watch: _Watch, slots: list[tuple[int, int]], passed_on: Sequence[Any], received: Sequence[Any]
    ) -> None:
        if watch.generation != self.session.generation:
            return
        with _without_functions():
            try:
                if watch.tree is None and not watch.early:
                    # The result is a view that was written to: its own node runs no more. That of the tensor
                    # it is a view of does, and sees the gradient of what the result was.
                    if not self._opened(watch):
                        return
                    assert watch.tree is not None
                    name = watch.base + ".backward"
                    self._gradients(name, watch.tree, received if slots is watch.base_slots else [None], passed_on)
                gathering = watch.gathering
                if gathering is None:
                    return
                for position, index in slots:
                    gathering.add(index, passed_on[position], self._describe_share(watch, index))
                gathering.arrived += 1
                self._close_if_done(watch)
            except Exception as error:
                self.session.fault(watch.base + ".backward", error)

    def _close_if_done(self, watch: _Watch) -> None:
        gathering = watch.gathering
        if watch.tree is not None and gathering is not None and gathering.arrived >= watch.awaited:
            self._close(watch)

    def _close(self, watch: _Watch) -> None:
        self.open_watches.pop(watch, None)
        tree, gathering = watch.tree, watch.gathering
        if tree is None:
            return
        if self.input and (watch.extra or not tree):
            tree["input"] = [*tree.get("input", [None]), *watch.extra]
        if self.output:
            tree.setdefault("output", [None])
        if gathering is not None and self.output:
            shares = {
                path: gathering.result(index, self._describe_share(watch, index))
                for index, path in enumerate(watch.paths)
                if gathering.has(index)
            }
            if shares:
                tree["input_grads"] = shares
                if watch.merged:
                    # Several arguments were one tensor: only the gradient of all of them together exists.
                    tree["merged"] = dict(watch.merged)
        if watch.handed:
            tree[HANDED_THROUGH] = watch.handed
        put_backward(self.calls, watch.base + ".backward", tree, watch.order, watch.parent)
        watch.again()

    def _describe_share(self, watch: _Watch, index: int) -> Callable[[Any], Any]:
        described = self.calls.described
        if not self.calls.saving:
            return self.statistics.describe
        name = watch.base + ".backward"
        path = f"{name}.input_grads.{watch.paths[index]}"
        return lambda gradient: described(gradient, path, name)

    def close_open(self) -> None:
        """Write the gradients of calls whose boundary was not reached: the rest of the graph was not asked
        for.
        """
        with _without_functions():
            for watch in list(self.open_watches):
                self.session.guard(self._close, watch)

    def _gradients(self, name: str, tree: dict[str, Any], received: Sequence[Any], passed_on: Sequence[Any]) -> None:
        self._received(name, tree, received)
        self._passed_on(name, tree, passed_on)

    def _received(self, name: str, tree: dict[str, Any], gradients: Sequence[Any]) -> None:
        if self.input:
            tree["input"] = self._described(f"{name}.input", name, gradients)

    def _passed_on(self, name: str, tree: dict[str, Any], gradients: Sequence[Any]) -> None:
        if self.output:
            tree["output"] = self._described(f"{name}.output", name, gradients)

    def _described(self, path: str, name: str, gradients: Sequence[Any]) -> list[Any]:
        calls = self.calls
        if not calls.saving:
            describe = self.statistics.describe
            return [None if g is None else describe(g) for g in gradients]
        return [None if g is None else calls.described(g, f"{path}.{i}", name) for i, g in enumerate(gradients)]


class _Watch:
    """One call of several nodes, between its forward and its backward."""

    __slots__ = (
        "awaited",
        "base",
        "base_slots",
        "early",
        "extra",
        "gathering",
        "generation",
        "handed",
        "merged",
        "order",
        "parent",
        "paths",
        "received",
        "shares",
        "tree",
    )

    def __init__(
        self, call: OpenCall, edges: list[ArgumentEdge], boundary: list[Any], generation: int, others: int
    ) -> None:
        self.base = call.base
        self.handed = call.handed
        self.parent = call.parent
        self.paths = [edge.path for edge in edges]
        self.merged = merged_arguments(map(identity_of, edges)) if len(edges) > 1 else None
        self.generation = generation
        self.awaited = len(boundary)
        self.shares = shares_of(boundary, len(edges))
        self.early = others > 0
        # What has arrived, where somebody puts other gradients in their place.
        self.received: dict[str, Any] = {}
        # The edges of the node of the tensor that the result is a view of.
        self.base_slots: list[tuple[int, int]] | None = None
        self.again()

    def again(self) -> None:
        """Ready for a pass (the graph may be walked backward more than once)."""
        self.tree: dict[str, Any] | None = None
        self.extra: list[Any] = []
        self.order = 0
        self.gathering: GradientGathering | None = GradientGathering(self.shares)

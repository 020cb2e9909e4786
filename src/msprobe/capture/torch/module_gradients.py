"""Gradients that come back through a pass of a module, read off the graph as it is.

The nodes of its results see what arrives, the boundary nodes what leaves
(:mod:`msprobe.capture.torch.gradients`); no identity node enters the graph. Two things are known only in sum:
an argument that is handed through as a result, whose gradient is that of all its uses, and a result that is a
view and is written to after the pass. Such a result has a new node from then on; the gradient of what it was
is seen at the node of the tensor it is a view of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from msprobe.capture.stacks import CallStack
from msprobe.capture.torch import private
from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.gradients import (
    ArgumentEdge,
    Base,
    Boundary,
    Gathering,
    bases_of,
    find_boundary,
    shares_of,
)

_quiet = private.without_functions

OF_ALL_USES = "gradients of all uses of the argument: the results are views of it and were written to"


class ModulePass:
    """A module's pass between its beginning and its end."""

    __slots__ = (
        "edges",
        "entry",
        "handled",
        "inputs",
        "kwinputs",
        "module",
        "name",
        "number",
        "oldest",
        "order",
        "parameters",
        "parent",
        "recorded",
        "stack",
        "watched",
    )

    def __init__(
        self, name: str, entry: str, number: int, order: int, stack: CallStack, parent: Any, module: nn.Module
    ) -> None:
        self.module = module
        self.name = name
        self.entry = entry
        self.number = number
        self.order = order
        self.stack = stack
        self.parent = parent
        self.recorded = False
        self.watched = False
        # The identity of the exception that was being handled when the pass began.
        self.handled = 0
        self.inputs: Any = None
        self.kwinputs: Any = None
        self.edges: list[ArgumentEdge] = []
        # The module's own as they were when the pass began.
        self.parameters: dict[str, Any] | None = None
        self.oldest = 0


class ModuleGradients:
    """Writes the backward entries of modules."""

    def __init__(self, calls: CallRecorder) -> None:
        self.calls = calls
        self.session = calls.session
        self.hooks = calls.hooks
        self.visible = private.has("gradients")
        # Passes of which some gradients have arrived.
        self.open: dict[Any, None] = {}

    def watch(self, begun: ModulePass, result: Any) -> None:
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
            nodes = {}
            for index, tensor in enumerate(outputs):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    nodes.setdefault(tensor.grad_fn, []).append((tensor.output_nr, index))
            if not nodes:
                return
        edges = begun.edges
        boundary: list[Boundary] = []
        handed: dict[int, int] = {}
        through: dict[Any, list[tuple[int, int]]] = {}
        if edges:
            boundary = find_boundary(nodes, edges, begun.oldest)
            for index, edge in enumerate(edges):
                for slot, output in nodes.get(edge.node, ()):
                    if slot == edge.slot and all(slot != other for other, _ in through.get(edge.node, ())):
                        handed[index] = output
                        through.setdefault(edge.node, []).append((slot, index))
            if handed:
                boundary = [place.without(handed) for place in boundary]
        watch = _Watch(begun, edges, len(outputs), len(nodes), boundary, handed, self.session.generation)
        watch.boundaries += len(through)
        for node, places in nodes.items():
            self.hooks.before(node, self._arrive, watch, places, through.get(node, ()))
        bases = bases_of(outputs)
        for place in boundary:
            self.hooks.after(place.node, self._pass_on, watch, place.slots, bases.pop(place.node, ()))
        for node, parts in bases.items():
            arguments = [(edge.slot, index) for index, edge in enumerate(edges) if edge.node is node]
            self.hooks.before(node, self._reach_base, watch, parts, arguments, node._sequence_nr() < begun.oldest)

    # ------------------------------------------------------------ while gradients arrive

    def _begin(self, watch: _Watch) -> None:
        watch.begun = True
        flt = self.calls.filter
        watch.wanted = flt is None or flt.enter_module(watch.entry)
        watch.order = self.session.next_order()
        self.open[watch] = None

    def _arrive(
        self,
        watch: _Watch,
        places: list[tuple[int, int]],
        through: Sequence[tuple[int, int]],
        received: Sequence[Any],
    ) -> None:
        """Gradients reach the node of a result. ``places``: (slot of the node, result); ``through``: (slot,
        argument) of arguments that are results.
        """
        if watch.generation != self.session.generation:
            return
        with _quiet():
            try:
                gathering = watch.gather()
                first = places[0][1]
                if first in watch.arrived:
                    # The graph is walked again before all of the last walk's gradients came.
                    self._close(watch)
                    gathering = watch.gather()
                if not watch.begun:
                    self._begin(watch)
                watch.nodes_run = True
                for slot, index in places:
                    self._describe_input(watch, index, received[slot] if slot < len(received) else None)
                for slot, index in through:
                    gathering.add(index, received[slot], self._describe_share(watch, index))
                watch.arrived.add(first)
                if through:
                    gathering.arrived += 1
                if watch.boundaries:
                    if gathering.arrived >= watch.boundaries:
                        self._close(watch)
                elif len(watch.arrived) >= watch.nodes:
                    self._close(watch)
            except Exception as error:
                self.session.fault(watch.entry, error)

    def _pass_on(
        self,
        watch: _Watch,
        slots: list[tuple[int, int]],
        parts: Sequence[Base],
        passed_on: Sequence[Any],
        received: Sequence[Any],
    ) -> None:
        """A boundary node has run. ``slots``: (slot, argument); ``parts``: results that are views of its tensor."""
        if watch.generation != self.session.generation:
            return
        with _quiet():
            try:
                gathering = watch.gather()
                if parts and not watch.nodes_run:
                    self._take_from_base(watch, parts, received)
                for position, index in slots:
                    gathering.add(index, passed_on[position], self._describe_share(watch, index))
                gathering.arrived += 1
                if gathering.arrived >= watch.boundaries:
                    self._close(watch)
            except Exception as error:
                self.session.fault(watch.entry, error)

    def _reach_base(
        self,
        watch: _Watch,
        parts: Sequence[Base],
        arguments: Sequence[tuple[int, int]],
        before: bool,
        received: Sequence[Any],
    ) -> None:
        """Gradients reach the node of a tensor of which results are views. ``arguments``: (slot, argument) of
        arguments that are this tensor; ``before``: it is older than the pass.
        """
        if watch.generation != self.session.generation or watch.nodes_run:
            return
        with _quiet():
            try:
                gathering = watch.gather()
                self._take_from_base(watch, parts, received)
                for slot, index in arguments:
                    gathering.add(index, received[slot], self._describe_share(watch, index))
                if before:
                    watch.note = OF_ALL_USES
                if before or not watch.boundaries:
                    self._close(watch)
            except Exception as error:
                self.session.fault(watch.entry, error)

    def _take_from_base(self, watch: _Watch, parts: Sequence[Base], received: Sequence[Any]) -> None:
        if not watch.begun:
            self._begin(watch)
        for part in parts:
            gradient = received[part.slot]
            self._describe_input(watch, part.output, None if gradient is None else part.of(gradient))

    def _describe_input(self, watch: _Watch, index: int, gradient: Any) -> None:
        calls = self.calls
        if gradient is None or not watch.wanted or not calls.input:
            return
        if calls.saving and self.session.saves(watch.entry):
            path = f"{watch.entry}.input.{index}"
            watch.inputs[index] = calls.describer.describe_kept(gradient, path, calls.keeper.keep)
        else:
            watch.inputs[index] = calls.statistics.describe(gradient)

    def _describe_share(self, watch: _Watch, index: int) -> Callable[[Any], Any]:
        calls = self.calls
        if calls.saving and self.session.saves(watch.entry):
            path = f"{watch.entry}.output.{watch.places[index]}"
            return lambda gradient: calls.describer.describe_kept(gradient, path, calls.keeper.keep)
        return calls.statistics.describe

    # ------------------------------------------------------------ when they have arrived

    def _close(self, watch: _Watch) -> None:
        self.open.pop(watch, None)
        calls = self.calls
        if watch.begun:
            if watch.wanted:
                tree: dict[str, Any] = {}
                if calls.input:
                    tree["input"] = watch.inputs
                if calls.output:
                    self._add_outputs(watch, tree)
                calls.gradients.put(watch.entry, tree, watch.order, watch.parent, watch.note)
            if calls.filter is not None:
                calls.filter.leave_module(watch.entry)
        watch.again()

    def _add_outputs(self, watch: _Watch, tree: dict[str, Any]) -> None:
        gathering = watch.gather()
        output: list[Any] = []
        words: dict[str, Any] = {}
        merged: dict[str, str] = {}
        for index, path in enumerate(watch.paths):
            described = gathering.result(index, self._describe_share(watch, index))
            same = watch.same_as[index]
            if same is not None:
                merged[path] = same
            if path.startswith("kwargs."):
                words[path.removeprefix("kwargs.")] = described
            else:
                output.append(described)
        tree["output"] = output
        if words:
            tree["kwargs_grads"] = words
        if merged:
            # Several arguments were one tensor: only the gradient of all of them together exists.
            tree["merged"] = merged
        if watch.handed:
            # Arguments that are results: their gradients are those of all their uses.
            tree["handed_through"] = {watch.paths[i]: f"output.{output}" for i, output in watch.handed.items()}

    def close_open(self) -> None:
        """Write the passes whose gradients did not all arrive: the rest of the graph was not asked for."""
        with _quiet():
            for watch in list(self.open):
                self.session.guard(self._close if type(watch) is _Watch else type(watch).close, watch)


class _Watch:
    """One pass of a module, between its forward and its backward. No node and no tensor is kept here: the hooks
    on the nodes keep this, so they would keep the graph alive.
    """

    __slots__ = (
        "arrived",
        "begun",
        "boundaries",
        "entry",
        "gathering",
        "generation",
        "handed",
        "inputs",
        "nodes",
        "nodes_run",
        "note",
        "order",
        "outputs",
        "parent",
        "paths",
        "places",
        "same_as",
        "shares",
        "wanted",
    )

    def __init__(
        self,
        begun: ModulePass,
        edges: list[ArgumentEdge],
        outputs: int,
        nodes: int,
        boundary: list[Boundary],
        handed: dict[int, int],
        generation: int,
    ) -> None:
        self.entry = f"{begun.name}.backward.{begun.number}"
        self.parent = begun.parent
        self.paths, self.places, self.same_as = (
            _one_argument(edges[0].path) if len(edges) == 1 else _several_arguments(edges)
        )
        self.outputs = outputs
        self.nodes = nodes
        # How many boundary nodes, and arguments that are results, a pass ends at.
        self.boundaries = len(boundary)
        self.shares = shares_of(boundary, len(edges))
        for index in handed:
            self.shares[index] = 1
        self.handed = handed
        self.generation = generation
        # True: the results' own nodes run, nothing has to be seen at the tensors they are views of.
        self.nodes_run = False
        self.note = ""
        self.again()

    def again(self) -> None:
        """Ready for a pass (the graph may be walked backward more than once)."""
        self.begun = False
        self.wanted = False
        self.order = 0
        # What arrives has a place from then on.
        self.gathering: Gathering | None = None

    def gather(self) -> Gathering:
        """Gradients arrive."""
        if self.gathering is None:
            self.arrived: set[int] = set()
            self.inputs: list[Any] = [None] * self.outputs
            self.gathering = Gathering(self.shares)
        return self.gathering


# Index paths, places in the entry (a number, or ``kwargs.x``), and for each the earlier path that is the same tensor.
_Arguments = tuple[list[str], list[str], list["str | None"]]


@lru_cache(maxsize=10_000)
def _one_argument(path: str) -> _Arguments:
    return [path], [path if path.startswith("kwargs.") else "0"], [None]


def _several_arguments(edges: Sequence[ArgumentEdge]) -> _Arguments:
    first: dict[tuple[Any, int], str] = {}
    paths: list[str] = []
    places: list[str] = []
    same_as: list[str | None] = []
    positional = 0
    for node, slot, path, tensor in edges:
        key = (id(tensor), -1) if node is None else (id(node), slot)
        known = first.setdefault(key, path)
        same_as.append(None if known == path else known)
        paths.append(path)
        if path.startswith("kwargs."):
            places.append(path)
        else:
            places.append(str(positional))
            positional += 1
    return paths, places, same_as

"""Gradients that come back through a call or a pass of a module, read off the graph as it is.

The nodes of its results see what arrives, the boundary nodes what leaves
(``graph_nodes``); no identity node enters the graph. Two things are known only in sum:
an argument that is handed through as a result, whose gradient is that of all its uses, and a result that is a
view and is written to after the pass. Such a result has a new node from then on; the gradient of what it was
is seen at the node of the tensor it is a view of.

What is done with them: :mod:`msprobe.capture.torch.gradients.module_gradients` writes records,
:mod:`msprobe.capture.torch.gradients.relayed_gradients` notifies listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from msprobe.capture.backward_records import merged_arguments, places_of
from msprobe.capture.session import Session
from msprobe.capture.torch import private
from msprobe.capture.torch.gradients.graph_nodes import (
    ArgumentEdge,
    Base,
    Boundary,
    GradientGathering,
    NodeHooks,
    bases_of,
    find_boundary,
    identity_of,
    shares_of,
)

_without_functions = private.without_functions

OF_ALL_USES = "gradients of all uses of the argument: the results are views of it and were written to"


class PassGradients:
    """Follows the gradients of passes; who derives from it says what becomes of them."""

    def __init__(self, session: Session, hooks: NodeHooks) -> None:
        self.session = session
        self.hooks = hooks
        # Passes of which some gradients have arrived.
        self.open: dict[Any, None] = {}

    # ------------------------------------------------------------ what becomes of them

    def _begin(self, watch: PassWatch) -> None:
        """The first gradient of a pass has come."""
        watch.begun = True
        self.open[watch] = None

    def _take_result(self, watch: PassWatch, index: int, gradient: Any) -> None:
        """The gradient of a result; None if it has none."""
        raise NotImplementedError

    def _share(self, watch: PassWatch, index: int) -> Callable[[Any], Any]:
        """What takes the gradient of an argument, and gives what is kept of it until the end."""
        raise NotImplementedError

    def _finish(self, watch: PassWatch) -> None:
        """All that will come has come."""
        raise NotImplementedError

    # ------------------------------------------------------------ the hooks

    def follow(
        self,
        entry: str,
        parent: Any,
        edges: list[ArgumentEdge],
        oldest: int,
        outputs: Sequence[Any],
        nodes: dict[Any, list[tuple[int, int]]],
    ) -> PassWatch:
        """Watch a pass that is over. ``edges``, ``oldest``: its arguments, and the sequence number, before it.
        ``outputs``: its results; ``nodes``: their nodes, and for each (slot, result).
        """
        boundary: list[Boundary] = []
        handed: dict[int, int] = {}
        through: dict[Any, list[tuple[int, int]]] = {}
        if edges:
            boundary = find_boundary(nodes, edges, oldest)
            for index, edge in enumerate(edges):
                for slot, output in nodes.get(edge.node, ()):
                    if slot == edge.slot and all(slot != other for other, _ in through.get(edge.node, ())):
                        handed[index] = output
                        through.setdefault(edge.node, []).append((slot, index))
            if handed:
                boundary = [place.without(handed) for place in boundary]
        watch = PassWatch(entry, parent, edges, len(outputs), len(nodes), boundary, handed, self.session.generation)
        watch.boundaries += len(through)
        for node, places in nodes.items():
            self.hooks.before(node, self._arrive, watch, places, through.get(node, ()))
        bases = bases_of(outputs)
        for place in boundary:
            self.hooks.after(place.node, self._pass_on, watch, place.slots, bases.pop(place.node, ()))
        for node, parts in bases.items():
            arguments = [(edge.slot, index) for index, edge in enumerate(edges) if edge.node is node]
            self.hooks.before(node, self._reach_base, watch, parts, arguments, node._sequence_nr() < oldest)
        return watch

    # ------------------------------------------------------------ while gradients arrive

    def _arrive(
        self,
        watch: PassWatch,
        places: list[tuple[int, int]],
        through: Sequence[tuple[int, int]],
        received: Sequence[Any],
    ) -> Any:
        """Gradients reach the node of a result. ``places``: (slot of the node, result); ``through``: (slot,
        argument) of arguments that are results.
        """
        if watch.generation != self.session.generation:
            return
        with _without_functions():
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
                    self._take_result(watch, index, received[slot] if slot < len(received) else None)
                for slot, index in through:
                    gathering.add(index, received[slot], self._share(watch, index))
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
        watch: PassWatch,
        slots: list[tuple[int, int]],
        parts: Sequence[Base],
        passed_on: Sequence[Any],
        received: Sequence[Any],
    ) -> Any:
        """A boundary node has run. ``slots``: (slot, argument); ``parts``: results that are views of its tensor."""
        if watch.generation != self.session.generation:
            return
        with _without_functions():
            try:
                gathering = watch.gather()
                if parts and not watch.nodes_run:
                    self._take_from_base(watch, parts, received)
                for position, index in slots:
                    gathering.add(index, passed_on[position], self._share(watch, index))
                gathering.arrived += 1
                if gathering.arrived >= watch.boundaries:
                    self._close(watch)
            except Exception as error:
                self.session.fault(watch.entry, error)

    def _reach_base(
        self,
        watch: PassWatch,
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
        with _without_functions():
            try:
                gathering = watch.gather()
                self._take_from_base(watch, parts, received)
                for slot, index in arguments:
                    gathering.add(index, received[slot], self._share(watch, index))
                if before:
                    watch.note = OF_ALL_USES
                if before or not watch.boundaries:
                    self._close(watch)
            except Exception as error:
                self.session.fault(watch.entry, error)

    def _take_from_base(self, watch: PassWatch, parts: Sequence[Base], received: Sequence[Any]) -> None:
        if not watch.begun:
            self._begin(watch)
        for part in parts:
            gradient = received[part.slot]
            self._take_result(watch, part.output, None if gradient is None else part.of(gradient))

    # ------------------------------------------------------------ when they have arrived

    def _close(self, watch: PassWatch) -> None:
        self.open.pop(watch, None)
        if watch.begun:
            self._finish(watch)
        watch.again()

    def close_open(self) -> None:
        """Write the passes whose gradients did not all arrive: the rest of the graph was not asked for."""
        with _without_functions():
            for watch in list(self.open):
                self.session.guard(self._close if type(watch) is PassWatch else type(watch).close, watch)


def nodes_of(outputs: Sequence[Any]) -> dict[Any, list[tuple[int, int]]]:
    """The nodes of results, and for each its (slot, result)."""
    nodes: dict[Any, list[tuple[int, int]]] = {}
    for index, tensor in enumerate(outputs):
        if tensor.requires_grad and tensor.grad_fn is not None:
            nodes.setdefault(tensor.grad_fn, []).append((tensor.output_nr, index))
    return nodes


class PassWatch:
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
        "merged",
        "nodes",
        "nodes_run",
        "note",
        "order",
        "outputs",
        "parent",
        "paths",
        "places",
        "shares",
        "unit",
        "wanted",
    )

    def __init__(
        self,
        entry: str,
        parent: Any,
        edges: list[ArgumentEdge],
        outputs: int,
        nodes: int,
        boundary: list[Boundary],
        handed: dict[int, int],
        generation: int,
    ) -> None:
        # Of the backward record; and what the forward one ran in.
        self.entry = entry
        self.parent = parent
        # Whose gradients these are, where the entry does not say it all.
        self.unit: Any = None
        self.paths, self.places, self.merged = (
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
        self.gathering: GradientGathering | None = None

    def gather(self) -> GradientGathering:
        """Gradients arrive."""
        if self.gathering is None:
            self.arrived: set[int] = set()
            self.inputs: list[Any] = [None] * self.outputs
            self.gathering = GradientGathering(self.shares)
        return self.gathering


# Index paths, places in the record, and those that are the same tensor as an earlier one.
_Arguments = tuple[list[str], list[str], dict[str, str]]


@lru_cache(maxsize=10_000)
def _one_argument(path: str) -> _Arguments:
    return [path], places_of([path]), {}


def _several_arguments(edges: Sequence[ArgumentEdge]) -> _Arguments:
    paths = [edge.path for edge in edges]
    return paths, places_of(paths), merged_arguments(map(identity_of, edges))

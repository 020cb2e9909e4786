"""The backward of calls and passes: what arrives at their results and what leaves them to their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.capture.adapter import Followed, PlacedTensor
from msprobe.capture.backward_records import add_gradients, merged_arguments, places_of, put_backward
from msprobe.capture.mindspore.gradients import backward_graph as graph
from msprobe.capture.mindspore.gradients.asked_gradients import AskedGradients, End
from msprobe.capture.mindspore.gradients.backward_graph import Edge, NodeHooks
from msprobe.capture.mindspore.tensors import sum_of
from msprobe.capture.session import Session
from msprobe.capture.units import UnitRecorder


class _Note:
    """What is known of a call's arguments before it runs."""

    __slots__ = ("edges", "oldest")

    def __init__(self, edges: list[Edge], oldest: int) -> None:
        self.edges = edges
        self.oldest = oldest


class GraphGradients:
    """Watches gradients by hooks on nodes of the graph (:class:`msprobe.capture.adapter.Gradients`)."""

    def __init__(self, session: Session, hooks: NodeHooks) -> None:
        self.session = session
        self.hooks = hooks
        self.asked = AskedGradients()
        self.units: UnitRecorder
        # Units of which some gradients have arrived.
        self.open: dict[Watch, None] = {}
        # The youngest node that was seen: what comes later is younger.
        self._youngest = -1

    def note(self, tensors: Sequence[PlacedTensor]) -> Any:
        edges = [graph.edge_of(place) for place in tensors]
        for edge in edges:
            self._see(edge.node)
        return _Note(edges, self._youngest + 1)

    def _see(self, node: Any) -> None:
        if node is not None and not node.is_leaf():
            self._youngest = max(self._youngest, node._sequence_nr())

    def watch(self, unit: Followed, note: Any, tensors: Sequence[PlacedTensor]) -> None:
        results = graph.results_of(tensors)
        results = {key: result for key, result in results.items() if not result.node.is_leaf()}
        if not results:
            return
        for result in results.values():
            self._see(result.node)
        edges: list[Edge] = note.edges
        boundary = graph.find_boundary(results, edges, note.oldest)
        # An argument that is handed through as a result: its gradient is that of all its uses.
        through: dict[int, list[tuple[int, int]]] = {}
        handed: dict[int, int] = {}
        for index, edge in enumerate(edges):
            passed = results.get(edge.key[0]) if edge.node is not None else None
            for slot, output in passed.slots if passed is not None else ():
                if slot == edge.key[1] and index not in handed:
                    handed[index] = output
                    through.setdefault(edge.key[0], []).append((slot, index))
        watch = Watch(unit, edges, [path for path, _ in tensors], self.session.generation, handed)
        watch.nodes = len(results)
        watch.boundaries = len(boundary)
        for place in boundary:
            for _, index in place.slots:
                watch.shares[index] += 1
        for index in handed:
            watch.shares[index] = 1
        watch.again()
        for key, result in results.items():
            self.hooks.before(result.node, self._arrive, watch, result.slots, through.get(key, ()))
        for place in boundary:
            slots = [(position, index) for position, index in place.slots if index not in handed]
            self.hooks.after(place.node, self._pass_on, watch, slots, place.ends)

    # ------------------------------------------------------------ while gradients arrive

    def _arrive(
        self, watch: Watch, slots: list[tuple[int, int]], through: Sequence[tuple[int, int]], received: Sequence[Any]
    ) -> None:
        """Gradients reach the node of results. ``slots``: (slot of the node, result)."""
        session = self.session
        if watch.generation != session.generation or not session.recording:
            return
        session.thread.muted += 1
        try:
            if watch.arrived >= watch.nodes:
                # The graph is walked again before all of the last walk's gradients came.
                self._close(watch)
            self._begin(watch)
            watch.arrived += 1
            for slot, index in slots:
                gradient = received[slot] if slot < len(received) else None
                if gradient is not None and watch.wanted and self.units.input:
                    path = f"{watch.entry}.input.{watch.results[index].removeprefix('output.')}"
                    watch.inputs[index] = self.units.described(gradient, path, watch.entry)
            for slot, index in through:
                self._take(watch, index, received[slot])
            self._close_if_done(watch)
        except Exception as error:
            session.fault(watch.entry, error)
        finally:
            session.thread.muted -= 1

    def _pass_on(
        self,
        watch: Watch,
        slots: list[tuple[int, int]],
        ends: list[End],
        passed_on: Sequence[Any],
        received: Sequence[Any],
    ) -> None:
        """A node at the boundary has run. ``slots``: (position among what it passes on, argument); ``ends``: where
        each of these goes.
        """
        session = self.session
        if watch.generation != session.generation or not session.recording:
            return
        session.thread.muted += 1
        try:
            self._begin(watch)
            watch.passed += 1
            places = self.asked.positions(ends, len(passed_on))
            if places is None:
                # Rather none than one that may be another's.
                watch.unknown.update(index for _, index in slots)
            else:
                came = dict(zip(places, passed_on, strict=True))
                for position, index in slots:
                    self._take(watch, index, came.get(position))
            self._close_if_done(watch)
        except Exception as error:
            session.fault(watch.entry, error)
        finally:
            session.thread.muted -= 1

    def _begin(self, watch: Watch) -> None:
        if watch.begun:
            return
        watch.begun = True
        flt = self.units.filter
        if flt is None:
            watch.wanted = True
        else:
            watch.wanted = flt.enter_module(watch.entry) if watch.is_module else flt.wants_call(watch.entry)
        watch.order = self.session.next_order()
        self.open[watch] = None

    def _take(self, watch: Watch, index: int, gradient: Any) -> None:
        """A share of the gradient of an argument."""
        if gradient is None or not watch.wanted or not self.units.output:
            return
        if watch.shares[index] == 1:
            path = f"{watch.entry}.output.{watch.places[index]}"
            watch.described[index] = self.units.described(gradient, path, watch.entry)
            return
        known = watch.parts.get(index)
        watch.parts[index] = gradient if known is None else sum_of(known, gradient)
        watch.missing[index] -= 1
        if not watch.missing[index]:
            self._add_up(watch, index)

    def _add_up(self, watch: Watch, index: int) -> None:
        """The argument is used several times inside the unit: its gradient is the sum of what comes back."""
        path = f"{watch.entry}.output.{watch.places[index]}"
        total = watch.parts.pop(index)
        if index not in watch.unknown:
            watch.described[index] = self.units.described(total, path, watch.entry)

    # ------------------------------------------------------------ when they have arrived

    def _close_if_done(self, watch: Watch) -> None:
        if watch.arrived >= watch.nodes and watch.passed >= watch.boundaries:
            self._close(watch)

    def _close(self, watch: Watch) -> None:
        self.open.pop(watch, None)
        if not watch.begun:
            return
        for index in list(watch.parts):
            self._add_up(watch, index)
        if watch.wanted:
            tree: dict[str, Any] = {}
            if self.units.input:
                tree["input"] = watch.inputs
            if self.units.output:
                add_gradients(tree, watch.paths, watch.described, watch.merged, watch.handed, empty_words=False)
            put_backward(self.units, watch.entry, tree, watch.order, watch.parent)
        if watch.is_module and self.units.filter is not None:
            self.units.filter.leave_module(watch.entry)
        watch.again()

    def close_open(self) -> None:
        """Write what has not all arrived: the rest of the graph was not asked for."""
        self.close_begun()

    def close_begun(self) -> None:
        """The same where recording goes on: a backward pass is over."""
        for watch in list(self.open):
            self.session.guard(self._close, watch)

    def forget_step(self) -> None:
        """A new step: nothing of the old one is waited for."""
        self.open.clear()
        self.hooks.remove()


class Watch:
    """One unit between its forward and its backward. No node and no tensor is kept here: the hooks on the nodes keep
    this, so they would keep the graph alive.
    """

    __slots__ = (
        "arrived",
        "begun",
        "boundaries",
        "described",
        "entry",
        "generation",
        "handed",
        "inputs",
        "is_module",
        "merged",
        "missing",
        "nodes",
        "order",
        "parent",
        "parts",
        "passed",
        "paths",
        "places",
        "results",
        "shares",
        "unknown",
        "wanted",
    )

    def __init__(
        self, unit: Followed, edges: Sequence[Edge], results: list[str], generation: int, handed: dict[int, int]
    ) -> None:
        self.entry = unit.backward
        self.is_module = unit.module is not None
        self.parent = unit.parent
        self.generation = generation
        self.paths = [edge.path for edge in edges]
        self.places = places_of(self.paths)
        self.merged = merged_arguments((edge.path, edge.key) for edge in edges if edge.node is not None)
        self.results = results
        self.handed = handed
        # How many nodes results come from, and how many lead to arguments; how many shares each argument has.
        self.nodes = 0
        self.boundaries = 0
        self.shares = [0] * len(edges)
        self.again()

    def again(self) -> None:
        """Ready for a pass (the graph may be walked backward more than once)."""
        self.begun = self.wanted = False
        self.order = self.arrived = self.passed = 0
        self.inputs: list[Any] = [None] * len(self.results)
        self.described: list[Any] = [None] * len(self.paths)
        # What has come of gradients that have several shares, and how many are still to come.
        self.parts: dict[int, Any] = {}
        self.missing = list(self.shares)
        # Arguments with a share that is not known.
        self.unknown: set[int] = set()

"""The cells of compiled graphs, at level L0: what goes into and comes out of each, forward and backward, with their
parameters and the gradients of these.

Tensors come by in the order in which the graph runs (``graph_probes``); entries are put
together when recording stops.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mindspore import nn

from msprobe import log
from msprobe.capture.array_files import ArrayKeeper
from msprobe.capture.array_statistics import ArrayStatistics, HostArray
from msprobe.capture.mindspore.calls.surface import MINDSPORE
from msprobe.capture.mindspore.graphs.executor import compiling_classes, wait_for_all
from msprobe.capture.mindspore.graphs.graph_passes import CellPass, ParameterValues, WatchedCell, in_order
from msprobe.capture.mindspore.graphs.graph_probes import (
    IN,
    MOST_TENSORS,
    OUT,
    WORD,
    Listener,
    ProbeNumber,
    indexes,
    parameter_hook,
    watched_construct,
)
from msprobe.capture.mindspore.patches import Replacement
from msprobe.capture.mindspore.tensors import TYPE_NAME, host_array
from msprobe.capture.session import Session
from msprobe.messages import said
from msprobe.store.dtypes import Array


class GraphCells:
    """Watches the cells of a model that are compiled; one per process."""

    def __init__(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        self.session = session
        self.statistics = statistics
        self.keeper = keeper
        self._cells: list[WatchedCell] = []
        self._known: dict[int, WatchedCell] = {}
        # By their numbers: cells that show a parameter, and under which name.
        self._owners: list[list[tuple[WatchedCell, str]]] = []
        self._parameters: dict[int, tuple[Any, int]] = {}
        self._constructs: list[Replacement] = []
        self._handles: list[Any] = []
        self._passes: dict[str, CellPass] = {}
        self._lock = threading.Lock()
        self._compilers: list[Replacement] = []
        self._has_given_up = False
        # The names of cells of mixed precision, which are left out.
        self.rounded: dict[str, None] = {}
        # Anything came by while it was recorded.
        self.has_reported = False
        # Asked when a cell reports itself while nothing is recorded.
        self.wake: Callable[[], bool] = lambda: False
        # Whether parameters that got no gradient are written.
        self.reports_missing = True
        session.before_publish.append(self._finish)

    # ------------------------------------------------------------ what is compiled

    def know(self, named: Iterable[tuple[str, nn.Cell]], certain: bool = True) -> bool:
        """Give these cells and their parameters their numbers; True if one was new. ``certain``: they are compiled;
        else something is that may call them.
        """
        before = len(self._cells)
        for name, cell in named:
            # Wrappers that MindSpore makes itself are none of the user's cells.
            if id(cell) in self._known or type(cell).__name__.startswith("_") or "grad_reducer" in name:
                continue
            if _is_rounded(cell):
                self.rounded[name] = None
                if certain:
                    self.warn_of_rounded(name)
                continue
            known = self._known[id(cell)] = WatchedCell(name, cell)
            watched = watched_construct(cell, len(self._cells))
            self._constructs += [Replacement(cell, attribute, method) for attribute, method in watched.items()]
            self._cells.append(known)
            for key, parameter in MINDSPORE.own_parameters(cell):
                if not parameter.requires_grad:
                    continue
                known.trained.append(key)
                if id(parameter) not in self._parameters:
                    self._parameters[id(parameter)] = (parameter, len(self._owners))
                    self._owners.append([])
                self._owners[self._parameters[id(parameter)][1]].append((known, key))
        return len(self._cells) > before

    def warn_of_rounded(self, name: str) -> None:
        """Say that this cell, and others like it, are left out."""
        log.once(
            "rounded cells",
            "warning",
            said("rounded-cells-not-recorded", name),
        )

    def put(self, without: Any = None) -> None:
        """What is compiled from here on reports the cells that are known, ``without`` one."""
        Listener.current = self.arrived
        Listener.compiled = self._compiled
        Listener.word = self._word
        Listener.left_out = self._left_out
        for construct in self._constructs:
            if not construct.in_place and construct.holder is not without:
                construct.put()

    def put_hooks(self) -> None:
        """The same for gradients of parameters, in a graph that has a backward pass of its own."""
        if self.session.settings.backward:
            for number, parameter in self.parameters()[len(self._handles) :]:
                self._handles.append(parameter.register_hook(parameter_hook(number)))

    def parameters(self) -> list[tuple[int, Any]]:
        """The parameters that have gradients, by their numbers."""
        return [(number, parameter) for parameter, number in self._parameters.values()]

    def _compiled(self, cell: int, call: int, side: int, place: int) -> None:
        """Compiled, and may run in any order: gradients are listed by the places of all tensors."""
        if cell < len(self._cells):
            self._cells[cell].places_of(call, side).add(place)

    def _left_out(self, cell: int) -> None:
        """Compiled without an operator of ours."""
        name = self._cells[cell].name if cell < len(self._cells) else "a cell"
        log.once(
            "shapes that change",
            "warning",
            said("cells-of-unknown-shapes", name),
        )

    def _word(self, cell: int, word: str) -> int:
        """The number of a keyword of a cell."""
        return self._cells[cell].number_of(word) if cell < len(self._cells) else MOST_TENSORS

    def is_in_place(self) -> bool:
        """True while what is compiled reports the cells."""
        return any(construct.in_place for construct in self._constructs)

    def take_off(self) -> None:
        """Leave the cells as they were; what is in graphs that are compiled stays there."""
        for construct in self._constructs:
            construct.take_off()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def watch(self, named: Iterable[tuple[str, nn.Cell]]) -> None:
        """Watch these cells, before their graph is compiled. They are watched until :meth:`close`."""
        self.know(named)
        if self._has_given_up:
            return
        self.put()
        self.put_hooks()
        if not self._compilers:
            for kind in compiling_classes():
                if "compile" in vars(kind):
                    self._compilers.append(Replacement(kind, "compile", self._or_without(vars(kind)["compile"])))
                    self._compilers[-1].put()

    def _or_without(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What cannot be compiled with what reports cells is compiled without."""

        @functools.wraps(original)
        def compile_or_without(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except Exception as error:
                if not self.give_up(error):
                    raise
                return original(*args, **kwargs)

        return compile_or_without

    def give_up(self, error: Exception) -> bool:
        """It could not be compiled: perhaps for what our operators lack, such as shapes that change. False if they had
        no part in it.
        """
        if not self.is_in_place():
            return False
        self.take_off()
        self._has_given_up = True
        first = next(iter(str(error).strip().splitlines()), "")
        log.once(
            "give up",
            "warning",
            said("cells-cannot-be-compiled", type(error).__name__, first),
        )
        return True

    def serve(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        """From here on notify another session of what comes: compiled graphs keep their numbers of cells."""
        self.session, self.statistics, self.keeper = session, statistics, keeper
        session.before_publish.append(self._finish)
        self.begin_step()

    def close(self) -> None:
        """The end: what is in compiled graphs does nothing more."""
        self.take_off()
        for compiler in self._compilers:
            compiler.take_off()
        self._compilers.clear()
        self._known.clear()
        self._constructs.clear()
        if Listener.current == self.arrived:
            Listener.current = Listener.compiled = Listener.word = Listener.left_out = None

    # ------------------------------------------------------------ what comes by

    def begin(self) -> None:
        """Recording begins: parameters are what they are now."""
        if not (self.session.settings.forward and self.session.settings.input):
            return
        for known in self._cells:
            for key, parameter in MINDSPORE.own_parameters(known.cell):
                try:
                    known.parameters[key] = self._parameter(known, parameter)
                except Exception as error:
                    self.session.fault(f"{known.name}.parameters.{key}", error)

    def _parameter(self, known: WatchedCell, parameter: Any) -> ParameterValues:
        host = None if self.statistics.structure else host_array(parameter)
        described = self.statistics.describe(TYPE_NAME, str(parameter.dtype), tuple(parameter.shape), host)
        if host is None or not self.session.saves(f"{known.name}.forward.0"):
            return ParameterValues(described, None)
        # Its memory is the parameter's own.
        return ParameterValues(described, host._replace(stored=host.stored.copy()))

    def arrived(self, arrival: ProbeNumber, values: Array) -> None:
        """The graph reports a tensor."""
        if not self.session.recording and not self.wake():
            return
        try:
            if arrival.is_parameter:
                self._take_parameter(arrival, values)
            else:
                self._take(arrival, values)
        except Exception as error:
            self.session.fault("a value of the graph", error)

    def _take(self, arrival: ProbeNumber, values: Array) -> None:
        self.has_reported = True
        with self._lock:
            cell = self._cells[arrival.owner]
            number = cell.pass_of(arrival, values)
            if number is None:
                return
            late = cell.come_late() if cell.waiting else []
        for report in ((arrival, values, number), *late):
            self._add(cell, *report)

    def _add(self, cell: WatchedCell, arrival: ProbeNumber, values: Array, number: int) -> None:
        """A tensor of this pass."""
        settings = self.session.settings
        side, place, is_gradient = arrival.side, arrival.place, arrival.is_gradient
        if not (settings.backward if is_gradient else settings.forward):
            return
        if is_gradient and values.dtype.kind not in "fc":
            # Whole numbers have no gradient: the compiler hands zeros around.
            return
        with self._lock:
            entry = f"{cell.name}.{'backward' if is_gradient else 'forward'}.{number}"
            cell_pass = self._passes.pop(entry, None)
            if cell_pass is None:
                cell_pass = CellPass(cell, arrival.call, entry, number, is_gradient, self.session.next_order())
            # Behind all that came before: an entry stands where it was completed.
            self._passes[entry] = cell_pass
        if side == WORD:
            word = cell.words[place]
            path = f"{entry}.output.kwargs.{word}" if is_gradient else f"{entry}.kwargs.{word}"
            cell_pass.sides[WORD][place] = self._described(arrival, values, entry, path)
            return
        # The gradients of results go into the backward pass, those of arguments come out.
        into = (side == IN) != is_gradient
        # What comes out of a backward pass is named by its number among the tensors.
        named = cell.ordinal(arrival) if is_gradient and not into else ".".join(map(str, indexes(place)))
        path = f"{entry}.{'input' if into else 'output'}.{named}"
        cell_pass.sides[IN if into else OUT][place] = self._described(arrival, values, entry, path)

    def _take_parameter(self, arrival: ProbeNumber, values: Array) -> None:
        for cell, key in self._owners[arrival.owner]:
            entry = f"{cell.name}.parameters_grad"
            cell.gradients[key] = self._described(arrival, values, entry, f"{entry}.{key}")
            cell.has_new = True

    def take_gradient(self, number: int, dtype: str, values: HostArray) -> None:
        """The gradient of a parameter, from elsewhere."""
        for cell, key in self._owners[number]:
            entry = f"{cell.name}.parameters_grad"
            cell.gradients[key] = self._kept_values(values, dtype, entry, f"{entry}.{key}")
            cell.has_new = True

    def _described(self, arrival: ProbeNumber, values: Array, entry: str, path: str) -> Any:
        array = np.ascontiguousarray(values)
        if arrival.is_single:
            array = array.reshape(())
        kind = array.dtype.name
        if arrival.is_bfloat16:
            array, kind = (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16), "bfloat16"
        return self._kept_values(HostArray(array, kind), _dtype(kind), entry, path)

    def _kept_values(self, host: HostArray, dtype: str, entry: str, path: str) -> Any:
        described: Any = self.statistics.describe(TYPE_NAME, dtype, host.stored.shape, host)
        return self.keeper.keep(host, described, path) if self.session.saves(entry) else described

    # ------------------------------------------------------------ what is written

    def _finish(self) -> None:
        """Wait for the graph and write the entries of what has come."""
        wait_for_all()
        for cell in self._cells:
            for late in cell.come_late(all_of_them=True) if cell.waiting else ():
                self.session.guard(self._add, cell, *late)
        with self._lock:
            passes, self._passes = self._passes, {}
        counts: dict[tuple[str, bool], int] = {}
        for cell_pass in passes.values():
            key = cell_pass.cell.path, cell_pass.is_backward
            counts[key] = max(counts.get(key, 0), cell_pass.number + 1)
        reported: set[int] = set()
        for cell_pass in passes.values():
            tree = self._backward(cell_pass) if cell_pass.is_backward else self._forward(cell_pass)
            tree["msprobe"] = {"order": cell_pass.order}
            self.session.put(cell_pass.entry, tree, None, self._parent(cell_pass, counts))
            if id(cell_pass.cell) not in reported and not cell_pass.is_backward:
                reported.add(id(cell_pass.cell))
                self._put_gradients(cell_pass.cell)
        for cell in self._cells:
            if cell.has_new and id(cell) not in reported:
                self._put_gradients(cell)

    def _forward(self, cell_pass: CellPass) -> dict[str, Any]:
        settings = self.session.settings
        given, got = in_order(cell_pass.sides[IN]), in_order(cell_pass.sides[OUT])
        tree: dict[str, Any] = {}
        if settings.input:
            tree.update(input_args=given, input_kwargs=self._by_word(cell_pass))
        tree["is_recompute"] = False
        if settings.output:
            tree["output"] = got
        if settings.input:
            tree["parameters"] = {
                key: self._kept(cell_pass, key, parameter) for key, parameter in cell_pass.cell.parameters.items()
            }
        return tree

    def _kept(self, cell_pass: CellPass, key: str, parameter: ParameterValues) -> Any:
        if parameter.values is None:
            return parameter.described
        return self.keeper.keep(parameter.values, parameter.described, f"{cell_pass.entry}.parameters.{key}")

    def _backward(self, cell_pass: CellPass) -> dict[str, Any]:
        given, got, words = cell_pass.sides
        inputs, results = (cell_pass.cell.places_of(cell_pass.call, side) for side in (IN, OUT))
        # One for each tensor among the results and the arguments, with null where no gradient came.
        tree: dict[str, Any] = {
            "input": [given.get(place) for place in sorted(results, key=indexes)],
            "output": [got.get(place) for place in sorted(inputs, key=indexes)],
        }
        if words:
            tree["kwargs_grads"] = self._by_word(cell_pass)
        return tree

    def _by_word(self, cell_pass: CellPass) -> dict[str, Any]:
        return {cell_pass.cell.words[place]: described for place, described in sorted(cell_pass.sides[WORD].items())}

    def _put_gradients(self, cell: WatchedCell) -> None:
        if cell.trained and self.session.settings.backward and (cell.gradients or self.reports_missing):
            tree = {key: [cell.gradients.get(key)] for key in cell.trained}
            self.session.put(f"{cell.name}.parameters_grad", tree)
        cell.has_new = False

    def _parent(self, cell_pass: CellPass, counts: dict[tuple[str, bool], int]) -> str | None:
        """The entry of the next cell around: of its passes the one in which this pass falls, if passes are even."""
        best: WatchedCell | None = None
        for cell in self._cells:
            is_around = cell_pass.cell.path.startswith(cell.path + ".")
            if (
                is_around
                and (cell.path, cell_pass.is_backward) in counts
                and (not best or len(cell.path) > len(best.path))
            ):
                best = cell
        if best is None:
            return None
        own, around = counts[cell_pass.cell.path, cell_pass.is_backward], counts[best.path, cell_pass.is_backward]
        number = cell_pass.number * around // own
        return f"{best.name}.{'backward' if cell_pass.is_backward else 'forward'}.{number}"

    def begin_step(self) -> None:
        """A new step: numbers begin at zero."""
        with self._lock:
            self._passes.clear()
            for cell in self._cells:
                cell.begin_step()
        if self.session.recording:
            # Nobody said stop: there may be no start either.
            self.begin()


def _is_rounded(cell: nn.Cell) -> bool:
    """True for a cell that is to calculate in a half type: the compiler leaves out what casts there and back."""
    flags = getattr(cell, "_func_graph_flags", None) or {}
    return bool(flags.get("fp16") or flags.get("bf16"))


def _dtype(kind: str) -> str:
    """``float32`` as MindSpore's dumps name it."""
    special = {"bool": "Bool", "bfloat16": "BFloat16"}
    return special.get(kind) or kind.capitalize().replace("Uint", "UInt")

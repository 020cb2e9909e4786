"""Level L0 of a static graph: what goes into and comes out of each cell, forward and backward.

The ``construct`` of each cell is replaced by one that puts each tensor through an operator that tells Python of it and
hands it on; its derivative does the same with the gradient. Once compiled these stay in the graph: while nothing is
recorded they only hand on.

The compiler reads the source of what is called there, so that is written in what it understands: constants are made by
functions under ``constexpr``.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterable
from typing import Any

import mindspore
import numpy as np
import xxhash
from mindspore import Tensor, nn, ops
from mindspore.ops import constexpr

from msprobe.capture.array_files import ArrayKeeper
from msprobe.capture.array_statistics import ArrayStatistics, HostArray
from msprobe.capture.mindspore.executor import wait_for_all
from msprobe.capture.mindspore.patches import Replacement
from msprobe.capture.mindspore.tensors import TYPE_NAME
from msprobe.capture.session import Session
from msprobe.store.dtypes import Array

# Of a cell's arguments and results as many are watched.
MOST_TENSORS = 16

# A number that travels with each tensor tells the cell, the side, the place there, and these.
_SINGLE = 1  # a single value travels as a list of one
_BFLOAT16 = 2  # travels as float32
_GRADIENT = 4
_FLAGS = 8

_IN, _OUT = 0, 1


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _number(cell: int, side: int, place: int, flags: int) -> Any:
    return Tensor([((cell * 2 + side) * MOST_TENSORS + place) * _FLAGS + flags], mindspore.int64)


def _told(data: Any, number: Any, gradient_number: Any) -> Any:
    """Called by the graph, forward: tell of the tensor and hand it on."""
    values = np.asarray(data)
    GraphCells.arrived(int(np.asarray(number).reshape(-1)[0]), values)
    return values


def _told_of_gradient(data: Any, number: Any) -> Any:
    """Called by the graph, backward."""
    values = np.asarray(data)
    GraphCells.arrived(int(np.asarray(number).reshape(-1)[0]), values)
    return values


def _as_first(data: Any, *numbers: Any) -> Any:
    """Shape and type of the result are those of the first input."""
    return data


_tell_gradient = ops.Custom(_told_of_gradient, out_shape=_as_first, out_dtype=_as_first, func_type="pyfunc")


def _backward(data: Any, number: Any, gradient_number: Any, result: Any, gradient: Any) -> Any:
    return (
        _tell_gradient(gradient, gradient_number),
        ops.zeros_like(number),
        ops.zeros_like(gradient_number),
    )


_tell = ops.Custom(_told, out_shape=_as_first, out_dtype=_as_first, func_type="pyfunc", bprop=_backward)


def _through(x: Any, cell: int, side: int, place: int, flags: int) -> Any:
    if len(x.shape) == 0:
        told = _tell(
            ops.reshape(x, (1,)),
            _number(cell, side, place, flags + _SINGLE),
            _number(cell, side, place, flags + _SINGLE + _GRADIENT),
        )
        return ops.reshape(told, ())
    return _tell(x, _number(cell, side, place, flags), _number(cell, side, place, flags + _GRADIENT))


def watched(x: Any, cell: int, side: int, place: int) -> Any:
    """Put one tensor through the operator that tells of it."""
    if x.dtype == mindspore.bfloat16:
        return ops.cast(_through(ops.cast(x, mindspore.float32), cell, side, place, _BFLOAT16), mindspore.bfloat16)
    return _through(x, cell, side, place, 0)


def _given(inputs: Any, cell: int) -> Any:
    found = []
    for i in range(len(inputs)):
        if i < MOST_TENSORS and isinstance(inputs[i], Tensor):
            found.append(watched(inputs[i], cell, 0, i))
        else:
            found.append(inputs[i])
    return tuple(found)


def _got(output: Any, cell: int) -> Any:
    if isinstance(output, Tensor):
        return watched(output, cell, 1, 0)
    if not isinstance(output, (tuple, list)):
        return output
    found = []
    for i in range(len(output)):
        if i < MOST_TENSORS and isinstance(output[i], Tensor):
            found.append(watched(output[i], cell, 1, i))
        else:
            found.append(output[i])
    if isinstance(output, list):
        return found
    return tuple(found)


def watched_construct(cell: nn.Cell, number: int) -> Any:
    """What takes the place of ``cell.construct``: the same, with what goes in and comes out watched.

    Not a hook: of cells in a list (``CellList``, ``SequentialCell``) the compiler passes hooks over.
    """
    # The function, not the method: a copy of the cell has to run its own.
    inner = getattr(cell.construct, "__func__", cell.construct)

    def construct(self: Any, *inputs: Any, **words: Any) -> Any:
        return _got(inner(self, *_given(inputs, number), **words), number)

    return types.MethodType(construct, cell)


class _Cell:
    """One watched cell: its name, and how often its tensors have come by in this step."""

    def __init__(self, name: str) -> None:
        self.name = name
        # "Cell.a.b.Class" -> "a.b"
        self.path = name.partition(".")[2].rpartition(".")[0]
        self.visits: dict[tuple[int, int], int] = {}
        # Forward numbers whose gradients have not come: the last one's come first.
        self.open: dict[tuple[int, int], list[int]] = {}
        # Forward and backward: the side of which tensors came last, and the digests of those of this pass.
        self._came: dict[bool, tuple[int, dict[tuple[int, int], bytes]]] = {}

    def begin_step(self) -> None:
        self.visits.clear()
        self.open.clear()
        self._came.clear()

    def is_told_again(self, side: int, place: int, is_gradient: bool, values: Array) -> bool:
        """True for a tensor of which the graph tells a second time: the compiler doubles operators like ours where a
        cell is used more than once. A further pass begins at the side where passes begin.
        """
        last, seen = self._came.get(is_gradient, (side, {}))
        first = _OUT if is_gradient else _IN
        if side == first and last != first:
            seen = {}
        self._came[is_gradient] = side, seen
        digest = xxhash.xxh3_128_digest(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        if seen.get((side, place)) == digest:
            return True
        seen[side, place] = digest
        return False


class _Pass:
    """What has come of one entry."""

    def __init__(self, cell: _Cell, entry: str, number: int, is_backward: bool) -> None:
        self.cell = cell
        self.entry = entry
        self.number = number
        self.is_backward = is_backward
        self.sides: tuple[dict[int, Any], dict[int, Any]] = ({}, {})


class GraphCells:
    """Watches the cells of a model whose graph is compiled; one per process."""

    _current: GraphCells | None = None

    def __init__(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        self.session = session
        self.statistics = statistics
        self.keeper = keeper
        self._cells: list[_Cell] = []
        self._known: dict[int, nn.Cell] = {}
        self._replaced: list[Replacement] = []
        self._passes: dict[str, _Pass] = {}
        self._lock = threading.Lock()

    def watch(self, named: Iterable[tuple[str, nn.Cell]]) -> None:
        """Watch these cells, before their graph is compiled. They are watched until :meth:`close`."""
        GraphCells._current = self
        for name, cell in named:
            # Wrappers that MindSpore makes itself are none of the user's cells.
            if id(cell) in self._known or type(cell).__name__.startswith("_") or "grad_reducer" in name:
                continue
            self._known[id(cell)] = cell
            construct = Replacement(cell, "construct", watched_construct(cell, len(self._cells)))
            self._cells.append(_Cell(name))
            construct.put()
            self._replaced.append(construct)

    def serve(self, session: Session, statistics: ArrayStatistics, keeper: ArrayKeeper) -> None:
        """From here on tell another session of what comes: compiled graphs keep their numbers of cells."""
        self.session, self.statistics, self.keeper = session, statistics, keeper
        self.begin_step()

    def close(self) -> None:
        """Leave the cells as they were; what is in graphs that are compiled stays there, and does nothing more."""
        replaced, self._replaced = self._replaced, []
        for construct in replaced:
            construct.take_off()
        self._known.clear()
        if GraphCells._current is self:
            GraphCells._current = None

    @staticmethod
    def arrived(number: int, values: Array) -> None:
        """The graph tells of a tensor."""
        current = GraphCells._current
        if current is not None and current.session.recording:
            try:
                current._take(number, values)
            except Exception as error:
                current.session.fault("a value of the graph", error)

    def _take(self, number: int, values: Array) -> None:
        rest, flags = divmod(number, _FLAGS)
        rest, place = divmod(rest, MOST_TENSORS)
        index, side = divmod(rest, 2)
        is_gradient = bool(flags & _GRADIENT)
        settings = self.session.settings
        with self._lock:
            cell, key = self._cells[index], (side, place)
            if cell.is_told_again(side, place, is_gradient, values):
                return
            if is_gradient:
                opened = cell.open.get(key)
                visit = opened.pop() if opened else 0
            else:
                visit = cell.visits.get(key, 0)
                cell.visits[key] = visit + 1
                cell.open.setdefault(key, []).append(visit)
            if not (settings.backward if is_gradient else settings.forward):
                return
            entry = f"{cell.name}.{'backward' if is_gradient else 'forward'}.{visit}"
            found = self._passes.pop(entry, None) or _Pass(cell, entry, visit, is_gradient)
            # Behind all that came before: an entry stands where it was completed.
            self._passes[entry] = found
        # The gradients of results go into the backward pass, those of arguments come out.
        into = (side == _IN) != is_gradient
        array = np.ascontiguousarray(values)
        if flags & _SINGLE:
            array = array.reshape(())
        kind = array.dtype.name
        if flags & _BFLOAT16:
            array, kind = (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16), "bfloat16"
        host = HostArray(array, kind)
        described: Any = self.statistics.describe(TYPE_NAME, _dtype(kind), array.shape, host)
        if self.session.saves(entry):
            described = self.keeper.keep(host, described, f"{entry}.{'input' if into else 'output'}.{place}")
        found.sides[_IN if into else _OUT][place] = described

    def finish(self) -> None:
        """Wait for the graph and write the entries of what has come."""
        wait_for_all()
        with self._lock:
            passes, self._passes = self._passes, {}
        counts: dict[tuple[str, bool], int] = {}
        for one in passes.values():
            key = one.cell.path, one.is_backward
            counts[key] = max(counts.get(key, 0), one.number + 1)
        for one in passes.values():
            tree: dict[str, Any]
            given, got = (_in_order(side) for side in one.sides)
            if one.is_backward:
                tree = {"input": given, "output": got}
            else:
                tree = {"input_args": given, "input_kwargs": {}, "is_recompute": False, "output": got}
            self.session.put(one.entry, tree, None, self._parent(one, counts))

    def _parent(self, one: _Pass, counts: dict[tuple[str, bool], int]) -> str | None:
        """The entry of the next cell around: of its passes the one in which this pass falls, if passes are even."""
        best: _Cell | None = None
        for cell in self._cells:
            is_around = one.cell.path.startswith(cell.path + ".")
            if is_around and (cell.path, one.is_backward) in counts and (not best or len(cell.path) > len(best.path)):
                best = cell
        if best is None:
            return None
        own, around = counts[one.cell.path, one.is_backward], counts[best.path, one.is_backward]
        number = one.number * around // own
        return f"{best.name}.{'backward' if one.is_backward else 'forward'}.{number}"

    def begin_step(self) -> None:
        """A new step: numbers begin at zero."""
        with self._lock:
            self._passes.clear()
            for cell in self._cells:
                cell.begin_step()


def _in_order(side: dict[int, Any]) -> list[Any]:
    return [side.get(place) for place in range(max(side, default=-1) + 1)]


def _dtype(kind: str) -> str:
    """``float32`` as MindSpore's dumps name it."""
    special = {"bool": "Bool", "bfloat16": "BFloat16"}
    return special.get(kind) or kind.capitalize().replace("Uint", "UInt")

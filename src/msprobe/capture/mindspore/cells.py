"""The cells of a model: their names, and hooks that report their passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mindspore import nn

from msprobe import log
from msprobe.capture.mindspore.calls.surface import MINDSPORE, Surface
from msprobe.capture.mindspore.patches import Replacement
from msprobe.capture.targets import Passes
from msprobe.capture.units import UnitRecorder
from msprobe.capture.user_hooks import PassHook
from msprobe.errors import InvalidInputError
from msprobe.messages import said


def name_cells(model: Any, record_root: bool = False, names: Surface = MINDSPORE) -> list[tuple[str, nn.Cell]]:
    """The cells to watch and their entry names: ``Cell.{[index.]path}.{Class}``. The root itself only if asked for."""
    prefix = names.module_prefix
    several = isinstance(model, (list, tuple))
    named: list[tuple[str, nn.Cell]] = []
    for index, root in enumerate(model if several else [model]):
        lead = f"{index}." if several else ""
        inside = [(path, cell) for path, cell in names.modules_of(root) if path]
        if record_root or not inside:
            if not record_root:
                kind = type(root).__name__
                log.once(
                    ("leaf", kind),
                    "info",
                    said("model-of-one-module", kind),
                )
            named.append((f"{prefix}.{lead}root.{type(root).__name__}", root))
        named += [(f"{prefix}.{lead}{path}.{type(cell).__name__}", cell) for path, cell in inside]
    return named


def cells_of(model: Any, names: Surface = MINDSPORE) -> list[nn.Cell]:
    """All cells of one model or several, the roots among them."""
    roots = model if isinstance(model, (list, tuple)) else [model]
    return [cell for root in roots for _, cell in names.modules_of(root)]


def check_model(model: Any, names: Surface = MINDSPORE) -> None:
    """Raise InvalidInputError unless ``model`` is a Cell or a non-empty list or tuple of Cells."""
    allowed = said("cell-allowed", names.module_word)
    if isinstance(model, (list, tuple)):
        if not model:
            raise InvalidInputError(said("start-of-empty-model", type(model).__name__, allowed))
        for i, part in enumerate(model):
            _check_cell(part, f"model[{i}]", allowed, names)
        return
    _check_cell(model, "model", allowed, names)


def _check_cell(cell: Any, where: str, allowed: str, names: Surface) -> None:
    if not isinstance(cell, (nn.Cell, names.module_class)):
        kind = said("the-class", cell.__name__) if isinstance(cell, type) else type(cell).__name__
        raise InvalidInputError(said("start-of-wrong-model", where, allowed, kind))


class CellHooks:
    """The hooks on the cells of a model between start and stop."""

    def __init__(self, units: UnitRecorder) -> None:
        self.units = units
        self.session = units.session
        self._handles: list[Any] = []
        self._seen: set[int] = set()
        # Cells with a ``bprop`` of their own, by identity: their names. MindSpore calls no hooks behind them.
        self._own_backward: dict[int, tuple[str, Passes]] = {}
        self._runs: dict[type, Replacement] = {}

    def watch(
        self, named: Iterable[tuple[str, nn.Cell]], target_of: Callable[[str, nn.Cell], Passes | None] | None = None
    ) -> None:
        """Put hooks on these cells, each under the name that its entries carry; the first name of a cell counts.

        ``target_of``: who is notified of a cell's passes, None for nobody; without it this dumper is.
        """
        for name, cell in named:
            target: Passes | None = self if target_of is None else target_of(name, cell)
            if target is not None and id(cell) not in self._seen:
                self._seen.add(id(cell))
                self._handles += watch_passes(target, name, cell)
                if getattr(cell, "has_bprop", False):
                    self._own_backward[id(cell)] = name, target
                    self._watch_runs(type(cell))

    def _watch_runs(self, kind: type) -> None:
        """Have the end of each run of cells of this class reported, where no hook reports it."""
        original = getattr(kind, "_run_construct", None)
        if original is None or kind in self._runs:
            return
        names = self._own_backward

        @functools.wraps(original)
        def run(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
            result = original(cell, *args, **kwargs)
            name, target = names.get(id(cell), ("", None))
            if target is not None:
                other = target.leave(name, cell, result)
                return result if other is None else other[0]
            return result

        self._runs[kind] = Replacement(kind, "_run_construct", run)
        self._runs[kind].put()

    def remove(self) -> None:
        """Take all hooks off the cells."""
        handles, self._handles = self._handles, []
        self._seen.clear()
        self._own_backward.clear()
        for replacement in self._runs.values():
            self.session.guard(replacement.take_off)
        self._runs.clear()
        for handle in handles:
            self.session.guard(handle.remove)
        self.units.leave_all()

    def enter(self, name: str, cell: nn.Cell, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The cell is about to run."""
        thread = self.session.thread
        if thread.muted or not self.session.recording:
            return
        thread.muted += 1
        try:
            self.units.enter(name, cell, args, kwargs)
        finally:
            thread.muted -= 1

    def leave(self, name: str, cell: nn.Cell, result: Any, error: BaseException | None = None) -> None:
        """The cell has run."""
        thread = self.session.thread
        if thread.muted or not self.session.recording:
            return
        thread.muted += 1
        try:
            if self.units.wait is not None:
                self.units.wait()
            self.units.leave(name, cell, result)
        finally:
            thread.muted -= 1


def watch_passes(passes: Passes, name: str, cell: nn.Cell) -> list[Any]:
    """Notify ``passes`` of each pass of ``cell``, under ``name``. Returns what removes the hooks again.

    MindSpore 2.7 takes functions and methods as hooks, and no other objects.
    """
    return [
        cell.register_forward_pre_hook(_Before(passes, name).__call__, with_kwargs=True),
        cell.register_forward_hook(_After(passes, name).__call__, with_kwargs=True),
    ]


class _Before(PassHook):
    __slots__ = ()

    def __call__(self, cell: nn.Cell, args: Any, kwargs: Any) -> Any:
        return None if self.passes is None else self.passes.enter(self.name, cell, args, kwargs)


class _After(PassHook):
    __slots__ = ()

    def __call__(self, cell: nn.Cell, args: Any, kwargs: Any, result: Any) -> Any:
        other = None if self.passes is None else self.passes.leave(self.name, cell, result)
        return None if other is None else other[0]

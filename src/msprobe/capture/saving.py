"""Variables that the user saves by hand (level debug): their values now, their gradients when those arrive.

What all frameworks have in common: names, numbers, and how gradients that come one by one find their place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from msprobe import log
from msprobe.capture.bus import Bus
from msprobe.capture.events import SavedValue
from msprobe.capture.session import Session
from msprobe.messages import said

# Containers deeper than this are not saved (one that holds itself has no end).
DEPTH_LIMIT = 50
#: Values that are saved besides tensors.
PLAIN = (bool, int, float, str)
# While gradients of a large container arrive one by one, its record is written again about this often.
_WRITES_PER_RECORD = 16

_savers: weakref.WeakKeyDictionary[Any, VariableSaver] = weakref.WeakKeyDictionary()


def save_variable(
    recorder: Any, make_saver: Callable[[Any], VariableSaver], variable: Any, name: Any, save_backward: Any
) -> None:
    """See :meth:`VariableSaver.save`. ``make_saver`` gives a recorder its saver when it first saves."""
    saver = _savers.get(recorder)
    if saver is None:
        saver = _savers[recorder] = make_saver(recorder)
    saver.save(variable, name, save_backward)


class SavedGradients:
    """The gradients of one saved variable, while they arrive."""

    __slots__ = ("arrived", "entry", "expected", "generation", "tree", "unwritten")

    def __init__(self, entry: str, generation: int) -> None:
        self.entry = entry
        self.generation = generation
        #: The nesting of the variable, None where nothing has arrived.
        self.tree: Any = None
        #: How many tensors are watched.
        self.expected = 0
        self.arrived = 0
        self.unwritten = 0

    def put(self, place: tuple[Any, ...], described: Any) -> None:
        """The gradient at ``place``. A new tree: the old one may be waiting to be written."""
        self.arrived += 1
        self.unwritten += 1
        self.tree = _replaced(self.tree, place, described)

    @property
    def is_due(self) -> bool:
        """True if the record is worth writing: complete, or many are new in it."""
        return self.arrived >= self.expected or self.unwritten >= max(1, self.expected // _WRITES_PER_RECORD)


class VariableSaver:
    """Saves variables into the ``debug.json`` of the current step. The methods that raise are each framework's own."""

    def __init__(self, session: Session, bus: Bus) -> None:
        self.session = session
        self.bus = bus
        self._open: dict[SavedGradients, None] = {}
        session.before_publish.append(self._write_open)
        session.at_step_end.append(self._forget_step)

    def save(self, variable: Any, name: str, save_backward: bool) -> None:
        """Record ``variable`` as ``{name}.{count}.debug`` and its gradients as ``{name}_grad.{count}.debug``.

        What cannot be saved gives a warning; nothing is raised.
        """
        session = self.session
        if not session.is_wanted():
            return
        with self._unseen():
            try:
                mistake = _mistake(name, save_backward) or self._mistake_in(variable, f"variable {name!r}")
                if mistake:
                    log.warning(said("variable-skipped", mistake))
                    return
                self._save(variable, _one_name(name), save_backward)
            except Exception as error:
                session.fault(f"variable {name!r}", error)

    def _save(self, variable: Any, name: str, save_backward: bool) -> None:
        session = self.session
        count = session.number(f"debug {name}")
        entry = f"{name}.{count}.debug"
        session.put(entry, self._tree(variable, entry))
        routes = self.bus.open_routes("saved", name, count)
        if routes:
            self.bus.show(routes, "after", SavedValue(entry, session.step, session.rank(), variable), variable)
        if save_backward:
            gradients = SavedGradients(f"{name}_grad.{count}.debug", session.generation)
            gradients.tree = self._gradient_tree(variable, gradients, ())
            session.put(gradients.entry, gradients.tree)

    def _gradient_tree(self, value: Any, gradients: SavedGradients, place: tuple[Any, ...]) -> Any:
        """The nesting of ``value`` with null in every place; sees to it that gradients are put there."""
        if self._is_tensor(value):
            if self._watch(value, gradients, place):
                gradients.expected += 1
        elif isinstance(value, dict):
            return {str(key): self._gradient_tree(item, gradients, (*place, str(key))) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            return [self._gradient_tree(item, gradients, (*place, i)) for i, item in enumerate(value)]
        return None

    def _arrive(self, gradients: SavedGradients, place: tuple[Any, ...], gradient: Any) -> None:
        """The gradient of the tensor at ``place``, from a hook."""
        session = self.session
        if gradients.generation != session.generation or gradient is None:
            return
        with self._unseen():
            try:
                path = ".".join(map(str, (gradients.entry, *place)))
                with session.lock:
                    gradients.put(place, self._tree(gradient, path))
                    if gradients.is_due:
                        self._write(gradients)
                    else:
                        self._open[gradients] = None
            except Exception as error:
                session.fault(gradients.entry, error)

    def _write(self, gradients: SavedGradients) -> None:
        self._open.pop(gradients, None)
        gradients.unwritten = 0
        self.session.put(gradients.entry, gradients.tree)

    def _write_open(self) -> None:
        for gradients in list(self._open):
            self._write(gradients)

    def _forget_step(self) -> None:
        self._open.clear()

    def _arrive_at_node(
        self, gradients: SavedGradients, place: tuple[Any, ...], slot: int, received: Sequence[Any]
    ) -> None:
        self._arrive(gradients, place, received[slot] if slot < len(received) else None)

    # ---------------------------------------------------------------- each framework's own

    def _unseen(self) -> AbstractContextManager[Any]:
        """While this is open, what the saver itself calls is not recorded."""
        raise NotImplementedError

    def _is_tensor(self, value: Any) -> bool:
        raise NotImplementedError

    def _mistake_in(self, variable: Any, where: str) -> str:
        """Why ``variable`` cannot be saved, in words; empty if it can."""
        raise NotImplementedError

    def _tree(self, value: Any, path: str) -> Any:
        """The description of a value, its tensors with files if the task keeps them."""
        raise NotImplementedError

    def _watch(self, tensor: Any, gradients: SavedGradients, place: tuple[Any, ...]) -> bool:
        """Have ``_arrive`` called with the gradient of ``tensor``. False if none will come."""
        raise NotImplementedError


def _replaced(tree: Any, place: tuple[Any, ...], leaf: Any) -> Any:
    if not place:
        return leaf
    copy = tree.copy()
    copy[place[0]] = _replaced(tree[place[0]], place[1:], leaf)
    return copy


def _one_name(name: str) -> str:
    """The name as entries and files carry it: without what would lead to another folder."""
    return "".join("_" if c in "/\\" or not c.isprintable() else c for c in name)


def _mistake(name: Any, save_backward: Any) -> str:
    """What is wrong with the arguments of save(), in words; empty if nothing is."""
    if not isinstance(name, str):
        return said("save-name-wrong", name, type(name).__name__)
    if not isinstance(save_backward, bool):
        return said("save-backward-wrong", name, save_backward)
    return ""
